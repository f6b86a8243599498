"""How much text ids stand for, counted from the raw bytes of their tokens, never from decoded text.

A token may hold part of a character; decoded alone it would be U+FFFD, three bytes that the text never had. Raw bytes
add up: over a document they are the document's own bytes, and the bytes that begin a character are its characters.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.errors import DataError, TokenizerMismatchError
from minigpt_tok.tokenizer import Tokenizer

_CHUNK = 1 << 22  # ids at a time


class EncodedSplit(Protocol):
    """What is read of an `IdFile`: its arrays and its metadata."""

    @property
    def ids(self) -> Any:
        """All ids, `(n_tokens,)`."""
        ...

    @property
    def document_ends(self) -> Any:
        """End of each document in `ids`, exclusive, its separator included: int64 `(n_documents,)`."""
        ...

    @property
    def document_bytes(self) -> Any:
        """UTF-8 bytes of each document's text, separators not counted: int64 `(n_documents,)`."""
        ...

    @property
    def metadata(self) -> Any:
        """An `IdFileMetadata`."""
        ...


@dataclass(frozen=True, kw_only=True)
class SplitText:
    """The text of an encoded split.

    Attributes:
        uses: how often each id occurs, int64 `(vocab_size,)`.
        document_bytes: UTF-8 bytes of each document, int64 `(documents,)`.
        tokens: ids that stand for text.
        special_tokens: ids that do not: separators and other specials.
        bytes: of the text, in UTF-8.
        characters: of the text.
    """

    uses: np.ndarray
    document_bytes: np.ndarray
    tokens: int
    special_tokens: int
    bytes: int
    characters: int


def check_same_tokenizer(split: EncodedSplit, tokenizer: Tokenizer) -> None:
    """Refuse ids that another tokenizer made.

    Raises:
        TokenizerMismatchError: with both fingerprints.
    """
    made_by = split.metadata.tokenizer_fingerprint
    if made_by != tokenizer.fingerprint:
        raise TokenizerMismatchError(
            f"the ids of {split_name(split)} were made with the tokenizer {made_by}, and this one is "
            f"{tokenizer.fingerprint} ({tokenizer.vocab_size:,} ids): the same ids mean other text. Give the tokenizer "
            "that made them, or encode the corpus again with this one"
        )


def read_split_text(split: EncodedSplit, tokenizer: Tokenizer) -> SplitText:
    """Count the text of a split, and hold its size against what the id file says each document's size is.

    Raises:
        TokenizerMismatchError: another tokenizer made the ids.
        DataError: an id outside the vocabulary, or a document whose tokens have other bytes than its text: the ids were
            damaged, or the tokenizer drops or changes bytes.
    """
    check_same_tokenizer(split, tokenizer)
    ids, ends = split.ids, np.asarray(split.document_ends, dtype=np.int64)
    expected = np.asarray(split.document_bytes, dtype=np.int64)
    if len(ends) != len(expected) or (int(ends[-1]) if len(ends) else 0) != len(ids):
        raise DataError(
            f"{split_name(split)}: the documents end at {int(ends[-1]) if len(ends) else 0:,}, the ids at {len(ids):,}, "
            f"and {len(expected):,} documents of {len(ends):,} have a size; encode the corpus again"
        )
    byte_lengths = tokenizer.byte_lengths
    uses = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    found = np.zeros(len(ends), dtype=np.int64)
    for start in range(0, len(ids), _CHUNK):
        chunk = np.asarray(ids[start : start + _CHUNK], dtype=np.int64)
        if chunk.max() >= tokenizer.vocab_size or chunk.min() < 0:
            raise DataError(
                f"{split_name(split)}: id {chunk.max():,} is outside the vocabulary of {tokenizer.vocab_size:,} ids; "
                "encode the corpus again"
            )
        uses += np.bincount(chunk, minlength=tokenizer.vocab_size)
        found += sums_by_document(ends, np.arange(start, start + len(chunk)), byte_lengths[chunk]).astype(np.int64)
    if not np.array_equal(found, expected):
        worst = int(np.flatnonzero(found != expected)[0])
        raise DataError(
            f"{split_name(split)}: document {worst:,} has {counted(int(expected[worst]), 'byte')} of text, its tokens have "
            f"{found[worst]:,}. The ids were damaged (encode the corpus again), or this tokenizer drops or changes bytes "
            "(a base byte that its vocabulary lacks, a normalizer), and bits per byte of the text is not defined for it"
        )
    special = int(uses[list(tokenizer.special_tokens.values())].sum())
    return SplitText(
        uses=uses,
        document_bytes=expected,
        tokens=len(ids) - special,
        special_tokens=special,
        bytes=int(expected.sum()),
        characters=int(uses @ tokenizer.character_lengths),
    )


def sums_by_document(ends: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Add up values by the document in which each place of the stream lies: float64 `(documents,)`."""
    return np.bincount(np.searchsorted(ends, places, side="right"), weights=values, minlength=len(ends))


def split_name(split: EncodedSplit) -> str:
    """The corpus and split, for messages."""
    return f"{split.metadata.corpus}, {split.metadata.split}"
