"""Near duplicates between splits: documents of which another split has almost the same, by MinHash (datasketch).

Two documents are near if their sets of five successive words are alike: the share of common ones among all, Jaccard's,
is estimated from 128 hash values, to about ±0.09. Case, punctuation at the ends of words and white space do not count.
So an article that was updated, or a page with another date on it, is found; a paraphrase is not. Exact duplicates are
near, too. Documents of less than five words are compared as a whole.

Memory: about 3 kB for each document that is compared with, whatever its length. Time: about that of reading every word
in Python, some MB/s.
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
    pairs = list(combinations(splits, 2))
    found = {pair: [0, 0] for pair in pairs}
    examples: dict[tuple[str, str], list[tuple[str, str, float]]] = {pair: [] for pair in pairs}
    indexes: dict[str, Any] = {}
    signatures: dict[str, list[Any]] = {}
    beginnings: dict[str, list[str]] = {}
    read = 0
    for split, documents in corpus.splits.items():
        is_last = split == splits[-1]
        # The smallest chance of missing one that is near, at the price of more candidates, which are compared anyway.
        index = datasketch.MinHashLSH(threshold=threshold, num_perm=_HASHES, weights=(0.1, 0.9))
        signatures[split], beginnings[split] = [], []
        for number, (text, raw) in enumerate(documents.with_bytes()):
            signature = _signature(datasketch.LeanMinHash, empty, text)
            for earlier, other in indexes.items():
                near = max(
                    ((signature.jaccard(signatures[earlier][n]), -n) for n in other.query(signature)), default=(0.0, 0)
                )
                if near[0] >= threshold:
                    found[earlier, split][0] += 1
                    found[earlier, split][1] += len(raw)
                    if len(examples[earlier, split]) < 5:
                        examples[earlier, split].append((_beginning(text), beginnings[earlier][-near[1]], near[0]))
            if not is_last:
                index.insert(number, signature, check_duplication=False)
                signatures[split].append(signature)
                beginnings[split].append(_beginning(text))
            read += len(raw)
            if progress is not None:
                progress("comparing bytes", read, corpus.size_bytes)
        indexes[split] = index
    return NearDuplicates(threshold, {pair: Overlap(*counts) for pair, counts in found.items()}, examples)


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
