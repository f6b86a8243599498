"""`TokenDataset`: a map-style PyTorch dataset of blocks over a memory-mapped id file.

Whole batches come in one step: PyTorch's loader calls `__getitems__` with a batch's indices, and with
`collate_fn=TokenDataset.collate` what that gathered is the batch, without a loop over its blocks. Any other collate
function gets the blocks one by one, as from any dataset.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch.utils.data import Dataset

from minigpt_tok.data.decode import check_tokenizer
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.packing import Account, Packing, get_packing
from minigpt_tok.errors import DataError
from minigpt_tok.files import StrPath
from minigpt_tok.tokenizer import Tokenizer

log = logging.getLogger(__name__)

# Inputs and targets, int64 (block_size,); of a batch (batch, block_size). Where a packing keeps documents apart, a dict of
# these with the keys `inputs`, `targets`, `documents` and `positions`.
Block = tuple[torch.Tensor, torch.Tensor] | dict[str, torch.Tensor]


class BlockBatch(Sequence[Block]):
    """The blocks of a batch: tensors, int64 `(batch, block_size)`, that can also be read block by block.

    Attributes:
        inputs, targets, documents, positions: see `minigpt_tok.data.blocks.Blocks`.
    """

    def __init__(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        documents: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
    ) -> None:
        self.inputs = inputs
        self.targets = targets
        self.documents = documents
        self.positions = positions

    def to(self, device: torch.device | str) -> "BlockBatch":
        """The same on a device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "BlockBatch":
        optional = (None if part is None else change(part) for part in (self.documents, self.positions))
        return BlockBatch(change(self.inputs), change(self.targets), *optional)

    @property
    def whole(self) -> Block:
        """All blocks at once, in the form of one."""
        if self.documents is None or self.positions is None:
            return self.inputs, self.targets
        return {
            "inputs": self.inputs,
            "targets": self.targets,
            "documents": self.documents,
            "positions": self.positions,
        }

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> Any:
        """One block, or of a slice a smaller batch."""
        part = self._each(lambda tensor: tensor[index])
        return part if isinstance(index, slice) else part.whole

    def __iter__(self) -> Iterator[Block]:
        return (self[row] for row in range(len(self)))


class TokenDataset(Dataset[Block]):
    """Blocks of ids and their next-token targets. Nothing is loaded; it may be shared, forked, and pickled (by path).

    Attributes:
        id_file: the file, with `metadata`.
        block_size: in tokens.
        stride: from one block to the next, in tokens.
        seed: what this dataset's order is drawn from (`order.ResumableSampler` takes it).
    """

    def __init__(
        self,
        path: StrPath,
        block_size: int,
        *,
        tokenizer: Tokenizer | None = None,
        packing: str = "contiguous",
        stride: int | None = None,
        seed: int = 0,
        split: str = "train",
    ) -> None:
        """Open an id file.

        Args:
            path: an id file, or the folder that `encode_corpus` filled.
            block_size: ids in an item's inputs, and in its targets.
            tokenizer: the one that the ids must be of; it also lets the account speak of bytes.
            packing: how blocks are cut from the ids, see `packing`.
            stride: ids from one block's beginning to the next; `block_size` if `None`: every target once.
            seed: for what a packing or an order draws.
            split: which file, where `path` is a folder.

        Raises:
            TokenizerMismatchError: the ids were made with another tokenizer.
            FormatError: the file is damaged, or no id file.
            DataError: there is no such file, not one block in it, or an option makes no sense.
        """
        if block_size < 1:
            raise DataError(f"block_size is {block_size}; it must be at least 1 (in tokens)")
        kind = get_packing(packing)
        self.id_file = IdFile(id_file_in(path, split))
        if tokenizer is not None:
            check_tokenizer(self.id_file, tokenizer)
        self.block_size = block_size
        self.packing = packing
        self.seed = seed
        self._byte_lengths = None if tokenizer is None else tokenizer.byte_lengths
        self._account: Account | None = None
        self._wanted_stride = stride
        self._packing: Packing = kind(self.id_file, block_size, stride, seed)
        lost = self._packing.account(None).tokens.lost
        log.info("%s: %d blocks of %d; %d ids are no target", self.id_file.path, len(self), block_size, lost)

    @property
    def stride(self) -> int | None:
        """Ids from the beginning of one block to that of the next, where that is one number."""
        return self._packing.stride

    @property
    def account(self) -> Account:
        """What an epoch keeps, loses and repeats, in tokens and, if a tokenizer was given, in bytes."""
        if self._account is None:
            self._account = self._packing.account(self._byte_lengths)
        return self._account

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the ids (by their hash), their tokenizer and the packing: all that decides what block n is."""
        data = self.id_file.metadata
        blocks = (data.tokenizer_fingerprint, data.ids_sha256, self.packing, self.block_size, self.stride)
        parts = (*blocks, *self._packing.depends_on)
        return hashlib.sha256(repr(parts).encode("utf-8")).hexdigest()

    def __len__(self) -> int:
        return len(self._packing)

    def __getitem__(self, index: SupportsIndex) -> Block:
        """(inputs, targets), int64 `(block_size,)` each: target t is the id after input t, or -100 for none.

        With packing `document` a dict of these, `documents` and `positions`.
        """
        number = index.__index__()
        if not -len(self) <= number < len(self):
            raise IndexError(f"block {number} of {len(self):,}")
        return self.__getitems__([number % len(self)])[0]  # type: ignore[no-any-return]

    def __getitems__(self, indices: Sequence[int] | np.ndarray) -> BlockBatch:
        """The blocks of these numbers (0 to `len - 1`), in one step; PyTorch's loader calls this for each batch."""
        numbers = np.asarray(indices, dtype=np.int64)
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self):
            raise IndexError(f"blocks {int(numbers.min())} to {int(numbers.max())} of {len(self):,}")
        blocks = self._packing.gather(numbers)
        return BlockBatch(*(None if part is None else torch.from_numpy(part) for part in blocks))  # type: ignore[arg-type]

    @staticmethod
    def collate(batch: Sequence[Block]) -> Block:
        """For `DataLoader(collate_fn=…)`: what an item has, int64 `(batch, block_size)` each."""
        if isinstance(batch, BlockBatch):
            return batch.whole
        # Of a data set around this one that fetches block by block.
        if isinstance(batch[0], dict):
            return {key: torch.stack([block[key] for block in batch]) for key in batch[0]}  # type: ignore[call-overload]
        inputs, targets = zip(*batch, strict=True)
        return torch.stack(inputs), torch.stack(targets)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_packing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._packing = get_packing(self.packing)(self.id_file, self.block_size, self._wanted_stride, self.seed)

    def __repr__(self) -> str:
        return f"<TokenDataset of {self.id_file.path.name}: {len(self):,} blocks of {self.block_size}, {self.packing}>"


def id_file_in(path: StrPath, split: str) -> Path:
    """The id file itself, or that of a split in a folder.

    Raises:
        DataError: there is none; the message names what the folder has.
    """
    target = Path(path)
    if target.is_dir():
        found = sorted(file.stem for file in target.glob("*.safetensors"))
        target = target / f"{split}.safetensors"
        if not target.is_file():
            has = f"it has {', '.join(found)}" if found else "encode a corpus into it first"
            raise DataError(f"{path} has no {split}.safetensors ({has})")
    elif not target.is_file():
        raise DataError(f"{path}: no such id file; encode a corpus first")
    return target
