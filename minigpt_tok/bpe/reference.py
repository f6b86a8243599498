"""Byte pair encoding, readable: the definition of what training learns and of what encoding gives.

    >>> pieces = [(b"hug", 2), (b"pug", 1), (b"hugs", 1)]      # any sequences of base ids: here the bytes are the ids
    >>> learned = train_merges(pieces, ALL_BYTES, Stop(merges=3, min_frequency=1))
    >>> [(merge.left, merge.right, merge.occurrences) for merge in learned.merges]            # ug = 256, hug = 257
    [(117, 103, 4), (104, 256, 3), (112, 256, 1)]

Training keeps every piece as a chain of tokens and, for every pair of neighbours, where it occurs. A merge therefore
touches only its own occurrences; nothing is counted twice. Cost: for n tokens in the distinct pieces, O(n log n) time
in all, and about 100 bytes of memory per token. Encoding merges the pair of lowest rank first, from a heap: O(n log n)
for a piece of n tokens, whatever the piece.
"""

import heapq
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from minigpt_tok.bpe.recipes import Tie

DEAD = -1  # in place of an id: merged into the left neighbour; in place of a place: the end of a piece


class Merge(NamedTuple):
    """One learned merge; ids are the trainer's own: base tokens first, in their order, then merges."""

    left: int
    right: int
    occurrences: int  # how often the pair occurred when it was chosen
    tokens_after: int  # tokens of the whole training text once it was made


def asked_for(merges: int) -> str:
    """That training stopped after so many merges because no more were wanted."""
    return "1 merge was asked for" if merges == 1 else f"{merges} merges were asked for"


class Stop(NamedTuple):
    """When to stop: after so many merges, or when the best pair occurs less than `min_frequency` times."""

    merges: int
    min_frequency: int

    def reason(self, done: int, best_left: int) -> str:
        """Why there are `done` merges; `best_left` is the count of the best pair that is left, 0 if none is."""
        if done == self.merges:
            return asked_for(self.merges)
        if not best_left:
            return "no pair is left"
        return f"the best pair occurs {best_left} time{'s' * (best_left != 1)}"


@dataclass
class Learned:
    """The merges in rank order, why there are no more, and the tokens of the training text before the first."""

    base_tokens: int
    merges: list[Merge] = field(default_factory=list)
    stopped: str = ""


def train_merges(
    pieces: Iterable[tuple[Sequence[int], int]],
    base: Sequence[bytes],
    stop: Stop,
    *,
    tie: Tie = "lowest_ids",
    max_token_length: int | None = None,
    lengths: Sequence[int] | None = None,
    passed_over: frozenset[bytes] = frozenset(),
    progress: Callable[[int], object] | None = None,
) -> Learned:
    """Learn merges from distinct pieces and how often each occurs, in the order in which they were first seen.

    Args:
        pieces: (base ids of the piece, how often it occurs).
        base: the raw bytes of the base tokens; a base token's id is its position here.
        stop: when to stop.
        tie: which of several pairs with the largest count is taken, see `recipes.Recipe`.
        max_token_length: the longest token that a merge may make, in units, or `None`.
        lengths: units of each base token, where they are more than one: those of a tokenizer that is trained further.
        passed_over: raw bytes that no merge may make.
        progress: called with the number of merges after each.
    """
    chain = _Chain(pieces)
    texts = list(base)  # raw bytes by id
    lengths = list(lengths or [1] * len(base))  # in units, by id
    key = _tie_key(tie, chain, texts)
    # Entries may be out of date: counts only fall and first places only move right once a pair exists, since all its
    # occurrences appear in the one merge that makes the younger of its tokens. So the top entry, if it still says the
    # truth, is the best pair; if it does not, it goes back with its present values.
    heap = [(key(pair), pair) for pair in chain.counts]
    heapq.heapify(heap)
    learned = Learned(base_tokens=chain.tokens)
    best_left = 0
    while len(learned.merges) < stop.merges and heap:
        old_key, pair = heap[0]
        count = chain.counts[pair]
        if count < 1:
            heapq.heappop(heap)
            chain.forget(pair)
            continue
        if (new_key := key(pair)) != old_key:
            heapq.heapreplace(heap, (new_key, pair))
            continue
        length = lengths[pair[0]] + lengths[pair[1]]
        too_long = max_token_length is not None and length > max_token_length
        if too_long or (passed_over and texts[pair[0]] + texts[pair[1]] in passed_over):
            heapq.heappop(heap)
            continue
        if count < stop.min_frequency:
            best_left = count
            break
        heapq.heappop(heap)
        lengths.append(length)
        texts.append(texts[pair[0]] + texts[pair[1]])
        for new_pair in chain.merge(pair, into=len(texts) - 1):
            heapq.heappush(heap, (key(new_pair), new_pair))
        learned.merges.append(Merge(*pair, count, chain.tokens))
        if progress is not None:
            progress(len(learned.merges))
    learned.stopped = stop.reason(len(learned.merges), best_left)
    return learned


