"""Where a file of documents is cut: at the occurrences of a separator, a newline on each side of it included.

`cut_at` says the rule, a document at a time; `cut_joined` gives the same documents by the core, many at a time.
"""

from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from minigpt_tok.bpe.fast import is_utf8
from minigpt_tok.bpe.native import core
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data.documents import ReadCounts

CHUNK = 1 << 20  # bytes that are read at a time
_LF, _CR = b"\n\r"


class Cut(NamedTuple):
    """Neighbouring documents of a file."""

    starts: np.ndarray  # int64 (n_documents,), where they begin in the file
    texts: Texts  # their bytes, UTF-8 or not


def cut_joined(
    file: IO[bytes], token: bytes, counts: ReadCounts, *, whole_line: bool = False, carriage_returns: bool = True
) -> Iterator[Cut]:
    """As `cut_at`."""
    if core is None:
        for start, raw in cut_at(file, token, counts, whole_line=whole_line, carriage_returns=carriage_returns):
            yield alone(start, raw)
        return
    cutter = core.Cutter(token, whole_line, carriage_returns)
    before = counts.separators, counts.separator_bytes
    chunk = memoryview(bytearray(CHUNK))
    count = CHUNK
    while count:
        count = file.readinto(chunk)  # type: ignore[attr-defined]
        joined, sizes, starts, are_utf8 = cutter.cut(chunk[:count])
        counts.separators = before[0] + cutter.separators
        counts.separator_bytes = before[1] + cutter.separator_bytes
        if len(sizes):
            yield Cut(starts, Texts(joined, sizes, are_utf8=are_utf8))


def alone(start: int, raw: bytes) -> Cut:
    """One document that begins at `start`."""
    return Cut(np.array([start]), Texts(raw, np.array([len(raw)]), are_utf8=is_utf8(raw)))


def cut_at(
    file: IO[bytes], token: bytes, counts: ReadCounts, *, whole_line: bool = False, carriage_returns: bool = True
) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of what lies between the occurrences of `token`; nothing after one that ends the file.

    Args:
        file: opened for binary reading, at its beginning.
        token: what separates; one newline on each side goes with it, unless it has its own there.
        counts: gets the number of separators and their bytes.
        whole_line: only an occurrence that is a line of its own separates.
        carriage_returns: `\\r\\n` is a newline too.
    """
    before = not token.startswith(b"\n")
    after = not token.endswith(b"\n")
    buffer = bytearray()
    offset = 0  # of the buffer, in the file
    start = 0  # of the document, in the buffer
    search = 0  # up to here no further occurrence begins
    ended = False
    while True:
        found = buffer.find(token, search)
        # What follows an occurrence decides about it, so two bytes must be there, or the end of the file.
        if not ended and (found < 0 or found + len(token) + 2 > len(buffer)):
            search = max(start, found if found >= 0 else len(buffer) - len(token) + 1)
            del buffer[:start]
            offset += start
            search -= start
            start = 0
            chunk = file.read(CHUNK)
            ended = not chunk
            buffer += chunk
            continue
        if found < 0:
            break
        first, last = found, found + len(token)
        if before and first > start and buffer[first - 1] == _LF:
            first -= 1
            if carriage_returns and first > start and buffer[first - 1] == _CR:
                first -= 1
        if after and last < len(buffer):
            if buffer[last] == _LF:
                last += 1
            elif carriage_returns and buffer[last : last + 2] == b"\r\n":
                last += 2
        begins_line = first < found or found == start
        ends_line = last > found + len(token) or last == len(buffer)
        search = found + len(token)
        if whole_line and not (begins_line and ends_line):
            continue
        yield offset + start, bytes(buffer[start:first])
        counts.separators += 1
        counts.separator_bytes += last - first
        start = search = last
    if start < len(buffer):
        yield offset + start, bytes(buffer[start:])
