"""Near duplicates between splits: documents of which another split has almost the same, by MinHash (datasketch).

Two documents are near if their sets of five successive words are alike: the share of common ones among all, Jaccard's,
is estimated from 128 hash values, to about ±0.09. Case, punctuation at the ends of words and white space do not count.
So an article that was updated, or a page with another date on it, is found; a paraphrase is not. Exact duplicates are
near, too. Documents of less than five words are compared as a whole.

Memory: about 3 kB for each document of validation and test, whatever its length; those of train pass by. Time: about 5
MB/s, since every word goes through Python.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from minigpt_tok.data.corpora import Corpus
from minigpt_tok.data.leakage import Overlap
from minigpt_tok.errors import CorpusError, MissingDependencyError

WORDS_TOGETHER = 5
_HASHES = 128
_SEED = 1
_EXAMPLES = 5  # of each pair of splits
_WORD = re.compile(r"\w+")


@dataclasses.dataclass(frozen=True)
class NearDuplicates:
    """What `find_near_duplicates` found.

    Attributes:
        threshold: from which share of common fives on documents count as near.
        between: (earlier split, later split) → the documents of the later one to which the earlier has a near one.
        examples: the same keys → up to five (beginning of the later document, beginning of a near one, estimated share).
    """

    threshold: float
    between: Mapping[tuple[str, str], Overlap]
    examples: Mapping[tuple[str, str], list[tuple[str, str, float]]]

    @property
    def found(self) -> bool:
        """Whether any document has a near one in another split."""
        return any(overlap.documents for overlap in self.between.values())


Progress = Callable[[str, int, int | None], object]


def find_near_duplicates(corpus: Corpus, threshold: float = 0.8, *, progress: Progress | None = None) -> NearDuplicates:
    """Compare every split with those before it: train, validation, test.

    Args:
        corpus: each split is read once.
        threshold: the least estimated share, above 0 and at most 1.
        progress: called with the stage, the bytes read so far, and of how many, if known.

    Raises:
        MissingDependencyError: datasketch is not installed.
        CorpusError: the threshold is none, or the corpus cannot be read.
    """
    if not 0 < threshold <= 1:
        raise CorpusError(f"the threshold is {threshold}; give a share above 0 and at most 1")
    datasketch = _datasketch()
    empty = datasketch.MinHash(_HASHES, seed=_SEED)
    splits = list(corpus.splits)
    held_out: dict[str, _HeldOut] = {}
    read = 0
    for split in reversed(splits):  # test, validation, train: only what comes later has to be kept in memory
        own = _HeldOut(datasketch, threshold)
        for raw in corpus.splits[split].in_utf8():
            text = raw.decode("utf-8")
            signature = _signature(datasketch.LeanMinHash, empty, text)
            for later in held_out.values():
                later.compare(split, signature, text)
            if split != splits[0]:
                own.add(signature, text, len(raw))
            read += len(raw)
            if progress is not None:
                progress("comparing bytes", read, corpus.size_bytes)
        held_out[split] = own
    pairs = list(combinations(splits, 2))
    return NearDuplicates(
        threshold,
        {(earlier, later): held_out[later].overlap(earlier) for earlier, later in pairs},
        {(earlier, later): held_out[later].examples(earlier) for earlier, later in pairs},
    )


class _HeldOut:
    """The documents of a split, which those of earlier splits are compared with one by one."""

    def __init__(self, datasketch: Any, threshold: float) -> None:
        # The smallest chance of missing one that is near, at the price of more candidates, which are compared anyway.
        self._index = datasketch.MinHashLSH(threshold=threshold, num_perm=_HASHES, weights=(0.1, 0.9))
        self._threshold = threshold
        self._documents: list[tuple[Any, str, int]] = []  # signature, beginning, bytes
        self._near: dict[
            str, dict[int, tuple[float, str]]
        ] = {}  # earlier split → own number → share, other's beginning

    def add(self, signature: Any, text: str, n_bytes: int) -> None:
        self._index.insert(len(self._documents), signature, check_duplication=False)
        self._documents.append((signature, _beginning(text), n_bytes))

    def compare(self, earlier: str, signature: Any, text: str) -> None:
        near = self._near.setdefault(earlier, {})
        for number in self._index.query(signature):
            share = signature.jaccard(self._documents[number][0])
            if share >= self._threshold and share > near.get(number, (0.0, ""))[0]:
                near[number] = share, _beginning(text)

    def overlap(self, earlier: str) -> Overlap:
        near = self._near.get(earlier, {})
        return Overlap(len(near), sum(self._documents[number][2] for number in near))

    def examples(self, earlier: str) -> list[tuple[str, str, float]]:
        near = sorted(self._near.get(earlier, {}).items())[:_EXAMPLES]
        return [(self._documents[number][1], other, share) for number, (share, other) in near]


def _signature(lean: Callable[[Any], Any], empty: Any, text: str) -> Any:
    """A compact MinHash of a text, made from an empty one (whose permutations take long to make)."""
    words = _WORD.findall(text.lower())
    fives = {" ".join(words[n : n + WORDS_TOGETHER]) for n in range(max(1, len(words) - WORDS_TOGETHER + 1))}
    if not words:
        fives = {text}
    signature = empty.copy()
    signature.update_batch([five.encode("utf-8") for five in fives])
    return lean(signature)


def _beginning(text: str) -> str:
    return " ".join(text[:200].split())[:80]


def _datasketch() -> Any:
    try:
        import datasketch
    except ImportError:
        raise MissingDependencyError(
            "near duplicates are found with datasketch, which is not installed: pip install 'minigpt-tok[near]'"
        ) from None
    return datasketch
