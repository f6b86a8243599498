"""The core's decoder against the readable one: lists and arrays of every kind, ids that are none, every way of errors."""

import random

import numpy as np
import pytest

from minigpt_tok.bpe.decoder import Decoder
from minigpt_tok.bpe.model import ALL_BYTES, AddedToken, BPEModel
from minigpt_tok.errors import TokenizerError
from minigpt_tok.tokenizer import Tokenizer

INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")


@pytest.fixture(scope="module")
def tokens():
    """Raw bytes of every length about those that the core copies at a time, and holes."""
    rng = random.Random(4)
    longer = [bytes(rng.choices(range(256), k=length)) for length in (2, 3, 7, 15, 16, 17, 31, 32, 33, 100, 5000)]
    return [*ALL_BYTES, *longer, None, "日本".encode(), "é".encode(), None, b"", "\U0001f600".encode() * 5]


@pytest.fixture
def both(core, tokens):
    return core.Decoder(list(tokens)), Decoder(tokens)


def present(tokens, most=None):
    return [id for id, token in enumerate(tokens[:most]) if token is not None]


def test_lists_and_arrays_of_every_kind(both, tokens):
    fast, reference = both
    rng = random.Random(1)
    for length in (0, 1, 2, 16, 63, 64, 65, 66, 200, 5000):
        ids = rng.choices(present(tokens), k=length)
        expected = reference.decode_bytes(ids)
        assert isinstance(expected, bytes)
        assert fast.decode_bytes(ids) == expected
        assert fast.decode(ids, "replace") == expected.decode("utf-8", "replace")
        for kind in INTEGERS[1:4] + INTEGERS[5:]:
            for order in "<>":
                array = np.array(ids, dtype=order + kind)
                assert fast.decode_bytes(array) == expected
                unaligned = np.frombuffer(b"\0" + array.tobytes(), dtype=order + kind, offset=1)
                assert fast.decode_bytes(unaligned) == expected
                assert fast.decode_bytes(np.repeat(array, 3)[::3]) == expected
                assert fast.decode_bytes(array[::-1]) == reference.decode_bytes(ids[::-1])
    small = rng.choices(present(tokens, 128), k=300)
    for kind in INTEGERS:
        assert fast.decode_bytes(np.array(small, dtype=kind)) == reference.decode_bytes(small)


def test_short_tokens_then_long_ones(both, tokens):
    """Room is guessed from the tokens so far: wrongly here."""
    fast, reference = both
    longest = max(present(tokens), key=lambda id: len(tokens[id]))
    for ids in (
        [65] * 1000 + [longest] * 100,
        [longest] * 3 + [65] * 10_000,
        [len(tokens) - 2] * 5000 + [longest] * 30,
        [longest],
        [65] * 64 + [longest] * 2,
    ):
        assert fast.decode_bytes(ids) == reference.decode_bytes(ids)
        assert fast.decode_bytes(np.array(ids)) == reference.decode_bytes(ids)


def test_ids_that_are_none_have_their_place(both, tokens):
    fast, reference = both
    hole = tokens.index(None)
    n = len(tokens)
    for bad in (
        n,
        n + 1,
        -1,
        -n,
        hole,
        1 << 31,
        1 << 32,
        (1 << 32) + 65,
        (1 << 63) - 1,
        -(1 << 63),
        1 << 63,
        1 << 64,
        -(1 << 70),
    ):
        for before in ([], [65] * 3, [65] * 500):
            ids = [*before, bad, 66, bad]
            assert reference.decode_bytes(ids) == len(before)
            assert fast.decode_bytes(ids) == len(before)
            assert fast.decode(ids, "strict") == len(before)
            for kind in ("u2", "u4", "u8", "i2", "i4", "i8"):
                if np.iinfo(kind).min <= bad <= np.iinfo(kind).max:
                    for order in "<>":
                        array = np.array(ids, dtype=order + kind)
                        assert fast.decode_bytes(array) == reference.decode_bytes(array) == len(before)


