"""Cutting files into documents: `cut_at` by what it must keep, and `cut_joined`, by the core, by `cut_at`."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigpt_tok.bpe.native import core
from minigpt_tok.data import cutting
from minigpt_tok.data.cutting import cut_at, cut_joined
from minigpt_tok.data.documents import ReadCounts

EOT = b"<|endoftext|>"
FILES = st.lists(
    st.sampled_from([b"a", b"\n", b"\r\n", b"\r", EOT, b"<|", b"|>", b"\xc3\xa9", b"\xc3", b"\xa9", b"end"]),
    max_size=20,
).map(b"".join)


class Slow(io.BytesIO):
    """Gives few bytes at a time, as an archive may."""

    def __init__(self, raw, most):
        super().__init__(raw)
        self._most = most

    def read(self, size=-1, /):
        return super().read(min(size, self._most))

    def readinto(self, buffer, /):
        return super().readinto(memoryview(buffer)[: self._most])


def cut(file, token=EOT, **options):
    counts = ReadCounts()
    return list(cut_at(file, token, counts, **options)), counts


def joined(file, token=EOT, **options):
    """The same by `cut_joined`, and whether it found all of each part to be UTF-8."""
    counts = ReadCounts()
    documents = []
    for starts, texts in cut_joined(file, token, counts, **options):
        assert len(starts) == len(texts) > 0
        documents += zip(starts.tolist(), texts, strict=True)
        assert texts.are_utf8 == all(is_utf8(text) for text in texts)
    return documents, counts


def is_utf8(raw):
    return raw.decode("utf-8", "ignore").encode("utf-8") == raw


@given(FILES, st.booleans(), st.integers(1, 9))
def test_where_reads_end_makes_no_difference(raw, whole_line, chunk):
    pieces, counts = cut(io.BytesIO(raw), whole_line=whole_line)
    assert cut(Slow(raw, chunk), whole_line=whole_line) == (pieces, counts)
    assert sum(len(piece) for _, piece in pieces) + counts.separator_bytes == len(raw)
    assert all(raw[start : start + len(piece)] == piece for start, piece in pieces)
    if not whole_line:
        assert not any(EOT in piece for _, piece in pieces)


@pytest.mark.parametrize("pure", [False, True])
@given(
    raw=FILES,
    token=st.sampled_from(["<|endoftext|>", "\n", "\n\n", "a", "end\n", "\nend", "\r\n"]),
    whole_line=st.booleans(),
    carriage_returns=st.booleans(),
    chunk=st.integers(1, 9),
)
def test_many_at_a_time_are_the_same_documents(pure, raw, token, whole_line, carriage_returns, chunk):
    if core is None and not pure:
        pytest.skip("there is no core")
    options = {"whole_line": whole_line, "carriage_returns": carriage_returns}
    with pytest.MonkeyPatch.context() as patch:
        if pure:
            patch.setattr(cutting, "core", None)
        expected = cut(io.BytesIO(raw), token.encode(), **options)
        assert joined(io.BytesIO(raw), token.encode(), **options) == expected
        assert joined(Slow(raw, chunk), token.encode(), **options) == expected


def test_a_character_that_is_cut_by_a_separator_is_none():
    documents, _ = joined(io.BytesIO(b"\xc3<|endoftext|>\xa9"))
    assert documents == [(0, b"\xc3"), (14, b"\xa9")]


def test_an_empty_separator_does_not_reach_the_core():
    if core is None:
        pytest.skip("there is no core")
    with pytest.raises(ValueError, match="empty"):
        core.Cutter("", False, False)
