"""Packings that cut the stream of ids as it is: `contiguous`, and `document`, which keeps documents apart."""

import dataclasses
import hashlib
from typing import ClassVar

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.data.blocks import AT_ONCE, NO_TARGET, Account, Amounts, Blocks, size_of
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import DataError


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
                f"{file.path} has {counted(len(file.ids), 'id')}, not enough for one block of {block_size} and the id after it; "
                "use a smaller block_size, or more text"
            )
        self._blocks = spare // self._stride + 1
        # (n_ids - block_size, block_size + 1): row i begins at id i. A view: rows overlap and take no memory.
        self._windows = np.lib.stride_tricks.sliding_window_view(file.ids, block_size + 1)

    @property
    def stride(self) -> int:
        """In tokens."""
        return self._stride

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Nothing else."""
        return ()

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
        return size_of(byte_lengths, self._file.ids[start:end])

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
        rows = max(1, AT_ONCE // windows.shape[1])
        return sum(int(byte_lengths[windows[at : at + rows]].sum()) for at in range(0, len(windows), rows))


class Document(Contiguous):
    """The same blocks, with a document number and a position for every place: no attention across documents.

    Resetting positions alone would not stop it; a model must also mask attention by the document numbers.

    A separator ends one document as a target and begins the next one as an input: it belongs to the document of the id
    that it predicts, at position 0. So a document's first id is predicted from the separator alone, every target of
    `contiguous` is still one, and nothing before the separator is seen. Without separators there is nothing that a
    document's first id could be predicted from, and it is no target. A document that a block cuts goes on in the next
    one at position 0.
    """

    name: ClassVar[str] = "document"

    def __init__(self, file: IdFile, block_size: int, stride: int | None, seed: int) -> None:
        """As `Contiguous`."""
        super().__init__(file, block_size, stride, seed)
        self._separated = file.metadata.separator_id is not None

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Where documents end."""
        return (digest_of_documents(self._file),)

    def gather(self, blocks: np.ndarray) -> Blocks:
        """See `Packing.gather`."""
        inputs, targets, *_ = super().gather(blocks)
        n, size = inputs.shape
        ends = self._file.document_ends
        # The place in the file of the id whose document column 0 belongs to, and so on from there.
        first = blocks * self._stride + self._separated
        documents = np.searchsorted(ends, first, side="right")
        counts = np.searchsorted(ends, first + size, side="right") - documents  # documents that begin in the block
        rows = np.repeat(np.arange(n), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        numbers = np.repeat(documents, counts) + np.arange(len(rows)) - before
        columns = np.asarray(ends[numbers]) - first[rows]  # 1 … size
        # How many documents begin at each column: more than one where some are empty.
        begins = np.bincount(rows * (size + 1) + columns, minlength=n * (size + 1)).reshape(n, size + 1)
        if not self._separated:
            targets[begins[:, 1:] > 0] = NO_TARGET
        begins = begins[:, :size]
        positions = np.arange(size) - np.maximum.accumulate(np.where(begins > 0, np.arange(size), 0), axis=1)
        return Blocks(inputs, targets, documents[:, None] + np.cumsum(begins, axis=1), positions)

    def account(self, byte_lengths: np.ndarray | None) -> Account:
        """See `Packing.account`. Without separators, first ids are taken out of what `Contiguous` keeps."""
        account = super().account(byte_lengths)
        if self._separated:
            return account
        ends = np.asarray(self._file.document_ends, dtype=np.int64)
        firsts = np.unique(ends[(ends > 0) & (ends < len(self._file.ids))])
        low = -(-np.maximum(firsts - self._block_size, 0) // self._stride)  # the first block that has it as a target
        high = np.minimum((firsts - 1) // self._stride, self._blocks - 1)
        times = np.maximum(high - low + 1, 0)
        tokens = _without(account.tokens, np.ones_like(firsts), times)
        tokens = dataclasses.replace(tokens, padded=int(times.sum()))
        if byte_lengths is None or account.bytes is None:
            return Account(account.blocks, tokens, None)
        return Account(account.blocks, tokens, _without(account.bytes, byte_lengths[self._file.ids[firsts]], times))


def _without(amounts: Amounts, weights: np.ndarray, times: np.ndarray) -> Amounts:
    """An account less targets of these weights that are met so many times."""
    kept = int(weights[times > 0].sum())
    return dataclasses.replace(
        amounts,
        kept=amounts.kept - kept,
        lost=amounts.lost + kept,
        repeated=amounts.repeated - int((weights * np.maximum(times - 1, 0)).sum()),
    )


def digest_of_documents(file: IdFile) -> str:
    """SHA-256 over where documents end in a file, and its separator's id."""
    digest = hashlib.sha256(f"{file.metadata.separator_id} {len(file.ids)} ".encode("ascii"))
    for start in range(0, len(file.document_ends), AT_ONCE):
        digest.update(np.ascontiguousarray(file.document_ends[start : start + AT_ONCE]).data)
    return digest.hexdigest()