def test_what_is_no_integer_has_its_place(both):
    fast, reference = both
    for bad in ("x", 2.0, None, b"a", [1], 1j, np.float64(1)):
        for before in ([], [65, 66]):
            assert fast.decode_bytes([*before, bad, 65]) == reference.decode_bytes([*before, bad, 65]) == len(before)


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def test_whatever_can_be_an_index(both):
    fast, reference = both
    ids = [65, True, np.int64(66), np.uint16(67), Index(68), Index(69)]
    assert fast.decode_bytes(ids) == reference.decode_bytes(ids) == b"A\1BCDE"


def test_an_index_that_fails_fails(both):
    for decoder in both:
        with pytest.raises(ZeroDivisionError):
            decoder.decode_bytes([65, Index(ZeroDivisionError())])


@pytest.mark.parametrize(
    "change", [lambda ids: ids.clear(), lambda ids: ids.pop(), lambda ids: ids.extend([65] * 9000)]
)
def test_a_list_that_changes_while_it_is_read(core, tokens, change):
    class Changing(Index):
        def __index__(self):
            change(self.value)
            return 65

    ids = [65] * 1000
    ids[5] = Changing(ids)
    with pytest.raises(RuntimeError, match="changed"):
        core.Decoder(list(tokens)).decode_bytes(ids)


def test_errors_of_utf8(both):
    fast, reference = both
    broken = list("日本".encode()[1:] + b"ab\xff\xc3" + "é".encode())
    for errors in ("replace", "ignore", "backslashreplace", "surrogateescape"):
        assert fast.decode(broken, errors) == reference.decode(broken, errors) == bytes(broken).decode("utf-8", errors)
    for decoder in both:
        with pytest.raises(UnicodeDecodeError):
            decoder.decode(broken, "strict")
        with pytest.raises(LookupError):
            decoder.decode(broken, "no such way")


def test_no_tokens_at_all(core):
    decoder = core.Decoder([])
    assert decoder.decode_bytes([]) == b""
    assert decoder.decode([], "strict") == ""
    assert decoder.decode_bytes([0]) == 0
    assert decoder.decode_bytes(np.array([1, 0], dtype=np.uint16)) == 0


def test_a_tokenizer_says_what_is_wrong(core, tokens):
    added = (AddedToken(content="<s>", id=257),)
    tokenizer = Tokenizer(BPEModel(tokens=(*ALL_BYTES, None, None), added_tokens=added, pattern="none"))
    for wrap in (list, np.array, lambda ids: np.array(ids, dtype=">i8")):
        assert tokenizer.decode(wrap([65, 257, 66])) == "A<s>B"
        assert tokenizer.decode_bytes(wrap([65, 257, 66]), skip_special=True) == b"AB"
        with pytest.raises(TokenizerError, match="id 258 is outside the vocabulary of 258 ids"):
            tokenizer.decode(wrap([65, 258]))
        with pytest.raises(TokenizerError, match="id 256 is a hole"):
            tokenizer.decode_bytes(wrap([65, 256]))
        with pytest.raises(TokenizerError, match="id -1 is outside"):
            tokenizer.decode(wrap([65, -1]))
    for bad in ("x", 2.0, None):
        with pytest.raises(TokenizerError, match="not all integers"):
            tokenizer.decode([65, bad])
        with pytest.raises(TokenizerError, match="not all integers"):
            tokenizer.decode([bad, 65])


def test_round_trips(core, models, hard):
    tokenizer = Tokenizer(models.trained("gpt2"))
    stream = tokenizer.stream_decoder()
    rng = random.Random(2)
    for length in (1, 10, 100, 1000, 20_000):
        text = hard.random(rng, length)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode_to_numpy(text)) == text
        assert "".join(map(stream.feed, ids)) + stream.finish() == text
