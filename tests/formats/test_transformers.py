"""What the transformers library is given, and what it makes of it."""

import json
import sys

import pytest

from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.errors import MissingDependencyError
from minigpt_tok.formats.transformers import roles, tokenizer_config, tokenizer_json


def model(*specials):
    added = tuple(AddedToken(content=token, id=1 + n) for n, token in enumerate(specials))
    return BPEModel(tokens=(b"a", *(None for _ in added)), added_tokens=added)


@pytest.mark.parametrize(
    ("specials", "expected"),
    [
        ((), {}),
        (("<|endoftext|>",), dict.fromkeys(("bos_token", "eos_token", "pad_token"), "<|endoftext|>")),
        (
            ("<|pad|>", "<|endoftext|>"),
            {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|pad|>"},
        ),
        (
            ("<|begin_of_text|>", "<|end_of_text|>"),
            {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "pad_token": "<|end_of_text|>"},
        ),
        (("<s>", "</s>"), {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}),
        (("<|im_start|>",), {}),
    ],
)
def test_roles_go_to_the_usual_names(specials, expected):
    assert roles(model(*specials)) == expected
    config = tokenizer_config(model(*specials), 128)
    assert config == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 128,
        **expected,
    }


@pytest.mark.parametrize("pattern", ["none", "gpt2", "digits1", "cl100k", "smollm"])
def test_characters_get_the_same_ids_from_tokenizers(make, pattern):
    tokenizers = pytest.importorskip("tokenizers")
    ours = make("character", 90, (), pattern=pattern)
    theirs = tokenizers.Tokenizer.from_str(tokenizer_json(ours.model, None, ours.fingerprint))
    assert theirs.get_vocab_size() == ours.vocab_size
    for text in ["the cat sat on the mat.", "it's 1234 o'clock\n\n", "café 日本 don't", "  the   cat", ""]:
        ids = theirs.encode(text).ids
        assert ids == ours.encode(text)
        assert theirs.decode(ids) == text


def test_without_the_library_it_says_what_to_install(byte_tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match="pip install transformers"):
        byte_tokenizer.to_transformers()


@pytest.fixture
def library():
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("recipe", ["hf", "cs336", "readable"])
def test_the_fast_tokenizer_gives_the_same_ids(library, make, recipe, hard_texts):
    ours = make(recipe, 300, ("<|endoftext|>", "<|pad|>"))
    theirs = ours.to_transformers()
    assert isinstance(theirs, library.PreTrainedTokenizerFast)
    assert len(theirs) == ours.vocab_size
    assert theirs.eos_token_id == theirs.bos_token_id == ours.special_tokens["<|endoftext|>"]
    assert theirs.pad_token_id == ours.special_tokens["<|pad|>"]
    for text in hard_texts:
        assert theirs(text)["input_ids"] == ours.encode(text, allowed_special="all")
        assert theirs(text, split_special_tokens=True)["input_ids"] == ours.encode(text)
        assert theirs.decode(ours.encode(text)) == text
    padded = theirs(["the", "the cat sat"], padding=True)["input_ids"]
    assert padded[0][-1] == theirs.pad_token_id


def test_without_special_tokens_it_has_none(library, make):
    theirs = make("hf", 300, ()).to_transformers()
    assert theirs.eos_token is theirs.bos_token is theirs.pad_token is None


def test_it_saves_what_we_read_again(library, make, tmp_path):
    from minigpt_tok.tokenizer import Tokenizer

    ours = make("hf", 300, ("<|endoftext|>",))
    ours.to_transformers().save_pretrained(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again == ours
    assert "minigpt_tok" not in json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))["model"]
    assert library.AutoTokenizer.from_pretrained(tmp_path).encode("the cat") == ours.encode("the cat")
