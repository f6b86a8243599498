"""The character tutorial's own calls."""

import hashlib
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.compat.character import BPETokenizer, count_pairs, merge_pair, tokenizer_fingerprint
from minigpt_tok.errors import CorpusError, FormatError, TokenizerError
from minigpt_tok.tokenizer import Tokenizer

LOW = "low lower lowest"


def test_the_worked_example():
    made = BPETokenizer.train(LOW, 20, verbose=False)
    assert made.merges == [("l", "o"), ("lo", "w"), (" ", "low"), (" low", "e")]
    assert made.base_tokens == [" ", "e", "l", "o", "r", "s", "t", "w"]
    assert made.encode_tokens(LOW) == ["low", " lowe", "r", " lowe", "s", "t"]
    assert made.vocab_size == 12
    assert made.tokens[8:] == ["lo", "low", " low", " lowe"]
    assert made.stoi["low"] == 9
    assert made.itos[9] == "low"
    assert made.encode(LOW) == [9, 11, 4, 11, 5, 6]
    assert made.decode([9, 11, 4, 11, 5, 6]) == LOW
    assert made.tokenizer.training.counts == (3, 3, 2, 2)


def test_it_prints_unless_told_not_to(capsys):
    BPETokenizer.train(LOW, 20)
    out = capsys.readouterr().out
    assert "Merge    1: 'l' + 'o' -> 'lo' | count 3 | sequence length 13 | vocabulary 9" in out
    assert "Stopped: the best pair occurs 1 time" in out
    assert "Final vocabulary: 12" in out
    assert "Final sequence length: 6" in out
    BPETokenizer.train(LOW, 20, verbose=False)
    assert capsys.readouterr().out == ""


def test_base_tokens_may_be_more_than_the_text_has_and_in_any_order():
    made = BPETokenizer.train(LOW, 30, base_tokens=["z", "y", "x", *sorted(set(LOW))], verbose=False)
    assert made.base_tokens == ["z", "y", "x", *sorted(set(LOW))]
    assert made.merges == BPETokenizer.train(LOW, 30, verbose=False).merges
    assert made.encode("zlow") == [0, made.stoi["low"]]
    assert made.tokenizer.training is not None


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((LOW, 7), TokenizerError, "vocab_size is 7"),
        ((LOW, 20, 0), TokenizerError, "min_frequency is 0"),
        ((LOW, 20, 2, "low"), TokenizerError, "base_characters lacks 5 .*' ', 'e', 'r', 's', 't'"),
        ((LOW, 20, 2, [*sorted(set(LOW)), "ab"]), TokenizerError, "'ab', which is not one character"),
        (("", 20), CorpusError, "nothing to train on"),
    ],
)
def test_bad_arguments(arguments, error, named):
    with pytest.raises(error, match=named):
        BPETokenizer.train(*arguments, verbose=False)


def test_the_minimum_frequency():
    assert len(BPETokenizer.train(LOW, 30, minimum_pair_frequency=3, verbose=False).merges) == 2
    assert len(BPETokenizer.train(LOW, 30, minimum_pair_frequency=1, verbose=False).merges) > 4


def naive(text, size, least=2):
    """The tutorial's loop: count all pairs, take the first of the most frequent, join it everywhere."""
    base = sorted(set(text))
    tokens, merges = list(text), []
    while len(base) + len(merges) < size:
        counts = count_pairs(tokens)
        if not counts:
            break
        best = max(counts, key=counts.get)
        if counts[best] < least:
            break
        merges.append(best)
        tokens = merge_pair(tokens, best)
    return base, merges, tokens


@settings(max_examples=80, deadline=None)
@given(st.text("ab \né日", min_size=1, max_size=80), st.integers(6, 40), st.integers(1, 3))
def test_merges_tokens_and_fingerprint_are_those_of_its_own_functions(text, size, least):
    base, merges, tokens = naive(text, size, least)
    made = BPETokenizer.train(text, size, least, verbose=False)
    assert (made.base_tokens, made.merges) == (base, merges)
    assert made.encode_tokens(text) == tokens
    compact = json.dumps(
        {"base_tokens": base, "merges": [list(pair) for pair in merges]}, ensure_ascii=False, separators=(",", ":")
    )
    assert made.fingerprint() == hashlib.sha256(compact.encode("utf-8")).hexdigest()
    assert tokenizer_fingerprint(base, merges) == made.fingerprint()


def test_the_published_fingerprints():
    assert (
        tokenizer_fingerprint([" ", "e", "l", "o", "r", "s", "t", "w"], [("l", "o"), ("lo", "w")])
        == "100f579e5eaba6ce9de6c58043b1e9fcdb5105f9ebabf12518b7f8b4259e13a2"
    )
    assert (
        tokenizer_fingerprint(["a", "b", "é"], [["a", "b"]])
        == "e0bc4089b6f6406a7991e02905f263806e904b2c0147163bdac5588c89691f87"
    )


def test_counting_and_merging_pairs():
    assert count_pairs("abab") == {("a", "b"): 2, ("b", "a"): 1}
    assert list(count_pairs(["x", "a", "b"])) == [("x", "a"), ("a", "b")]
    assert count_pairs([]) == Counter()
    assert merge_pair(["a", "a", "a"], ("a", "a")) == ["aa", "a"]
    assert merge_pair(list("abcab"), ("a", "b")) == ["ab", "c", "ab"]


def test_save_and_load(tmp_path):
    made = BPETokenizer.train(LOW, 20, verbose=False)
    made.save(tmp_path / "t.json")
    back = BPETokenizer.from_file(tmp_path / "t.json")
    assert (back.base_tokens, back.merges, back.fingerprint()) == (made.base_tokens, made.merges, made.fingerprint())
    document = json.loads((tmp_path / "t.json").read_text("utf-8"))
    assert list(document) == ["type", "base_tokens", "merges", "vocab_size", "fingerprint"]
    assert (tmp_path / "t.json").read_text("utf-8") == json.dumps(document, indent=2, ensure_ascii=False)
    document["merges"].reverse()
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"merges\[\d\] joins"):
        BPETokenizer.from_file(tmp_path / "t.json")
    assert back.training_report() == []


def test_unknown_characters_and_ids_are_refused():
    made = BPETokenizer(["a", "b"], [("a", "b")])
    with pytest.raises(TokenizerError, match="'c', 'é'"):
        made.encode("éabc")
    with pytest.raises(TokenizerError, match="id 3 is outside the vocabulary of 3 ids"):
        made.decode([3])


def test_lists_that_are_no_tokenizer_are_refused():
    with pytest.raises(FormatError, match="neither a base token nor made by an earlier merge"):
        BPETokenizer(["a", "b"], [("ab", "a"), ("a", "b")])
    with pytest.raises(FormatError, match="not a pair"):
        BPETokenizer(["a", "b"], [("a",)])


def test_other_tokenizers_have_no_such_view(tmp_path):
    vocab = {id: bytes([id]) for id in range(256)}
    Tokenizer.from_vocab_and_merges(vocab, []).save(tmp_path / "t.json")
    with pytest.raises(FormatError, match="not a character tokenizer"):
        BPETokenizer.from_file(tmp_path / "t.json")
