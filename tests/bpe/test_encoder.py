"""Encoding by rank: against brute force, with caches and cuts that change nothing, from streams, and from hard inputs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.encoder import CACHED_PIECES, LONG_PIECE, Encoder
from minigpt_tok.bpe.fast import FastEncoder
from minigpt_tok.bpe.model import ALL_BYTES, AddedToken, BPEModel
from minigpt_tok.bpe.native import core
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.stretches import STRETCH, stretches
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.errors import TokenizerError

# The readable Python, and the core where it is there: whatever holds for one holds for the other.
KINDS = [Encoder] if core is None else [Encoder, FastEncoder]
BOTH = pytest.mark.parametrize("kind", KINDS)
ALPHABET = "ab c\n'1é日"


def brute_force(model, piece):
    """Look for the lowest rank over again after every merge."""
    ids = [model.base_ids[bytes([byte])] for byte in piece if bytes([byte]) in model.base_ids]
    ranks = {
        pair: (rank, merged) for rank, (pair, merged) in enumerate(zip(model.merges, model.merge_results, strict=True))
    }
    by_bytes = {} if model.rank_rule == "pair" else model.id_of
    while True:
        candidates = []
        for place, pair in enumerate(pairwise(ids)):
            if model.rank_rule == "pair" and pair in ranks:
                candidates.append((ranks[pair][0], place, ranks[pair][1]))
            joined = model.tokens[pair[0]] + model.tokens[pair[1]]
            if joined in by_bytes:
                candidates.append((by_bytes[joined], place, by_bytes[joined]))
        if not candidates:
            return ids
        _, place, merged = min(candidates)
        ids[place : place + 2] = [merged]


@st.composite
def models(draw):
    """Any merges of tokens made before, in an order that training would hardly give; some base bytes missing."""
    letters = draw(st.permutations([b"a", b"b", b"c", b" "]))
    missing = draw(st.sampled_from([b"", b"x", b"cx"]))
    tokens = [*letters, *(byte for byte in ALL_BYTES if byte not in letters)]
    tokens = [token for token in tokens if token not in missing or not missing]
    pairs, results = [], []
    for _ in range(draw(st.integers(0, 12))):
        near = st.sampled_from([*range(3), *range(len(letters) + 252 - len(missing), len(tokens))])
        left, right = draw(near), draw(near)
        joined = tokens[left] + tokens[right]
        if joined not in tokens:
            tokens.append(joined)
        pairs.append((left, right))
        results.append(tokens.index(joined))
    order = draw(st.permutations(range(len(pairs))))
    rule = draw(st.sampled_from(["pair", "bytes"]))
    return BPEModel(
        tokens=tuple(tokens),
        merges=tuple(pairs[n] for n in order) if rule == "pair" else (),
        merge_results=tuple(results[n] for n in order) if rule == "pair" else (),
        rank_rule=rule,
        pattern="none",
    )


@BOTH
@settings(max_examples=400, deadline=None)
@given(model=models(), piece=st.text("abc x", max_size=40))
def test_merging_is_always_the_lowest_rank_and_of_equal_ranks_the_leftmost(kind, model, piece):
    assert kind(model).encode(piece) == brute_force(model, piece.encode())
    assert Encoder(model).merge(piece.encode()) == brute_force(model, piece.encode())


@settings(max_examples=200, deadline=None)
@given(models(), st.lists(st.sampled_from(["a", "b", "ab", "ca", " ", "aa", "x"]), max_size=400).map("".join))
def test_long_pieces_are_cut_only_where_no_merge_can_reach(model, piece):
    encoder = Encoder(model)
    units = piece.encode()
    parts = list(encoder._joints.cut(units)) if units else []
    assert b"".join(parts) == units
    assert [id for part in parts for id in encoder.merge(part)] == encoder.merge(units)


@pytest.fixture(scope="module")
def character_model():
    text = "low lower lowest 日本 日本語 wow ﻿"
    return train_model([text], 30, get_recipe("character"))[0]


@settings(max_examples=200, deadline=None)
@given(st.text("low erst日本語﻿", max_size=400))
def test_long_texts_of_characters_are_cut_only_where_no_merge_can_reach(character_model, text):
    encoder = Encoder(character_model)
    parts = list(encoder._joints.cut(text)) if text else []
    assert "".join(parts) == text
    assert [id for part in parts for id in encoder.merge(part)] == encoder.merge(text)
    assert encoder.encode(text) == encoder.merge(text)


def test_many_distinct_characters_cost_no_table_of_all_pairs():
    """20,000 characters that stand in tokens: a table of all pairs would take 400 MB."""
    characters = [chr(0x4E00 + number) for number in range(20_000)]
    tokens = [c.encode() for c in characters]
    pairs = [(number, number + 1) for number in range(0, len(characters), 2)]
    model = BPEModel(
        unit="character",
        tokens=(*tokens, *(tokens[a] + tokens[b] for a, b in pairs)),
        merges=tuple(pairs),
        merge_results=tuple(range(len(tokens), len(tokens) + len(pairs))),
        pattern="none",
    )
    encoder = Encoder(model)
    text = "".join(characters)
    assert encoder.encode(text) == list(range(20_000, 30_000))
    assert encoder.encode(text[::-1]) == list(range(20_000))[::-1]
    held = sum(value.nbytes for value in vars(encoder._joints).values() if hasattr(value, "nbytes"))
    assert held < 64 << 20


@BOTH
def test_a_pair_that_stands_twice_has_its_last_rank(kind):
    tokens = (*ALL_BYTES, b"bc", b"ab")
    a, b, c = b"abc"
    model = BPEModel(tokens=tokens, merges=((b, c), (a, b), (b, c)), merge_results=(256, 257, 256), pattern="none")
    assert kind(model).encode("abc") == [257, c]


# Texts as streams


@pytest.fixture(scope="module", params=[*sorted(PATTERNS), "none"])
def trained(request):
    text = "the cat's 1234 café\n\n  ab ab ABC aab\r\n日本 \u3000 don't!! " * 5
    recipe = get_recipe("hf", pattern=request.param)
    return train_model([text], 330, recipe, ("<a>", "<a><a>", "ab c"))[0]


FLAGS = st.fixed_dictionaries({name: st.booleans() for name in ("lstrip", "rstrip", "single_word")})


@BOTH
@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(["<a>", "<", "a", "b c", " ", "\n", "  ", "1", "'s", "é", "日", "<a", "><"]), max_size=60
    ),
    cuts=st.lists(st.integers(0, 120), max_size=12),
    flags=st.one_of(st.just({}), FLAGS),
    allowed=st.sampled_from([(), "all", {"<a>"}]),
    data=st.data(),
)
def test_a_stream_has_the_ids_of_the_joined_text(kind, trained, parts, cuts, flags, allowed, data):
    flagged = data.draw(st.sets(st.integers(0, 2)))
    tokens = tuple(
        replace(token, **flags) if number in flagged else token for number, token in enumerate(trained.added_tokens)
    )
    encoder = kind(replace(trained, added_tokens=tokens))
    text = "".join(parts)
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    chunks = [text[start:end] for start, end in pairwise(places)]
    expected = encoder.encode(text, allowed_special=allowed)
    assert list(encoder.encode_iter(chunks, allowed_special=allowed)) == expected
    assert list(encoder.encode_iter(text, allowed_special=allowed)) == expected  # character by character


@BOTH
@settings(max_examples=100, deadline=None)
@given(text=st.text("<a> bé", max_size=60), size=st.integers(1, 7))
def test_a_stream_refuses_where_the_joined_text_does(kind, trained, text, size):
    encoder = kind(trained)
    chunks = [text[start : start + size] for start in range(0, len(text), size)]

    def outcome(encode):
        try:
            return encode()
        except TokenizerError as error:
            return str(error)

    options = {"allowed_special": {"<a><a>"}, "disallowed_special": "all"}
    assert outcome(lambda: list(encoder.encode_iter(chunks, **options))) == outcome(
        lambda: encoder.encode(text, **options)
    )


def words(count):
    for number in range(count):
        yield f"word{number % 97} and, "
        if number % 50 == 49:
            yield "<|endoftext|>"


@BOTH
@pytest.mark.parametrize("allowed", [(), "all"])
def test_a_stream_is_lazy_and_holds_little(kind, allowed):
    model, _ = train_model([" ".join(words(500))], 300, get_recipe("hf"), ("<|endoftext|>", "<|im_start|>"))
    given_out = 0
    held = 0
    most = 0

    def counted():
        nonlocal given_out, held
        for text in words(5_000):
            given_out += len(text)
            held += len(text)
            yield text

    encoder = kind(model)
    for id in encoder.encode_iter(counted(), allowed_special=allowed):
        most = max(most, held)
        token = model.tokens[id]
        held -= len("<|endoftext|>") if token is None else len(token)
    assert given_out > 60_000
    assert held == 0
    assert most < 500


@BOTH
@pytest.mark.parametrize("pattern", ["gpt2", "none"])
def test_a_stream_of_specials_alone_is_not_held_back(kind, pattern):
    model, _ = train_model(["ab"], 257, get_recipe("hf", pattern=pattern), ("<|endoftext|>",))
    stream = kind(model).encode_iter(iter(lambda: "<|endoftext|>", None), allowed_special="all")
    assert [next(stream) for _ in range(100)] == [0] * 100


@BOTH
def test_a_stream_of_something_else_than_text_is_refused(kind):
    model, _ = train_model(["ab"], 256, get_recipe("hf"))
    with pytest.raises(TokenizerError, match="bytes, not str"):
        list(kind(model).encode_iter([b"ab"]))


@BOTH
def test_a_streams_errors_count_from_its_beginning(kind):
    model, _ = train_model(["word and word"], 260, get_recipe("hf"))
    with pytest.raises(TokenizerError, match="at character 2,004"):
        list(kind(model).encode_iter(["word"] + [" and"] * 500 + ["\ud800"]))


# Size


def test_stretches_have_the_pieces_of_the_whole():
    pretokenizer = get_pretokenizer("gpt2")
    text = "It's 1234 words, and more\n\n of them  every time. " * (STRETCH // 40)
    parts = list(stretches(text, pretokenizer))
    assert len(parts) > 1
    assert [piece for part in parts for piece in pretokenizer.pieces(part)] == pretokenizer.pieces(text)


@BOTH
def test_a_million_equal_characters_and_a_megabyte_without_white_space(kind):
    """Sizes only; were anything quadratic, this would take days."""
    model, _ = train_model(["a" * 64 + " " + "abcab" * 40], 300, get_recipe("hf"))
    encoder = kind(model)
    run = encoder.encode("a" * 1_000_000)
    assert sum(len(model.tokens[id]) for id in run) == 1_000_000
    assert len(run) < 1_000_000 / 16
    mixed = "abcabaacb" * (1_000_000 // 9)
    ids = encoder.encode(mixed)
    assert b"".join(model.tokens[id] for id in ids) == mixed.encode()
    part = mixed[:100_000]
    assert list(encoder.encode_iter(part[n : n + 100] for n in range(0, len(part), 100))) == encoder.encode(part)


def test_the_cache_is_bounded_and_changes_nothing():
    model, _ = train_model(["abc abc ab"], 260, get_recipe("hf"))
    encoder = Encoder(model)
    text = " ".join(f"a{number:x}b" for number in range(CACHED_PIECES // 2 + 1000))
    once, again = encoder.encode(text), encoder.encode(text)
    assert once == again
    assert len(encoder._pieces) <= CACHED_PIECES
    long = "x" * (LONG_PIECE + 1)
    encoder.encode(long)
    assert long not in encoder._pieces


# What cannot be encoded, and what is dropped


@BOTH
def test_a_lone_surrogate_is_named_with_its_place(kind):
    model, _ = train_model(["ab"], 256, get_recipe("hf"))
    encoder = kind(model)
    for encode in (encoder.encode, encoder.encode_with_offsets, lambda text: list(encoder.encode_iter([text]))):
        with pytest.raises(TokenizerError, match=r"U\+DC80, at character 3"):
            encode("ab \udc80")


@BOTH
def test_unknown_characters_are_listed_sorted(kind):
    model, _ = train_model(["low lower"], 8, get_recipe("character"))
    encoder = kind(model)
    for encode in (encoder.encode, encoder.encode_with_offsets, lambda text: list(encoder.encode_iter([text]))):
        with pytest.raises(TokenizerError, match=r"2 characters .*: 'A', 'z'\."):
            encode("low zA zA")


@BOTH
def test_bytes_that_a_vocabulary_lacks_are_dropped_and_their_neighbours_merge(kind):
    model = BPEModel(tokens=(b"a", b"b", b"ab"), merges=((0, 1),), merge_results=(2,), pattern="none")
    encoder = kind(model)
    assert encoder.encode("axb") == [2]
    assert encoder.encode_with_offsets("axb") == ([2], [(0, 3)])
    assert encoder.encode("x" * 300) == []
    assert encoder.encode("ab" + "x" * 300 + "ab") == [2, 2]
    assert encoder.encode("a" + "x" * 300 + "b") == [2]


# Offsets


@BOTH
@settings(max_examples=200, deadline=None)
@given(text=st.text(ALPHABET + "<a>", max_size=40))
def test_offsets_cover_the_text_in_order(kind, trained, text):
    encoder = kind(trained)
    ids, spans = encoder.encode_with_offsets(text, allowed_special="all")
    assert ids == encoder.encode(text, allowed_special="all")
    assert len(spans) == len(ids)
    reached = 0
    for id, (start, end) in zip(ids, spans, strict=True):
        assert reached - 1 <= start <= reached <= end <= len(text)
        token = trained.tokens[id]
        shown = text[start:end].encode()
        assert token is None or token in shown
        reached = max(reached, end)
    assert reached == len(text)


@BOTH
def test_tokens_inside_a_character_have_the_whole_characters_span(kind):
    model, _ = train_model(["x"], 256, get_recipe("hf"))
    ids, spans = kind(model).encode_with_offsets("a日b")
    assert spans == [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]
    assert len(ids) == 5


@BOTH
def test_added_tokens_have_the_span_that_they_take_in(kind):
    tokens = (AddedToken(content="<a>", id=256, lstrip=True),)
    model = BPEModel(tokens=(*ALL_BYTES, None), pattern="none", added_tokens=tokens)
    assert kind(model).encode_with_offsets("x  <a>y", allowed_special="all")[1] == [(0, 1), (1, 6), (6, 7)]
