"""What a tokenizer's methods take as texts and ids, and what is said where it is something else."""

from collections.abc import Iterable
from mmap import mmap
from typing import SupportsIndex, TypeVar

import numpy as np

from minigpt_tok.errors import TokenizerError

Buffer = bytes | bytearray | memoryview | mmap
T = TypeVar("T")
Ids = Iterable[SupportsIndex]  # lists, NumPy arrays and torch tensors of ids, and their elements


def checked_text(text: str) -> str:
    """The text.

    Raises:
        TokenizerError: it is something else.
    """
    if not isinstance(text, str):
        raise TokenizerError(f"text is {type(text).__name__}, not str; decode bytes first, e.g. data.decode('utf-8')")
    return text


def checked_batch(texts: Iterable[T]) -> Iterable[T]:
    """The texts.

    Raises:
        TokenizerError: it is one text.
    """
    if isinstance(texts, (str, bytes)):
        raise TokenizerError(f"texts is one {type(texts).__name__}; pass a list of texts, or call encode")
    return texts


def checked_list(texts: Iterable[T]) -> list[T]:
    """As `checked_batch`, in a list."""
    texts = checked_batch(texts)
    return texts if isinstance(texts, list) else list(texts)


def as_list_or_array(ids: Ids) -> list[int] | np.ndarray:
    """Ids of whatever kind, as one that the decoder takes.

    Raises:
        TokenizerError: they are no integers, or not one sequence of them.
    """
    if type(ids) is list and (not ids or type(ids[0]) is int):
        return ids  # anything else further on is found when it is decoded
    if hasattr(ids, "__array__"):  # arrays, and tensors on any device
        array = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
        if array.ndim != 1:
            raise TokenizerError(f"ids have the shape {array.shape}; decode one sequence at a time")
        if array.size and array.dtype.kind not in "iu":
            raise TokenizerError(f"ids are {array.dtype}, not integers")
        return array.astype(np.int64) if array.dtype.kind not in "iu" else array
    try:
        return [id.__index__() for id in ids]
    except (AttributeError, TypeError):
        raise TokenizerError("ids are not all integers") from None
