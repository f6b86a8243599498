"""In which order blocks are trained on: a permutation that is computed, not stored, and a place in it that can be saved.

`Permutation(n, seed, epoch)` gives the block at any position from its position alone: a Feistel network over the
numbers below a power of two, walked along its cycles until it lands below n. So nothing of the size of the data is
shuffled or kept, any position can be resumed at, and order is the same on every machine.

`ResumableSampler` gives batches of one rank. All ranks walk one order together: a step takes the next `batch_size`
positions for each rank. The state is the number of positions consumed, which means the same for any number of ranks.
"""

import hashlib
from collections.abc import Iterator
from itertools import chain, count, islice
from typing import Any

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.errors import DataError

_ROUNDS = 6
_LEAST_BITS = 6  # of the network's domain; smaller ones do not mix well, and walking is cheap there
_POSITIONS_AT_ONCE = 1 << 15  # permuted in one vectorised step


class Permutation:
    """A pseudo-random permutation of 0 … n - 1 that is a function of (seed, epoch)."""

    def __init__(self, n: int, seed: int, epoch: int) -> None:
        if n < 0 or epoch < 0:
            raise DataError(f"a permutation of {n} items in epoch {epoch}; neither may be below 0")
        self.n = n
        bits = max(_LEAST_BITS, (n - 1).bit_length())
        # Two halves, of different width where the bits are odd; the domain is below 2n (but for small n).
        self._low_bits = np.uint64(bits - bits // 2)
        self._low_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._high_mask = np.uint64((1 << (bits // 2)) - 1)
        text = f"minigpt-tok order 1, seed {seed}, epoch {epoch}"
        self._keys = np.frombuffer(hashlib.sha512(text.encode("ascii")).digest(), dtype="<u8")[:_ROUNDS]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """The items at these positions: int64 `(m,)`, each from 0 to n - 1, to int64 `(m,)`."""
        items = positions.astype(np.uint64)
        walking = np.arange(len(items))
        while len(walking):
            moved = self._network(items[walking])
            items[walking] = moved
            walking = walking[moved >= self.n]
        return items.astype(np.int64)

    def _network(self, numbers: np.ndarray) -> np.ndarray:
        high, low = numbers >> self._low_bits, numbers & self._low_mask
        for round_number, key in enumerate(self._keys):
            if round_number % 2:
                low = low ^ (_mixed(high, key) & self._low_mask)
            else:
                high = high ^ (_mixed(low, key) & self._high_mask)
        return (high << self._low_bits) | low


def _mixed(numbers: np.ndarray, key: np.uint64) -> np.ndarray:
    """A hash of 64 bits (the finalizer of SplitMix64, keyed); products wrap around."""
    x = numbers + key
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class ResumableSampler:
    """Batches of item numbers for one rank; a `batch_sampler` for PyTorch's `DataLoader`.

    An epoch takes every item once, over all ranks together. At its end fewer items may be left than a full step of all
    ranks needs: they are shared out as evenly as can be (smaller batches); with `drop_last` they are left out; and with
    `same_steps` at most `world_size - 1` are left out where there is less than one for each rank, since ranks that
    train together must take the same number of steps.

    `position` counts what has been given out, the batch at work included. `DataLoader` workers fetch ahead: then what
    was given out is not yet trained on, and `loader.TokenLoader` keeps the true count.
    """

    def __init__(
        self,
        n_items: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        same_steps: bool = True,
    ) -> None:
        """`batch_size`: items per rank and step.

        Raises:
            DataError: a number that makes no sense, or `drop_last` where not one full step is in an epoch.
        """
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}; it must be at least 1")
        if not 0 <= rank < world_size:
            raise DataError(f"rank is {rank} of {world_size}; ranks count from 0")
        if drop_last and n_items < batch_size * world_size:
            raise DataError(
                f"{counted(n_items, 'block')}, fewer than one step of {batch_size} on each of {counted(world_size, 'rank')}: "
                "drop_last=True would leave all out; use a smaller batch_size, or drop_last=False"
            )
        self.n_items = n_items
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last
        self.same_steps = same_steps
        self.epoch = 0
        self.position = 0  # items of this epoch that all ranks together have been given

    @property
    def n_left_out(self) -> int:
        """Items of an epoch that no rank is given, others in each epoch where it shuffles."""
        return self.n_items - self._end(0)

    def _end(self, start: int) -> int:
        left = (self.n_items - start) % (self.batch_size * self.world_size)
        out = self.drop_last or (self.same_steps and left < self.world_size)
        return self.n_items - left if out else self.n_items

    def __len__(self) -> int:
        """Steps in an epoch that begins at 0."""
        return self._steps(0)

    def steps_left(self) -> int:
        """Steps from `position` to the end of the epoch."""
        return self._steps(self.position)

    def _steps(self, start: int) -> int:
        items = self._end(start) - start
        step = self.batch_size * self.world_size
        full, rest = divmod(max(items, 0), step)
        return full + (self.rank < rest)  # of the rest each rank has at least one, or it is one of the first to

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; of the one that is under way already (as after a resume) nothing changes."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the epoch from `position` on; then the next epoch is up."""
        self.begin()
        for batch in self.upcoming():
            self.advance()
            yield batch
        self._next_epoch()

    def begin(self) -> None:
        """Go to the next epoch if this one is done."""
        if self.position and self.steps_left() == 0:
            self._next_epoch()

    def advance(self) -> None:
        """Count one step of all ranks as given out."""
        self.begin()
        self.position = min(self.position + self.batch_size * self.world_size, self._end(self.position))

    def _next_epoch(self) -> None:
        self.epoch, self.position = self.epoch + 1, 0

    def upcoming(self, steps: int | None = None) -> Iterator[list[int]]:
        """The batches from `position` on, to the end of the epoch or `steps` of them across epochs; changes nothing."""
        batches = self._batches(self.epoch, self.position)
        if steps is None:
            return batches
        later = (self._batches(epoch, 0) for epoch in count(self.epoch + 1))
        return islice(chain(batches, chain.from_iterable(later)), steps)

    def _batches(self, epoch: int, start: int) -> Iterator[list[int]]:
        step = self.batch_size * self.world_size
        end = self._end(start)
        permutation = Permutation(self.n_items, self.seed, epoch)
        at_once = max(1, _POSITIONS_AT_ONCE // self.batch_size) * step
        for first in range(start, end, at_once):
            own = self._own_positions(first, min(first + at_once, end))
            items = permutation(own) if self.shuffle else own
            for begin in range(0, len(items), self.batch_size):
                yield items[begin : begin + self.batch_size].tolist()

    def _own_positions(self, first: int, behind: int) -> np.ndarray:
        """This rank's positions of whole steps and a last one that may be smaller, in order: int64."""
        step = self.batch_size * self.world_size
        steps, rest = divmod(behind - first, step)
        starts = first + step * np.arange(steps, dtype=np.int64) + self.rank * self.batch_size
        whole = (starts[:, None] + np.arange(self.batch_size, dtype=np.int64)).reshape(-1)
        share, extra = divmod(rest, self.world_size)
        last = first + steps * step + self.rank * share + min(self.rank, extra)
        return np.concatenate([whole, np.arange(last, last + share + (self.rank < extra), dtype=np.int64)])

    def state_dict(self) -> dict[str, Any]:
        """Plain values: the epoch and the place in it, and what they depend on."""
        return {
            "version": 1,
            "n_items": self.n_items,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self.position,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a sampler of the same items stopped, under any number of ranks and any batch size.

        The seed is the saved one: it belongs to the order that is gone on with.

        Raises:
            DataError: the state is of other data, or of another version.
        """
        if state.get("version") != 1:
            raise DataError(f"the order's state has version {state.get('version')!r}; this package reads 1")
        for key, what in (("n_items", "blocks"), ("shuffle", "shuffling")):
            if state[key] != getattr(self, key):
                raise DataError(
                    f"the order that was saved has {what} {state[key]}, and this data has {getattr(self, key)}: other "
                    "data, or another block size or stride. Go on with the same, or begin anew with the weights alone"
                )
        if not 0 <= state["position"] <= self.n_items or state["epoch"] < 0:
            raise DataError(f"the order's state is damaged: position {state['position']} in epoch {state['epoch']}")
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]
