"""Leakage: documents of one split whose exact text also stands in another, counted before anything is trained."""

import dataclasses
import hashlib
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from minigpt_tok.data.corpora import Corpus
from minigpt_tok.data.documents import Documents


@dataclasses.dataclass(frozen=True)
class Overlap:
    """Documents that occur elsewhere too, each copy counted; `n_bytes` are their UTF-8 bytes."""

    documents: int
    n_bytes: int


@dataclasses.dataclass(frozen=True)
class Leakage:
    """Exact duplicates in a corpus.

    Attributes:
        between: (earlier split, later split) → the documents of the later one that the earlier one has too. The order
            is train, validation, test, so the first is what a model has seen.
        within: split → its documents that repeat an earlier one of the same split.
    """

    between: Mapping[tuple[str, str], Overlap]
    within: Mapping[str, Overlap]

    @property
    def found(self) -> bool:
        """Whether any document stands in two splits."""
        return any(overlap.documents for overlap in self.between.values())


@dataclasses.dataclass(frozen=True)
class _Digests:
    keys: np.ndarray  # (n_documents,), 16 bytes each
    sizes: np.ndarray  # int64 (n_documents,), in bytes


def check_leakage(corpus: Corpus) -> Leakage:
    """Count the exact duplicates between the splits of a corpus, and inside each. Reads it once per split.

    Memory: 24 bytes per document, whatever its length.
    """
    digests = {split: _digests(documents) for split, documents in corpus.splits.items()}
    between = {}
    for earlier, later in combinations(digests, 2):
        copies = np.isin(digests[later].keys, digests[earlier].keys)
        between[earlier, later] = Overlap(int(copies.sum()), int(digests[later].sizes[copies].sum()))
    return Leakage(between, {split: _repeats(own) for split, own in digests.items()})


def _digests(documents: Documents) -> _Digests:
    keys = bytearray()
    sizes = []
    for raw in documents.in_utf8():
        # NumPy drops zero bytes at the end of strings, so the last is one that is none.
        keys += hashlib.blake2b(raw, digest_size=15).digest() + b"\1"
        sizes.append(len(raw))
    return _Digests(np.frombuffer(keys, dtype="S16"), np.array(sizes, dtype=np.int64))


def _repeats(own: _Digests) -> Overlap:
    _, first = np.unique(own.keys, return_index=True)
    repeated = np.ones(len(own.keys), dtype=bool)
    repeated[first] = False
    return Overlap(int(repeated.sum()), int(own.sizes[repeated].sum()))
