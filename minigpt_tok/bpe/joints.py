"""Where a long piece can be cut because no merge can ever cross: between units that stand side by side in no token."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from minigpt_tok.bpe.model import BPEModel

LARGEST_TABLE = 4096  # units that stand in tokens: 16 MB to look any two of them up at once


class Joints:
    """What the tokens of one model join; `dropped` are the bytes that its vocabulary lacks."""

    def __init__(self, model: BPEModel, dropped: list[int]) -> None:
        self._model = model
        self._dropped = dropped

    def cut(self, units: str | bytes) -> Iterator[str | bytes]:
        """Cut between neighbours that stand side by side in no token: no merge can ever join them."""
        if isinstance(units, str):
            codes = np.frombuffer(units.encode("utf-32-le"), dtype=np.uint32)
        else:
            codes = np.frombuffer(units, dtype=np.uint8)
        classes = self._joinable_classes[codes]
        cuts = np.flatnonzero(~self._joinable(classes[:-1], classes[1:])) + 1
        yield from (units[start:end] for start, end in pairwise([0, *cuts.tolist(), len(units)]))

    @cached_property
    def _neighbours(self) -> set[tuple[int, int]]:
        """(unit, unit), bytes or code points, that stand side by side in some token; around dropped bytes, any."""
        tokens = [token for token in self._model.tokens if token is not None and len(token) > 1]
        sequences: Iterable[Sequence[int]] = tokens
        if self._model.unit == "character":
            sequences = [[ord(character) for character in token.decode("utf-8")] for token in tokens]
        pairs = {pair for sequence in sequences for pair in pairwise(sequence)}
        if self._model.unit == "byte":
            pairs |= {pair for byte in self._dropped for other in range(256) for pair in ((byte, other), (other, byte))}
        return pairs

    @cached_property
    def _joinable_classes(self) -> np.ndarray:
        """Unit → class for `_joinable`; 0 for the units that no token joins to any other."""
        units = sorted({unit for pair in self._neighbours for unit in pair})
        classes = np.zeros(256 if self._model.unit == "byte" else 0x110000, dtype=np.int32)
        classes[units] = np.arange(1, len(units) + 1)
        return classes

    @cached_property
    def _joinable(self) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """(classes of left units, of right units), both `(n,)` → bool `(n,)`: whether they may be joined."""
        classes = self._joinable_classes
        size = int(classes.max(initial=0)) + 1
        pairs = np.array(sorted(self._neighbours), dtype=np.int64).reshape(-1, 2)
        codes = np.sort(classes[pairs[:, 0]].astype(np.int64) * size + classes[pairs[:, 1]])
        if size <= LARGEST_TABLE:
            table = np.zeros(size * size, dtype=bool)
            table[codes] = True
            return lambda left, right: table[left * size + right]

        def found(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            wanted = left.astype(np.int64) * size + right
            same: np.ndarray = codes[np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)] == wanted
            return same

        return found
