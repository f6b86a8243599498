"""Files of ranks: what they say, what they cannot say, and what must be said beside them."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.encoder import Encoder
from minigpt_tok.bpe.model import ALL_BYTES, BPEModel
from minigpt_tok.bpe.ranks import merge_list, ranks_suffice, unreachable_ids
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.tokenizer import Tokenizer


def lines(tokens):
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))


def write(path, tokens=ALL_BYTES, more=""):
    path.write_text(lines(tokens) + more)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.tiktoken"


def test_what_is_written_is_what_is_read(make, path, hard_texts):
    tokenizer = make("readable", 300, ())
    tokenizer.to_tiktoken(path)
    loaded = Tokenizer.from_tiktoken(path, pattern="digits1")
    assert loaded == tokenizer
    assert loaded.merges == tokenizer.merges
    for text in hard_texts:
        assert loaded.encode(text) == tokenizer.encode(text)


def test_tiktoken_reads_it_with_the_same_ids(make, path, hard_texts):
    tiktoken = pytest.importorskip("tiktoken")
    tokenizer = make("cs336", 300, ("<|endoftext|>",))
    tokenizer.to_tiktoken(path)
    ranks = dict(line.split() for line in path.read_text().splitlines())
    theirs = tiktoken.Encoding(
        "test",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in ranks.items()},
        special_tokens=tokenizer.special_tokens,
    )
    for text in hard_texts:
        assert theirs.encode(text, allowed_special="all") == tokenizer.encode(text, allowed_special="all")


def test_specials_are_given_beside_the_file_and_holes_are_allowed(path):
    write(path, [*ALL_BYTES, b"ab"])
    tokenizer = Tokenizer.from_tiktoken(path, pattern="gpt2", special_tokens={"<s>": 300})
    assert tokenizer.vocab_size == 301
    assert tokenizer.encode("ab<s>", allowed_special="all") == [256, 300]
    assert tokenizer.special_tokens == {"<s>": 300}
    with pytest.raises(TokenizerError, match="id 299 is a hole in the vocabulary of 301 ids"):
        tokenizer.decode([299])
    assert Tokenizer.from_json(tokenizer.to_json()) == tokenizer


def test_the_pattern_must_be_named(path):
    write(path)
    with pytest.raises(TypeError, match="pattern"):
        Tokenizer.from_tiktoken(path)
    with pytest.raises(TokenizerError, match="'unheard'"):
        Tokenizer.from_tiktoken(path, pattern="unheard")
    with pytest.raises(FormatError, match="does not name its pattern"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("YWI=\n", "line 257 is 'YWI='"),
        ("YWI= 256 1\n", "line 257"),
        ("YWI= x\n", "line 257"),
        ("YWI= -1\n", "line 257"),
        ("YWI= 2_56\n", "line 257"),
        ("YWI= ٣\n", "line 257"),
        (f"YWI= {'9' * 5000}\n", "line 257"),
        ("YWI= 999999999999\n", "not a whole number from 0"),
        ("YW!= 256\n", "line 257"),
        ("YWI 256\n", "line 257"),
        ("YWI= 256\nYWI= 257\n", "line 258 gives the token b'ab' or the rank 257 a second time"),
        ("YWI= 256\nYmM= 256\n", "line 258 gives the token b'bc' or the rank 256 a second time"),
    ],
)
def test_broken_lines_are_refused_by_their_number(path, more, named):
    with pytest.raises(FormatError, match=named.replace("(", r"\(")):
        Tokenizer.from_tiktoken(write(path, more=more), pattern="gpt2")


def test_other_broken_files_are_refused(path):
    for content, named in ((b"", "empty"), (b"\xff\xfe 0\n", "not UTF-8")):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=named):
            Tokenizer.from_tiktoken(path, pattern="gpt2")
    write(path)
    with pytest.raises(FormatError, match="'<s>' has id 7, which another token has"):
        Tokenizer.from_tiktoken(path, pattern="gpt2", special_tokens={"<s>": 7})


# What ranks and merge lists say of each other


def test_ranks_cannot_express_merges_in_another_order(path):
    a, b, c = b"abc"
    tokens = (*ALL_BYTES, b"ab", b"bc")
    other_order = BPEModel(tokens=tokens, merges=((b, c), (a, b)), merge_results=(257, 256))
    with pytest.raises(FormatError, match="not in the order of its ids"):
        Tokenizer(other_order).to_tiktoken(path)
    unreachable = BPEModel(tokens=(*tokens, b"xyz"), merges=((a, b), (b, c)), merge_results=(256, 257))
    with pytest.raises(FormatError, match="1 of its tokens would appear that never do"):
        Tokenizer(unreachable).to_tiktoken(path)
    with pytest.raises(FormatError, match="all 256 bytes"):
        Tokenizer(BPEModel(tokens=(b"a", b"b", b"ab"), merges=((0, 1),), merge_results=(2,))).to_tiktoken(path)
    assert not path.exists()


def test_characters_have_no_ranks(make, path):
    with pytest.raises(FormatError, match="character"):
        make("character", 60, ()).to_tiktoken(path)


def test_a_token_that_is_made_by_way_of_a_higher_rank_needs_all_splits():
    """`abc` (256) comes before its part `ab` (257): merging by bytes makes it, the implied merges alone would not."""
    ranks = BPEModel(tokens=(*ALL_BYTES, b"abc", b"ab", b"xyz"), rank_rule="bytes", whole_piece=True, pattern="none")
    assert Encoder(ranks).encode("abcd") == [256, ord("d")]
    assert [(merged, left) for left, _, merged in merge_list(ranks)] == [(256, 257), (257, ord("a"))]
    as_merges = Tokenizer.from_json(Tokenizer(ranks).to_json())
    assert as_merges.encode("abcd") == [256, ord("d")]
    assert as_merges == Tokenizer(ranks)
    assert unreachable_ids(ranks) == [258]
    a, b, _ = b"abc"
    implied_only = BPEModel(
        tokens=ranks.tokens, merges=((a, b),), merge_results=(257,), whole_piece=True, pattern="none"
    )
    assert Encoder(implied_only).encode("abcd") == [257, *b"cd"]
    assert not ranks_suffice(implied_only, {257: (a, b)})
    assert Tokenizer(implied_only) != Tokenizer(ranks)


@st.composite
def rank_files(draw):
    words = st.text("abc", min_size=2, max_size=5).map(str.encode)
    learned = draw(st.lists(words, max_size=10, unique=True))
    return BPEModel(tokens=(*ALL_BYTES, *learned), rank_rule="bytes", whole_piece=True, pattern="none")


@settings(max_examples=300, deadline=None)
@given(rank_files(), st.lists(st.text("abc", max_size=12), max_size=8))
def test_any_ranks_written_as_merges_give_the_same_ids_and_the_same_fingerprint(ranks, texts):
    tokenizer = Tokenizer(ranks)
    written = Tokenizer.from_json(tokenizer.to_json())
    for text in texts:
        assert written.encode(text) == tokenizer.encode(text)
    assert written.fingerprint == tokenizer.fingerprint


@settings(max_examples=200, deadline=None)
@given(rank_files(), st.data())
def test_equal_fingerprints_mean_equal_ids(ranks, data):
    """A change of the merge list, of the order or of the whole-piece rule that keeps the fingerprint keeps the ids."""
    document = json.loads(Tokenizer(ranks).to_json())
    del document["model"]["minigpt_tok"]
    merges = document["model"]["merges"]
    change = data.draw(st.sampled_from(["none", "drop", "swap", "whole"]))
    if change == "drop" and merges:
        del merges[data.draw(st.integers(0, len(merges) - 1))]
    if change == "swap" and len(merges) > 1:
        first, second = (data.draw(st.integers(0, len(merges) - 1)) for _ in "12")
        merges[first], merges[second] = merges[second], merges[first]
    if change == "whole":
        document["model"]["ignore_merges"] = False
    other = Tokenizer.from_json(json.dumps(document))
    if other.fingerprint == Tokenizer(ranks).fingerprint:
        for text in data.draw(st.lists(st.text("abc", max_size=12), max_size=6)):
            assert other.encode(text) == Tokenizer(ranks).encode(text)
