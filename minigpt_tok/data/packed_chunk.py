"""`PackedChunk`: some documents, tokenized and packed by themselves; what `stream.TokenStream` makes its rows of."""

from collections.abc import Sequence

import numpy as np

from minigpt_tok.data.blocks import NO_TARGET, Blocks
from minigpt_tok.data.planned import document_targets, gather_rows
from minigpt_tok.data.row_plan import Plan, plan_best_fit, plan_bos_aligned
from minigpt_tok.tokenizer import Tokenizer

_PLANNERS = {"best_fit": plan_best_fit, "bos_aligned": plan_bos_aligned}


class PackedChunk:
    """Rows of `block_size` places, the last one filled up with padding where packings of id files lose the tail.

    `len()` rows; one with nothing to learn has none.
    """

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        separator: int | None,
        packing: str,
        block_size: int,
        first_document: int = 0,
    ) -> None:
        """Tokenize and plan.

        Args:
            texts: the documents.
            tokenizer: that makes the ids.
            separator: the id after each document, or `None`.
            packing: its name, see `minigpt_tok.data.packing`.
            block_size: in tokens.
            first_document: the number of the first one, for packing `document`.
        """
        ids, offsets = tokenizer.encode_batch_to_numpy(texts, separator_id=separator)
        self._ids = ids
        self._separator = separator
        self._block_size = block_size
        self._first_document = first_document
        self._document_of: np.ndarray | None = None
        if packing in _PLANNERS:
            targets = document_targets(offsets[1:], separated=separator is not None)
            self._plan = _PLANNERS[packing](targets.starts, targets.lengths, block_size)
            return
        first = 0 if separator is not None else 1  # the first id that something is before
        starts = np.arange(first, len(ids), block_size, dtype=np.int64)
        lengths = np.minimum(len(ids) - starts, block_size)
        self._plan = Plan(np.arange(1, len(starts) + 1), starts, lengths)
        if packing == "document":
            self._document_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    def __len__(self) -> int:
        return len(self._plan.row_ends)

    def gather(self, rows: np.ndarray) -> Blocks:
        """The rows of these numbers, int64 `(n,)`."""
        blocks = gather_rows(self._plan, rows, self._ids, self._block_size, self._separator or 0)
        if self._document_of is None:
            return blocks
        # As `contiguous.Document`: a separator is of the document that it begins.
        places = self._plan.starts[rows][:, None] + np.arange(self._block_size)
        within = blocks.targets != NO_TARGET
        of_targets = self._document_of[np.minimum(places, len(self._ids) - 1)]
        documents = of_targets
        targets = blocks.targets
        if self._separator is None:
            documents = self._document_of[np.minimum(places, len(self._ids)) - 1]
            targets = np.where(documents == of_targets, targets, NO_TARGET)
        documents = np.where(within, documents, -1 - self._first_document)  # padding is by itself
        begins = np.diff(documents, axis=1, prepend=documents[:, :1]) != 0
        columns = np.arange(self._block_size)
        positions = columns - np.maximum.accumulate(np.where(begins, columns, 0), axis=1)
        return Blocks(blocks.inputs, targets, documents + self._first_document, positions)
