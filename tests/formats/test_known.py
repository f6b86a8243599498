"""Published tokenizers are known by what is in them."""

import re
from pathlib import Path

import pytest

from minigpt_tok.formats.known import FINGERPRINTS, RANKS, known_name
from minigpt_tok.tokenizer import Tokenizer

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tokenizers.md"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("gpt2/tokenizer.json", "GPT-2 (r50k_base)"),
        ("gpt2/vocab.bpe", "GPT-2 (r50k_base)"),
        ("gpt2/r50k_base.tiktoken", "GPT-2 (r50k_base)"),
        ("cl100k_base.tiktoken", "cl100k_base (GPT-4)"),
        ("o200k_base.tiktoken", "o200k_base (GPT-4o)"),
        ("smollm2/tokenizer.json", "SmolLM2"),
        ("llama3/tokenizer.json", "Llama 3"),
        ("llama3/tokenizer.model", "Llama 3, ranks without special tokens"),
        ("qwen/qwen.tiktoken", "Qwen and Qwen 2, ranks without special tokens"),
        ("qwen/qwen3_tokenizer.json", "Qwen 3"),
    ],
)
def test_published_files_have_their_names(shared, file, name):
    assert known_name(Tokenizer.load(shared / "tokenizers" / file).fingerprint) == name


def test_others_have_none(byte_tokenizer):
    assert known_name(byte_tokenizer.fingerprint) is None


def test_the_tables_hold_hashes():
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in (*FINGERPRINTS, *RANKS))


def test_the_documentation_has_the_same_table():
    rows = dict(re.findall(r"^\| (.+?) \| [\d,]+ \| `([0-9a-f]{64})` \|", DOCS.read_text("utf-8"), re.MULTILINE))
    assert {fingerprint: name for name, fingerprint in rows.items()} == FINGERPRINTS


def test_tiktoken_says_the_same_of_its_files():
    source = pytest.importorskip("tiktoken_ext.openai_public").__file__
    text = Path(source).read_text("utf-8")
    ours = {known.name: sha for sha, known in RANKS.items() if known.name.endswith("_base")}
    theirs = dict(re.findall(r'encodings/(\w+_base)\.tiktoken",\s+expected_hash="([0-9a-f]{64})"', text))
    assert ours == theirs
