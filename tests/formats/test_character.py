"""The `character_bpe` JSON, byte for byte, and lists of merges made by hand."""

import json

import pytest

from minigpt_tok.errors import FormatError
from minigpt_tok.formats.character import to_model
from minigpt_tok.tokenizer import Tokenizer

FINGERPRINT = "e0bc4089b6f6406a7991e02905f263806e904b2c0147163bdac5588c89691f87"
FILE = """{
  "type": "character_bpe",
  "base_tokens": [
    "a",
    "b",
    "é"
  ],
  "merges": [
    [
      "a",
      "b"
    ]
  ],
  "vocab_size": 4,
  "fingerprint": "FINGERPRINT"
}""".replace("FINGERPRINT", FINGERPRINT)


def tokenizer(base_tokens, merges):
    return Tokenizer(to_model(base_tokens, merges, "the test"))


def test_the_file_is_the_tutorials_byte_for_byte(tmp_path):
    made = tokenizer(["a", "b", "é"], [("a", "b")])
    made.save(tmp_path / "t.json")
    assert (tmp_path / "t.json").read_bytes() == FILE.encode("utf-8")
    assert Tokenizer.load(tmp_path / "t.json") == made


def test_it_is_read_with_and_without_fingerprint_type_and_size():
    document = json.loads(FILE)
    for key in ("fingerprint", "type", "vocab_size"):
        del document[key]
        assert Tokenizer.from_json(json.dumps(document)).fingerprint == FINGERPRINT


def test_another_pattern_is_kept_and_changes_the_fingerprint(make):
    made = make("character", 60, (), pattern="gpt2")
    again = Tokenizer.from_json(made.to_json())
    assert again.pattern == "gpt2"
    assert again.fingerprint == made.fingerprint != make("character", 60, ()).fingerprint


def test_a_merge_of_a_token_not_yet_made_is_refused():
    with pytest.raises(FormatError, match=r"merges\[0\] joins 'ab' and 'c', but 'ab' is neither"):
        to_model(["a", "b", "c"], [("ab", "c"), ("a", "b")], "the file")
    assert to_model(["a", "b", "c"], [("a", "b"), ("ab", "c")], "the file").vocab_size == 5


def test_sorting_the_merges_changes_the_segmentation():
    learned = [("b", "c"), ("a", "b")]
    assert tokenizer(["a", "b", "c"], learned).tokens("abc") == ["a", "bc"]
    assert tokenizer(["a", "b", "c"], sorted(learned)).tokens("abc") == ["ab", "c"]


@pytest.mark.parametrize(
    ("base_tokens", "merges", "match"),
    [
        (["ab"], [], r"base_tokens\[0\] is 'ab', not one character"),
        ([""], [], r"base_tokens\[0\] is '', not one character"),
        (["a", 3], [], r"base_tokens\[1\] is 3"),
        (["\ud800"], [], r"not one character"),
        (["a", "a"], [], "'a' twice"),
        (["a"], [["a"]], r"merges\[0\] is \['a'\], not a pair"),
        (["a"], [["a", 1]], "not a pair of strings"),
        (["a"], ["aa"], "not a pair"),
        (["a"], [["a", "a"], ["a", "a"]], r"merges\[1\] makes 'aa', which an earlier merge made"),
        (["a", "b", "c"], [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]], "which an earlier merge made"),
        (["a"], [["a", ""]], "neither a base token"),
    ],
)
def test_lists_that_cannot_be_are_refused(base_tokens, merges, match):
    with pytest.raises(FormatError, match=match):
        to_model(base_tokens, merges, "the file")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("vocab_size", 5, "vocab_size is 5, but base tokens and merges make 4"),
        ("vocab_size", -1, "damaged or edited"),
        ("vocab_size", "4", "not int"),
        ("vocab_size", True, "not int"),
        ("base_tokens", "ab", "not list"),
        ("merges", None, "not list"),
        ("fingerprint", 3, "not str"),
        ("fingerprint", "", "edited"),
        ("pattern", "unheard", "pattern"),
        ("pattern", 7, "not str"),
    ],
)
def test_fields_that_cannot_be_are_refused(key, value, match):
    with pytest.raises(FormatError, match=match):
        Tokenizer.from_json(json.dumps({**json.loads(FILE), key: value}))


def test_an_empty_tokenizer_is_refused():
    with pytest.raises(FormatError, match="base_tokens is empty"):
        Tokenizer.from_json('{"type": "character_bpe", "base_tokens": [], "merges": []}')