class _Chain:
    """All distinct pieces laid end to end as linked tokens, with the places and the count of every pair.

    A place is the position of a token's first unit, so places keep their order while tokens grow.
    """

    def __init__(self, pieces: Iterable[tuple[Sequence[int], int]]) -> None:
        self.ids = array("i")
        self.weights = array("q")
        cuts = []  # between the ids that are not neighbours
        for numbers, count in pieces:
            self.ids.extend(numbers)
            self.weights.extend([count] * len(numbers))
            cuts.append(len(self.ids))
        n = len(self.ids)
        self.after = array("i", range(1, n + 1))
        self.before = array("i", range(-1, n - 1))
        for cut in cuts:
            if cut > 0:
                self.after[cut - 1] = DEAD
            if cut < n:
                self.before[cut] = DEAD
        self.tokens = sum(self.weights)
        self.counts: dict[tuple[int, int], int] = {}
        self.places: dict[tuple[int, int], array[int]] = {}
        for place, following in enumerate(self.after):
            if following != DEAD:
                self._add((self.ids[place], self.ids[following]), place)

    def _add(self, pair: tuple[int, int], place: int) -> None:
        weight = self.weights[place]
        if pair in self.counts:
            self.counts[pair] += weight
            self.places[pair].append(place)
        else:
            self.counts[pair] = weight
            self.places[pair] = array("i", [place])

    def _occurs(self, pair: tuple[int, int], place: int) -> bool:
        following = self.after[place]
        return self.ids[place] == pair[0] and following != DEAD and self.ids[following] == pair[1]

    def first_place(self, pair: tuple[int, int]) -> int:
        """Where the pair occurs first in the present segmentation; places that have gone are dropped on the way."""
        places = self.places[pair]
        for stale, place in enumerate(places):
            if self._occurs(pair, place):
                if stale:
                    del places[:stale]
                return place
        return len(self.ids)

    def forget(self, pair: tuple[int, int]) -> None:
        """The pair cannot be merged any more."""
        del self.counts[pair], self.places[pair]

    def merge(self, pair: tuple[int, int], into: int) -> list[tuple[int, int]]:
        """Replace every occurrence, left to right without overlap, and return the pairs that came to be."""
        ids, after, before, counts = self.ids, self.after, self.before, self.counts
        new_pairs: dict[tuple[int, int], None] = {}
        for place in self.places[pair]:
            if not self._occurs(pair, place):  # merged away, or overlapped by the occurrence before it
                continue
            second = after[place]
            left, right = before[place], after[second]
            weight = self.weights[place]
            self.tokens -= weight
            counts[pair] -= weight
            ids[place], ids[second] = into, DEAD
            after[place] = right
            if left != DEAD:
                counts[ids[left], pair[0]] -= weight
                new_pairs[ids[left], into] = None
                self._add((ids[left], into), left)
            if right != DEAD:
                before[right] = place
                counts[pair[1], ids[right]] -= weight
                new_pairs[into, ids[right]] = None
                self._add((into, ids[right]), place)
        self.forget(pair)
        # Only now: a pair such as (into, left half) may have come and gone within this very merge.
        for new_pair in [new_pair for new_pair in new_pairs if counts[new_pair] < 1]:
            self.forget(new_pair)
            del new_pairs[new_pair]
        return list(new_pairs)


def _tie_key(tie: Tie, chain: _Chain, texts: list[bytes]) -> Callable[[tuple[int, int]], tuple[object, ...]]:
    """A sort key under which the best pair is the smallest: by falling count, then by the rule for ties."""
    if tie == "lowest_ids":
        return lambda pair: (-chain.counts[pair], pair)
    if tie == "first_seen":
        return lambda pair: (-chain.counts[pair], chain.first_place(pair))
    # greatest_bytes: bytes turned upside down, with an end mark so that a longer token comes before its own prefix.
    descending: list[tuple[int, ...]] = []

    def upside_down(id: int) -> tuple[int, ...]:
        while len(descending) <= id:
            descending.append((*(255 - byte for byte in texts[len(descending)]), 256))
        return descending[id]

    return lambda pair: (-chain.counts[pair], upside_down(pair[0]), upside_down(pair[1]))


def merge_by_rank(ids: list[int], merge_of: Callable[[int, int], tuple[int, int] | None]) -> list[int]:
    """Merge the neighbours with the lowest rank, of equal ranks the leftmost, until no neighbours can merge.

    Args:
        ids: base ids of one piece.
        merge_of: (left id, right id) → (rank, id of the merged token), or `None` where they do not merge.
    """
    ids = list(ids)
    n = len(ids)
    after = list(range(1, n + 1))
    before = list(range(-1, n - 1))
    # (rank, place, left, right, merged); an entry is out of date once either neighbour has changed.
    heap: list[tuple[int, int, int, int, int]] = []

    def offer(place: int) -> None:
        right = after[place]
        if right < n and (merge := merge_of(ids[place], ids[right])) is not None:
            heapq.heappush(heap, (merge[0], place, ids[place], ids[right], merge[1]))

    for place in range(n - 1):
        offer(place)
    while heap:
        _, place, left, right, merged = heapq.heappop(heap)
        second = after[place]
        if ids[place] != left or second >= n or ids[second] != right:
            continue
        ids[place], ids[second] = merged, DEAD
        after[place] = after[second]
        if after[place] < n:
            before[after[place]] = place
            offer(place)
        if before[place] >= 0:
            offer(before[place])
    return [id for id in ids if id != DEAD]
