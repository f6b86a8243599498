"""Which ids a model sees when it predicts each token: windows that slide over a text, each token predicted once.

A *sequence* is what is scored in one context: the whole stream of ids, or one document. Where the model was trained
with a separator, the sequence is preceded by one, from which its first token is predicted. Otherwise that token has no
left context and no window predicts it.

The first window holds up to `block_size` inputs, and each of them predicts the id after it. Every further window begins
`stride` later and predicts only what those before it did not: its last `stride` targets. So a token has at least
`block_size - stride + 1` ids of context, or all there are, and with `stride = block_size` windows are plain blocks.
Where a window begins depends on the sequence's beginning alone, so more text after it changes nothing.
"""

from dataclasses import dataclass

import numpy as np

from minigpt_tok.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows over a stream of ids. All arrays are int64 `(windows,)`.

    Attributes:
        starts: place in the stream of the window's first input; one before the sequence for a separator put there.
        lengths: how many inputs the window has. The targets are the ids at `starts + 1` to `starts + lengths`.
        first_scored: how many of its first targets were predicted by windows before it.
        preceded: bool; whether the first input is the separator put before the sequence, not an id of the stream.
        unpredicted: places in the stream that no window predicts, having no left context: int64 `(tokens,)`.
    """

    starts: np.ndarray
    lengths: np.ndarray
    first_scored: np.ndarray
    preceded: np.ndarray
    unpredicted: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, index: int, count: int) -> "Windows":
        """Every `count`-th window from `index` on, for one of `count` devices; the first also has `unpredicted`."""
        chosen = slice(index, None, count)
        return Windows(
            starts=self.starts[chosen],
            lengths=self.lengths[chosen],
            first_scored=self.first_scored[chosen],
            preceded=self.preceded[chosen],
            unpredicted=self.unpredicted if index == 0 else self.unpredicted[:0],
        )

    def by_length(self) -> "Windows":
        """The same, the longest first, so that a batch pads little."""
        order = np.argsort(-self.lengths, kind="stable")
        return Windows(
            starts=self.starts[order],
            lengths=self.lengths[order],
            first_scored=self.first_scored[order],
            preceded=self.preceded[order],
            unpredicted=self.unpredicted,
        )


def plan_windows(ends: np.ndarray, block_size: int, stride: int, *, preceded: bool) -> Windows:
    """The windows over sequences that lie one after the other in a stream.

    Args:
        ends: int64 `(sequences,)`, each sequence's end in the stream (exclusive), ascending; it begins where the one
            before it ends.
        block_size: the most inputs of a window, in tokens.
        stride: how far a window begins after the one before it, 1 to `block_size`.
        preceded: whether a separator is put before each sequence.
    """
    begins = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    sizes = ends - begins
    # With a separator before it, a sequence of n ids has n targets and its first input stands one before its begin.
    targets = sizes if preceded else np.maximum(sizes - 1, 0)
    counts = np.where(targets > 0, 1 + -(-np.maximum(targets - block_size, 0) // stride), 0)
    sequence = np.repeat(np.arange(len(ends)), counts)
    number = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)  # of the window in its sequence
    offsets = number * stride
    return Windows(
        starts=begins[sequence] + offsets - int(preceded),
        lengths=np.minimum(block_size, targets[sequence] - offsets),
        first_scored=np.where(number == 0, 0, block_size - stride),
        preceded=(number == 0) & preceded,
        unpredicted=np.zeros(0, dtype=np.int64) if preceded else begins[sizes > 0],
    )


def choose_stride(context: str, stride: int | None, block_size: int) -> int:
    """How far a window begins after the one before it, in tokens: half a block unless given, a whole one for `blocks`.

    Raises:
        DataError: there is no such context, or no such stride in it.
    """
    if context == "blocks":
        if stride not in (None, block_size):
            raise DataError(f"stride is {stride}, but blocks lie side by side; use context='sliding' for a stride")
        return block_size
    if context != "sliding":
        raise DataError(f"context is {context!r}; choose 'sliding' or 'blocks'")
    if stride is None:
        return max(1, block_size // 2)
    if not 1 <= stride <= block_size:
        raise DataError(f"stride is {stride}; give 1 to the block size, {block_size}, or some token is never predicted")
    return stride
