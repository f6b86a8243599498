"""A part of an encoded split, made of whole documents that lie evenly over it: the same ones for every tokenizer."""

import dataclasses
import hashlib
from typing import Any

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.errors import DataError
from minigpt_tok.measure.token_text import EncodedSplit, split_name


@dataclasses.dataclass(frozen=True)
class SampledSplit:
    """Some documents of a split, in their order; to be read as an `IdFile` is.

    Attributes:
        ids, document_ends, document_bytes, metadata: as an `IdFile` has them.
        chosen: the documents' numbers in the whole split, int64 `(documents,)`.
    """

    ids: np.ndarray
    document_ends: np.ndarray
    document_bytes: np.ndarray
    metadata: Any
    chosen: np.ndarray


def sampled(split: EncodedSplit, max_bytes: int) -> SampledSplit | EncodedSplit:
    """Whole documents of at most `max_bytes` UTF-8 bytes in all, taken evenly from the split; the split, if it is smaller.

    Which documents are taken depends on their sizes in bytes alone, so every tokenizer's encoding gives the same ones.

    Raises:
        DataError: not one document is that small.
    """
    sizes = np.asarray(split.document_bytes, dtype=np.int64)
    if sizes.sum() <= max_bytes:
        return split
    # One after the other until one does not fit any more: going on would pick the small ones.
    left = max_bytes
    taken: list[int] = []
    for number in _spread_out(len(sizes)).tolist():
        if sizes[number] > left:
            if taken:
                break
            continue
        taken.append(number)
        left -= int(sizes[number])
    if left == max_bytes:
        raise DataError(
            f"{split_name(split)}: the smallest document has {counted(int(sizes[sizes > 0].min()), 'byte')}, more than the "
            f"{max_bytes:,} that may be scored; allow more (documents are never cut)"
        )
    chosen = np.sort(np.array(taken, dtype=np.int64))
    ends = np.asarray(split.document_ends, dtype=np.int64)
    begins = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    parts = [np.asarray(split.ids[begins[number] : ends[number]]) for number in chosen]
    metadata = dataclasses.replace(
        split.metadata,
        n_tokens=int((ends - begins)[chosen].sum()),
        n_documents=len(chosen),
        n_bytes=int(sizes[chosen].sum()),
        ids_sha256="",
        text_sha256=hashlib.sha256(f"{split.metadata.text_sha256} {chosen.tolist()}".encode()).hexdigest(),
    )
    return SampledSplit(
        ids=np.concatenate(parts),
        document_ends=np.cumsum((ends - begins)[chosen]),
        document_bytes=sizes[chosen],
        metadata=metadata,
        chosen=chosen,
    )


def _spread_out(count: int) -> np.ndarray:
    """The numbers below `count` in an order whose every beginning lies evenly over them (golden-ratio steps)."""
    return np.argsort((np.arange(count) * 0.6180339887498949) % 1.0, kind="stable")
