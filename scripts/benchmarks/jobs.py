"""The jobs that tokenizers are measured at: what each takes, and what must come out."""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        name: by which adapters offer it.
        title: for tables.
        takes: `text`, `documents`, `id list` or `id array`.
        gives: `ids`, `count` or `text`.
    """

    name: str
    title: str
    takes: str
    gives: str


JOBS = {
    job.name: job
    for job in (
        Job("array", "text to an array of ids", "text", "ids"),
        Job("list", "text to a list of ids", "text", "ids"),
        Job("documents_to_arrays", "documents to arrays of ids", "documents", "ids"),
        Job("documents_to_lists", "documents to lists of ids", "documents", "ids"),
        Job("count", "count of ids only", "text", "count"),
        Job("decode_list", "list of ids to a string", "id list", "text"),
        Job("decode_array", "array of ids to a string", "id array", "text"),
    )
}


def flat_ids(result: Any) -> np.ndarray:
    """All ids that a tokenizer gave, in a row: uint32 `(n_tokens,)`, from whatever it gives them in.

    Bytes are read as 32-bit ids; a list may hold ids, or lists of ids.
    """
    if isinstance(result, (bytes, bytearray, memoryview)):
        return np.frombuffer(result, dtype=np.uint32)
    if isinstance(result, np.ndarray):
        return result.astype(np.uint32, copy=False)
    if result and isinstance(result[0], (list, np.ndarray)):
        return np.fromiter(chain.from_iterable(result), dtype=np.uint32)
    return np.array(result, dtype=np.uint32)


def documents_of(text: str, at_least: int = 2000) -> list[str]:
    """A text cut at blank lines, and the parts joined to at least so many characters each. Nothing is lost."""
    documents = []
    start = 0
    while (end := text.find("\n\n", start + at_least - 2)) >= 0:
        documents.append(text[start : end + 2])
        start = end + 2
    if start < len(text):
        documents.append(text[start:])
    return documents


def first_difference(expected: np.ndarray, found: np.ndarray) -> str | None:
    """Where two arrays of ids part, in words; `None` where they do not."""
    both = min(len(expected), len(found))
    differing = np.flatnonzero(expected[:both] != found[:both])
    if len(differing):
        at = int(differing[0])
        return f"id {at:,} is {found[at]}, not {expected[at]}"
    if len(expected) != len(found):
        return f"{len(found):,} ids, not {len(expected):,}"
    return None
