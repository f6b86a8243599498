"""Which pieces of which documents lie in which row: best-fit packing, planned by lengths alone.

A *piece* is a run of targets in a stream of ids, `[start, start + length)`; target t is predicted from the id before
it, so the inputs are `[start - 1, start + length - 1)`. A *row* is pieces one behind the other, at most `capacity`
targets in all. Nothing here reads an id.

Rows are filled greedily: the longest piece that fits, again and again, until none does. Done row by row that costs a
step for each piece; but as long as there are enough pieces of each length, the next row is filled as the last one was.
So a pattern of lengths is found once and laid out as many times as there are pieces for it, and the work grows with the
number of different lengths (at most `capacity`), not with the number of documents: 100,000 documents take some
hundredths of a second, ten million little more than it takes to sort them.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np


class Plan(NamedTuple):
    """Rows of pieces, all int64.

    Attributes:
        row_ends: `(n_rows,)`, the number of pieces up to the end of each row.
        starts: `(n_pieces,)`, the first target of each piece.
        lengths: `(n_pieces,)`, in targets, at least 1.
    """

    row_ends: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


class _Pattern(NamedTuple):
    """How a row is filled, and how many rows are filled so: (length, how many of it), and what is cropped at its end."""

    parts: list[tuple[int, int]]
    crop_from: int  # the length of the piece that is cropped, 0 for none
    crop_to: int
    rows: int


def plan_best_fit(starts: np.ndarray, lengths: np.ndarray, capacity: int) -> Plan:
    """Whole documents, the longest that fits first; one longer than a row is cut into full rows and a rest.

    Args:
        starts, lengths: int64 `(n_documents,)`, each document's targets; a length may be 0.
        capacity: targets in a row.
    """
    parts = -(-lengths // capacity)
    number = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)  # of each piece in its document
    rest = np.repeat(lengths, parts) - number * capacity
    return _laid_out(np.repeat(starts, parts) + number * capacity, np.minimum(rest, capacity), capacity, crop=False)


def plan_bos_aligned(starts: np.ndarray, lengths: np.ndarray, capacity: int) -> Plan:
    """Documents from their beginning on, the longest that fits first; where none fits, the shortest left is cropped.

    Every row but the last is full. A document longer than a row is cropped to one. Arguments as `plan_best_fit`.
    """
    there = lengths > 0
    return _laid_out(starts[there], lengths[there], capacity, crop=True)


def _laid_out(starts: np.ndarray, lengths: np.ndarray, capacity: int, *, crop: bool) -> Plan:
    by_length = np.argsort(lengths, kind="stable")
    ordered = lengths[by_length]
    n_short = int(np.searchsorted(ordered, capacity, side="right"))
    present, first, counts = np.unique(ordered[:n_short], return_index=True, return_counts=True)
    patterns = _patterns(
        present.tolist(), dict(zip(present.tolist(), counts.tolist(), strict=True)), capacity,
        longer=ordered[n_short : n_short + 1].tolist() if crop else [], crop=crop,
    )  # fmt: skip
    at = dict(zip(present.tolist(), first.tolist(), strict=True))
    pieces: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    per_row: list[np.ndarray] = []
    for parts, crop_from, crop_to, rows in patterns:
        columns, widths = [], []
        for length, times in [*parts, *([(crop_from, 1)] if crop_from else [])]:
            if length > capacity:  # the shortest of the long ones, and there are no short ones left
                columns.append(by_length[n_short : n_short + 1, None])
                n_short += 1
            else:
                columns.append(by_length[at[length] : at[length] + rows * times].reshape(rows, times))
                at[length] += rows * times
            widths += [length] * times
        if crop_from:
            widths[-1] = crop_to
        pieces.append(np.hstack(columns).reshape(-1))
        sizes.append(np.tile(np.array(widths, dtype=np.int64), rows))
        per_row.append(np.full(rows, len(widths), dtype=np.int64))
    left = by_length[n_short:]  # longer than a row: a row each
    pieces.append(left)
    sizes.append(np.full(len(left), capacity, dtype=np.int64))
    per_row.append(np.ones(len(left), dtype=np.int64))
    return Plan(np.cumsum(np.concatenate(per_row)), starts[np.concatenate(pieces)], np.concatenate(sizes))


def _patterns(
    present: list[int], counts: dict[int, int], capacity: int, *, longer: list[int], crop: bool
) -> list[_Pattern]:
    """The patterns that use up all pieces of the lengths `present` (ascending, at most `capacity`).

    `longer`: the length of the shortest piece beyond `capacity`, if there is one to crop.
    """
    found: list[_Pattern] = []
    while present:
        space = capacity
        used: dict[int, int] = {}
        at = bisect_right(present, space) - 1
        while space and at >= 0:
            length = present[at]
            used[length] = min(space // length, counts[length])
            space -= used[length] * length
            at = bisect_right(present, space, 0, at) - 1
        parts = list(used.items())
        crop_from = _shortest_left(present, counts, used, longer, space) if crop and space else 0
        if crop_from and crop_from <= capacity:
            used[crop_from] = used.get(crop_from, 0) + 1
        rows = 1 if crop_from > capacity else min(counts[length] // times for length, times in used.items())
        found.append(_Pattern(parts, crop_from, space, rows))
        for length, times in used.items():
            counts[length] -= rows * times
            if not counts[length]:
                del present[bisect_right(present, length) - 1]
    return found


def _shortest_left(
    present: list[int], counts: dict[int, int], used: dict[int, int], longer: list[int], space: int
) -> int:
    """The shortest length above `space` of which a piece is left beside those used; 0 if there is none."""
    for length in present[bisect_right(present, space) :]:
        if counts[length] > used.get(length, 0):
            return length
    return longer[0] if longer else 0
