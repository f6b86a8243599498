"""What a packing gives: blocks of next-token prediction, and the account of an epoch of them."""

import dataclasses
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.data.id_file import IdFile

NO_TARGET = -100
"""The target of a place that has none: PyTorch's usual `ignore_index`."""

AT_ONCE = 1 << 22  # ids that an account looks at in one step


class Blocks(NamedTuple):
    """Blocks of next-token prediction, all int64 `(n_blocks, block_size)`.

    Attributes:
        inputs: ids.
        targets: target t is the id after input t, or -100 where there is none to learn.
        documents: of which document of the file each place is, where a packing keeps documents apart; else `None`.
        positions: of each place in its document's part of the block, from 0; `None` as `documents`.
    """

    inputs: np.ndarray
    targets: np.ndarray
    documents: np.ndarray | None = None
    positions: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Amounts:
    """An account in one unit, tokens or bytes of text.

    Attributes:
        total: in the id file.
        kept: of them, those that are a target at least once in an epoch.
        lost: those that never are: kept + lost = total.
        repeated: how much the targets of an epoch have beyond `kept`, since blocks overlap.
        padded: places of blocks that nothing is learned at; of bytes always 0.
        cropped: of the lost, those that were cut off because their document did not fit.
    """

    total: int
    kept: int
    lost: int
    repeated: int
    padded: int = 0
    cropped: int = 0


@dataclasses.dataclass(frozen=True)
class Account:
    """What an epoch trains on, known before it begins.

    Attributes:
        blocks: in an epoch.
        tokens: in ids, separators included. Targets and padding fill the blocks: kept + repeated + padded is
            blocks × block_size.
        bytes: in UTF-8 bytes of text; `None` where no tokenizer says how many bytes an id stands for.
    """

    blocks: int
    tokens: Amounts
    bytes: Amounts | None

    def __str__(self) -> str:
        parts = [counted(self.blocks, "block")]
        for unit, amounts in (("tokens", self.tokens), ("bytes", self.bytes)):
            if amounts is not None:
                text = f"{amounts.kept:,} of {amounts.total:,} {unit} kept, {amounts.lost:,} lost"
                text += f" ({amounts.cropped:,} of them cropped)" if amounts.cropped else ""
                text += f", {amounts.repeated:,} repeated" if amounts.repeated else ""
                parts.append(text + (f", {counted(amounts.padded, 'place')} padded" if amounts.padded else ""))
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

    @property
    def depends_on(self) -> tuple[str, ...]:
        """What blocks depend on beside the ids themselves, the block size and the stride."""

    def __len__(self) -> int:
        """How many blocks there are."""

    def gather(self, blocks: np.ndarray) -> Blocks:
        """The blocks of these numbers, int64 `(n,)`, each from 0 to `len - 1`, in one step."""

    def account(self, byte_lengths: np.ndarray | None) -> Account:
        """What an epoch keeps and loses; `byte_lengths`: int64 `(vocab_size,)`, bytes of text of every id."""


def size_of(byte_lengths: np.ndarray, ids: np.ndarray) -> int:
    """Bytes of the text of ids `(n,)`, a part at a time."""
    cuts = range(0, len(ids), AT_ONCE)
    return sum(int(byte_lengths[ids[cut : cut + AT_ONCE]].sum()) for cut in cuts)
