"""Intervals by the bootstrap over documents: how far a score would move had other documents been drawn.

Bits per byte is a ratio of sums, so each resample draws documents with replacement, sums their bits and their bytes,
and divides once. The interval is by percentiles (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13).
Two models on one text are compared on the same draws: what a document costs both of them then cancels, and the interval
of their difference is far narrower than those of the two scores would suggest.

Only documents are drawn. How far another seed of the training would move a score shows from several seeds alone, which
are then drawn as well.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from minigpt_tok.errors import DataError

RESAMPLES = 2_000
LEVEL = 0.95
_CHUNK = 1 << 22  # drawn document numbers at a time: bounds memory to some tens of megabytes


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A bootstrap interval, with what is needed to draw it again.

    Attributes:
        low, high: its ends, in the unit of the score.
        level: the probability that it stands for, 0.95 for 95%.
        resamples: how many times documents were drawn.
        seed: of the draws.
    """

    low: float
    high: float
    level: float
    resamples: int
    seed: int

    def contains(self, value: float) -> bool:
        """Whether the value lies within, ends included."""
        return self.low <= value <= self.high

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def ratio_interval(
    bits: np.ndarray, n_bytes: np.ndarray, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> Interval | None:
    """The interval of bits per byte over documents.

    Args:
        bits: float64 `(documents,)`, or `(seeds, documents)` for the mean over seeds, which are then drawn too.
        n_bytes: int64 `(documents,)`, UTF-8 bytes of each document.
        level, resamples, seed: see `Interval`.

    Returns:
        `None` for fewer than two documents with text: one document says nothing about others.
    """
    if np.count_nonzero(n_bytes) < 2:
        return None
    return _percentiles(_resampled([np.atleast_2d(bits)], n_bytes, resamples, seed)[0], level, resamples, seed)


def difference_interval(
    bits_a: np.ndarray,
    bits_b: np.ndarray,
    n_bytes: np.ndarray,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """The interval of bits per byte of `a` minus that of `b`, both on the same draws of documents. Shapes as above."""
    if np.count_nonzero(n_bytes) < 2:
        return None
    a, b = _resampled([np.atleast_2d(bits_a), np.atleast_2d(bits_b)], n_bytes, resamples, seed)
    return _percentiles(a - b, level, resamples, seed)


def _resampled(scores: Sequence[np.ndarray], n_bytes: np.ndarray, resamples: int, seed: int) -> list[np.ndarray]:
    """Bits per byte of each score, `(seeds, documents)`, in every resample: arrays `(resamples,)`."""
    for bits in scores:
        if bits.shape[1] != len(n_bytes):
            raise DataError(f"bits of {bits.shape[1]:,} documents and bytes of {len(n_bytes):,} do not belong together")
    if resamples < 1:
        raise DataError(f"resamples is {resamples}; it must be at least 1")
    kept = n_bytes > 0
    sizes = n_bytes[kept].astype(np.float64)
    kept_scores = [bits[:, kept] for bits in scores]
    generator = np.random.default_rng(seed)
    n = len(sizes)
    rows = max(1, _CHUNK // n)
    results = [np.empty(resamples) for _ in scores]
    for start in range(0, resamples, rows):
        drawn = generator.integers(0, n, size=(min(rows, resamples - start), n))
        total = sizes[drawn].sum(axis=1)
        for bits, result in zip(kept_scores, results, strict=True):
            seeds = len(bits)
            # How often each seed is drawn; with one seed this is all ones and draws nothing away from the documents.
            weights = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=len(drawn)) if seeds > 1 else None
            summed = np.stack([row[drawn].sum(axis=1) for row in bits], axis=1)  # (resamples, seeds)
            mean = summed[:, 0] if weights is None else (summed * weights).sum(axis=1) / seeds
            result[start : start + len(drawn)] = mean / total
    return results


def _percentiles(values: np.ndarray, level: float, resamples: int, seed: int) -> Interval:
    if not 0 < level < 1:
        raise DataError(f"level is {level}; give a share between 0 and 1, as 0.95 for 95%")
    # A drawn value itself, not one between two: beside an infinite score there is nothing in between.
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return Interval(low=float(low), high=float(high), level=level, resamples=resamples, seed=seed)
