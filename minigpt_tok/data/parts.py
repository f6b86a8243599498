"""What a source leads to before it is divided into splits: readers, and how they are to read."""

from collections.abc import Iterable
from typing import NamedTuple

from minigpt_tok.data.documents import Reader


class Options(NamedTuple):
    """How to read; see `corpora.open_corpus`."""

    separator: str | None
    text_column: str | None
    errors: str


class Part(NamedTuple):
    """Readers by split (`None`: not divided yet), with the sizes of what they read in bytes, where known."""

    name: str
    readers: dict[str | None, list[Reader]]
    sizes: dict[str | None, int | None]
    at_hand: bool = False  # chosen by the caller text by text, so not to be divided unasked


def total(sizes: Iterable[int | None]) -> int | None:
    """The sum, or `None` where one is not known."""
    known = list(sizes)
    return sum(size for size in known if size is not None) if None not in known else None
