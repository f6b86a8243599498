"""How a stream of ids becomes blocks: one class per packing, with an account of what each keeps, loses and repeats.

A packing knows how many blocks there are and gathers any of them at once; it reads ids from the memory map and holds
nothing. `PACKINGS` names those there are; `TokenDataset` looks them up there.
"""

import dataclasses
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import DataError

_AT_ONCE = 1 << 22  # ids that an account looks at in one step


class Blocks(NamedTuple):
    """Blocks of next-token prediction, both int64 `(n_blocks, block_size)`: target t is the id after input t."""

    inputs: np.ndarray
    targets: np.ndarray


@dataclasses.dataclass(frozen=True)
class Amounts:
    """An account in one unit, tokens or bytes of text.

    Attributes:
        total: in the id file.
        kept: of them, those that are a target at least once in an epoch.
        lost: those that never are: kept + lost = total.
        repeated: how much the targets of an epoch have beyond `kept`, since blocks overlap.
    """

    total: int
    kept: int
    lost: int
    repeated: int


@dataclasses.dataclass(frozen=True)
class Account:
    """What an epoch trains on, known before it begins.

    Attributes:
        blocks: in an epoch.
        tokens: in ids, separators included.
        bytes: in UTF-8 bytes of text; `None` where no tokenizer says how many bytes an id stands for.
    """

    blocks: int
    tokens: Amounts
    bytes: Amounts | None

    def __str__(self) -> str:
        parts = [f"{self.blocks:,} blocks"]
        for unit, amounts in (("tokens", self.tokens), ("bytes", self.bytes)):
            if amounts is not None:
                text = f"{amounts.kept:,} of {amounts.total:,} {unit} kept, {amounts.lost:,} lost"
                parts.append(text + (f", {amounts.repeated:,} repeated" if amounts.repeated else ""))
        return "; ".join(parts)


class Packing(Protocol):
    """What `TokenDataset` asks of a packing."""

    name: ClassVar[str]

    def __init__(self, file: IdFile, block_size: int, stride: int | None, seed: int) -> None:
        """Plan the blocks of a file.

        Raises:
            DataError: an option that makes no sense for this packing, or not one block in the file.
        """

    @property
    def stride(self) -> int | None:
        """Ids from the beginning of one block to that of the next, where that is one number."""

    def __len__(self) -> int:
        """How many blocks there are."""

    def gather(self, blocks: np.ndarray) -> Blocks:
        """The blocks of these numbers, int64 `(n,)`, each from 0 to `len - 1`, in one step."""

    def account(self, byte_lengths: np.ndarray | None) -> Account:
        """What an epoch keeps and loses; `byte_lengths`: int64 `(vocab_size,)`, bytes of text of every id."""


class Contiguous:
    """`block_size + 1` ids from the stream, documents running on: nanoGPT's way, with no window drawn twice.

    With the default stride, `block_size`, every id but the first is a target exactly once, up to the last whole block.
    The first id has nothing before it; what is behind the last whole block (at most `stride - 1` ids) is lost.
    """

    name: ClassVar[str] = "contiguous"

    def __init__(self, file: IdFile, block_size: int, stride: int | None, seed: int) -> None:
        """`stride`: `block_size` if `None`; smaller repeats targets, larger leaves gaps. `seed` is not used."""
        if stride is not None and stride < 1:
            raise DataError(f"stride is {stride}; it must be at least 1 (in tokens), or None for the block's size")
        self._file = file
        self._block_size = block_size
        self._stride = block_size if stride is None else stride
        spare = len(file.ids) - (block_size + 1)
        if spare < 0:
            raise DataError(
                f"{file.path} has {len(file.ids):,} ids, not enough for one block of {block_size} and the id after it; "
                "use a smaller block_size, or more text"
            )
        self._blocks = spare // self._stride + 1
        # (n_ids - block_size, block_size + 1): row i begins at id i. A view: rows overlap and take no memory.
        self._windows = np.lib.stride_tricks.sliding_window_view(file.ids, block_size + 1)

    @property
    def stride(self) -> int:
        """In tokens."""
        return self._stride

    def __len__(self) -> int:
        return self._blocks

    def gather(self, blocks: np.ndarray) -> Blocks:
        """See `Packing.gather`."""
        windows = self._windows[blocks * self._stride]  # one gather: (n, block_size + 1), in the file's own width
        return Blocks(windows[:, :-1].astype(np.int64), windows[:, 1:].astype(np.int64))

    def account(self, byte_lengths: np.ndarray | None) -> Account:
        """See `Packing.account`. Reads the lost ids, and with a stride other than the default all of them."""
        n_ids, block, stride, blocks = len(self._file.ids), self._block_size, self._stride, self._blocks
        targets = blocks * block
        kept = (blocks - 1) * min(stride, block) + block
        tokens = Amounts(n_ids, kept, n_ids - kept, targets - kept)
        if byte_lengths is None:
            return Account(blocks, tokens, None)
        end = (blocks - 1) * stride + block + 1  # behind the last target
        lost = self._size(byte_lengths, 0, 1) + self._size(byte_lengths, end, n_ids)
        repeated = 0
        if stride > block and blocks > 1:
            lost += self._size_of_gaps(byte_lengths)
        elif stride < block:
            repeated = self._size_of_targets(byte_lengths) - self._size(byte_lengths, 1, end)
        total = self._file.metadata.n_bytes
        return Account(blocks, tokens, Amounts(total, total - lost, lost, repeated))

    def _size(self, byte_lengths: np.ndarray, start: int, end: int) -> int:
        """Bytes of the ids from `start` to `end`."""
        cuts = range(start, end, _AT_ONCE)
        return sum(int(byte_lengths[self._file.ids[cut : min(cut + _AT_ONCE, end)]].sum()) for cut in cuts)

    def _size_of_targets(self, byte_lengths: np.ndarray) -> int:
        """Bytes of all targets, each as often as it is one."""
        return self._size_of_windows(byte_lengths, self._windows[:: self._stride, 1:])

    def _size_of_gaps(self, byte_lengths: np.ndarray) -> int:
        """Bytes of the ids between the targets of one block and those of the next."""
        gap = self._stride - self._block_size
        windows = np.lib.stride_tricks.sliding_window_view(self._file.ids[self._block_size + 1 :], gap)
        return self._size_of_windows(byte_lengths, windows[:: self._stride][: self._blocks - 1])

    @staticmethod
    def _size_of_windows(byte_lengths: np.ndarray, windows: np.ndarray) -> int:
        rows = max(1, _AT_ONCE // windows.shape[1])
        return sum(int(byte_lengths[windows[at : at + rows]].sum()) for at in range(0, len(windows), rows))


PACKINGS: dict[str, type[Packing]] = {Contiguous.name: Contiguous}


def get_packing(name: str) -> type[Packing]:
    """The packing of a name.

    Raises:
        DataError: there is none of that name.
    """
    if name not in PACKINGS:
        raise DataError(f"packing is {name!r}; there is {', '.join(map(repr, PACKINGS))}")
    return PACKINGS[name]
