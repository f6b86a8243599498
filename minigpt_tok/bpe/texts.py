"""`Texts`: many texts as one object, so that to hand them on, hash them or encode them costs no Python for each."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np


class Texts(Sequence[bytes]):
    """A sequence of texts in UTF-8 that lie one after another in memory.

    Attributes:
        joined: all of them; bytes, or a view into others'.
        sizes: int64 `(n_texts,)`, of each in bytes.
        are_utf8: whether that has been seen already of each text by itself, and need not be looked at again.
    """

    def __init__(self, joined: bytes | memoryview, sizes: np.ndarray, *, are_utf8: bool = False) -> None:
        self.joined = joined
        self.sizes = sizes
        self.are_utf8 = are_utf8

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> "Texts":
        """Texts that may lie apart."""
        if isinstance(texts, Texts):
            return texts
        return cls(b"".join(texts), np.fromiter(map(len, texts), np.int64, len(texts)))

    @classmethod
    def together(cls, parts: Sequence["Texts"]) -> "Texts":
        """The texts of all parts."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.concatenate([np.empty(0, dtype=np.int64), *(part.sizes for part in parts)])
        return cls(b"".join([part.joined for part in parts]), sizes, are_utf8=all(part.are_utf8 for part in parts))

    @property
    def n_bytes(self) -> int:
        """Of all texts."""
        return len(self.joined)

    @property
    def little_endian_sizes(self) -> np.ndarray:
        """The sizes as they are stored and hashed."""
        return self.sizes.astype("<i8", copy=False)

    @cached_property
    def ends(self) -> np.ndarray:
        """int64 `(n_texts,)`: where each text ends in `joined`."""
        return np.cumsum(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> "Texts": ...
    def __getitem__(self, at: int | slice) -> "bytes | Texts":
        """A text, or neighbouring texts without copying them."""
        if isinstance(at, slice):
            first, last, step = at.indices(len(self))
            if step != 1:
                raise ValueError("neighbouring texts only")
            view = memoryview(self.joined)[self._end(first) : self._end(max(first, last))]
            return Texts(view, self.sizes[first:last], are_utf8=self.are_utf8)
        if not -len(self) <= at < len(self):
            raise IndexError(f"text {at} of {len(self)}")
        at %= len(self)
        return bytes(self.joined[self._end(at) : self._end(at + 1)])

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends.tolist():
            yield bytes(self.joined[start:end])
            start = end

    def chosen(self, mask: np.ndarray) -> "Texts":
        """The texts for which `mask`, bool `(n_texts,)`, is true."""
        if mask.all():
            return self
        bounds = np.flatnonzero(np.diff(mask, prepend=False, append=False))  # begin and end of each run, in turn
        view = memoryview(self.joined)
        runs = [view[self._end(first) : self._end(last)] for first, last in bounds.reshape(-1, 2).tolist()]
        return Texts(b"".join(runs), self.sizes[mask], are_utf8=self.are_utf8)

    def _end(self, count: int) -> int:
        """Where the first `count` texts end."""
        return int(self.ends[count - 1]) if count else 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled without what is beside a view, and without what the other side has not seen itself."""
        return Texts, (bytes(self.joined), self.sizes)


def grouped(texts: Iterable[bytes], n_bytes: int) -> Iterator[Texts]:
    """The same texts, as many together as make up `n_bytes`."""
    group: list[bytes] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= n_bytes:
            yield Texts.of(group)
            group, size = [], 0
    if group:
        yield Texts.of(group)
