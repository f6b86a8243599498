"""Pre-tokenizers of several steps: pieces and offsets as tokenizers gives them."""

import pytest
from tokenizers import Regex, pre_tokenizers

from minigpt_tok.bpe.pipeline import (
    BEHAVIORS,
    ByteLevel,
    CharDelimiterSplit,
    Digits,
    FixedLength,
    Metaspace,
    Pipeline,
    Punctuation,
    Split,
    Whitespace,
    WhitespaceSplit,
)

THEIR_BEHAVIORS = dict(
    zip(BEHAVIORS, ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"), strict=True)
)


def splits():
    for ours, theirs in THEIR_BEHAVIORS.items():
        for invert in (False, True):
            for source in (r"\s+|[.,!]|a", r"x*", r"\p{L}+"):
                yield pre_tokenizers.Split(Regex(source), theirs, invert), (Split(source, True, ours, invert),)
            yield pre_tokenizers.Split("a", theirs, invert), (Split("a", False, ours, invert),)
        yield pre_tokenizers.Punctuation(theirs), (Punctuation(ours),)


def others():
    yield pre_tokenizers.Digits(True), (Digits(True),)
    yield pre_tokenizers.Digits(False), (Digits(False),)
    yield pre_tokenizers.Whitespace(), (Whitespace(),)
    yield pre_tokenizers.WhitespaceSplit(), (WhitespaceSplit(),)
    yield pre_tokenizers.CharDelimiterSplit("a"), (CharDelimiterSplit("a"),)
    yield pre_tokenizers.FixedLength(3), (FixedLength(3),)
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            yield pre_tokenizers.Metaspace("▁", scheme, split), (Metaspace("▁", scheme, split),)
    for prefix in (True, False):
        for cuts in (True, False):
            yield pre_tokenizers.ByteLevel(prefix, use_regex=cuts), (ByteLevel(prefix, cuts),)
    yield (
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(False),
                pre_tokenizers.Digits(False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
        (
            Punctuation("Contiguous"),
            ByteLevel(False, True),
            Digits(False),
            Split("[0-9][0-9][0-9]", True, "Isolated", False),
        ),
    )
    twice = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(True), pre_tokenizers.ByteLevel(True)]
    yield pre_tokenizers.Sequence(twice), (WhitespaceSplit(), ByteLevel(True, True), ByteLevel(True, True))
    first = [pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace("_", "first"), pre_tokenizers.ByteLevel(False)]
    yield (
        pre_tokenizers.Sequence(first),
        (Punctuation("Isolated"), Metaspace("_", "first", True), ByteLevel(False, True)),
    )


@pytest.mark.parametrize(("theirs", "steps"), [*splits(), *others()], ids=lambda value: "")
def test_pieces_and_spans_are_theirs(theirs, steps, unlike_texts):
    pipeline = Pipeline(steps)
    for text in unlike_texts(len(repr(steps)), 120):
        places = [(place, place + 1) for place in range(len(text))]
        pieces = pipeline.pieces_with_spans(text, places, as_text=False)
        expected = theirs.pre_tokenize_str(text)
        assert [(piece, (spans[0][0], spans[-1][1])) for piece, spans in pieces] == expected, ascii(text)
        assert all(len(piece) == len(spans) for piece, spans in pieces)
        if not pipeline.needs_spans:
            assert pipeline.pieces(text, as_text=False) == [piece for piece, _ in expected]


def test_the_last_spelling_of_bytes_can_be_left_out():
    pipeline = Pipeline((Digits(True), ByteLevel(True, True)))
    assert pipeline.gives_text
    assert pipeline.pieces("é1 x", as_text=True) == [" é", " 1", " x"]
    assert pipeline.pieces("é1 x", as_text=False) == ["ĠÃ©", "Ġ1", "Ġx"]
    assert not Pipeline((ByteLevel(False, True), Digits(True))).gives_text


def test_the_empty_text_has_no_pieces():
    assert Pipeline((ByteLevel(True, True),)).pieces("", as_text=False) == []


def test_it_says_what_it_is_in_words():
    assert str(Pipeline((Digits(True), ByteLevel(False, True)))) == "Digits(True) > ByteLevel(False, True)"
