"""`Mixture`: several corpora as one, in given shares of bytes."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minigpt_tok.data.documents import Documents, ReadCounts
from minigpt_tok.errors import CorpusError

log = logging.getLogger(__name__)


class Mixture:
    """Corpora with weights: `Mixture({"wikitext-2": 0.7, "stories/": 0.3})`, or pairs where a source is no key.

    Documents are taken whole, each time from the corpus that is furthest behind its share of the bytes so far (of
    several, from the first). The order is a function of the texts and weights alone. A split ends when a corpus has no
    more: so the shares hold to the last document, nothing is repeated, and what the others still have is left out.
    """

    def __init__(self, sources: Mapping[Any, float] | Sequence[tuple[Any, float]]) -> None:
        """`sources`: anything that `open_corpus` takes → weight; only the weights' ratios count.

        Raises:
            CorpusError: no sources, or a weight that is no number above 0.
        """
        pairs = list(sources.items()) if isinstance(sources, Mapping) else [(source, w) for source, w in sources]
        if not pairs:
            raise CorpusError("a mixture needs at least one corpus")
        for source, weight in pairs:
            if not (isinstance(weight, int | float) and math.isfinite(weight) and weight > 0):
                raise CorpusError(f"the weight of {source} is {weight!r}; weights are numbers above 0")
        self.sources = tuple((source, float(weight)) for source, weight in pairs)

    def __repr__(self) -> str:
        return f"Mixture({list(self.sources)!r})"


class MixedReader:
    """Reads one split of all corpora of a mixture."""

    def __init__(self, parts: Sequence[tuple[Documents, float]]) -> None:
        self._parts = parts

    @property
    def size_bytes(self) -> int | None:
        """About how much text comes before one of them ends, if all their sizes are known."""
        all_weights = sum(weight for _, weight in self._parts)
        sizes = [documents.size_bytes for documents, _ in self._parts]
        if None in sizes:
            return None
        return round(
            min(size / weight for size, (_, weight) in zip(sizes, self._parts, strict=True) if size is not None)
            * all_weights
        )

    def __call__(self, counts: ReadCounts) -> Iterator[bytes]:
        """A new reading."""
        readings = [documents.in_utf8() for documents, _ in self._parts]
        taken = [0] * len(readings)
        while True:
            which = min(range(len(readings)), key=lambda n: taken[n] / self._parts[n][1])
            document = next(readings[which], None)
            if document is None:
                break
            taken[which] += len(document)
            yield document
        said = ", ".join(f"{size:,} bytes of {d.name}" for size, (d, _) in zip(taken, self._parts, strict=True))
        log.info("the mixture ends with %s, which has no more: %s", self._parts[which][0].name, said)
