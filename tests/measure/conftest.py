"""Encoded splits in memory, with the parts of an id file that measuring reads, and tokenizers to make them with."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from minigpt_tok import Tokenizer, train_tokenizer
from minigpt_tok.data.id_format import IdFileMetadata


@dataclass
class Split:
    ids: np.ndarray
    document_ends: np.ndarray
    document_bytes: np.ndarray
    metadata: IdFileMetadata


def _encoded(documents: list[str], tokenizer: Tokenizer, separator: str | None = None) -> Split:
    tail = [] if separator is None else [tokenizer.special_tokens[separator]]
    lists = [tokenizer.encode(document) + tail for document in documents]
    return Split(
        ids=np.array([id for ids in lists for id in ids], dtype=tokenizer.dtype),
        document_ends=np.cumsum([len(ids) for ids in lists]).astype(np.int64),
        document_bytes=np.array([len(document.encode()) for document in documents], dtype=np.int64),
        metadata=IdFileMetadata(
            tokenizer_fingerprint=tokenizer.fingerprint,
            tokenizer_fingerprint_version=tokenizer.fingerprint_version,
            vocab_size=tokenizer.vocab_size,
            separator=separator or "",
            separator_id=None if separator is None else tokenizer.special_tokens[separator],
            corpus="fake",
            split="validation",
            text_sha256=hashlib.sha256("\0".join(documents).encode()).hexdigest(),
        ),
    )


def _characters_of(*documents: str) -> Tokenizer:
    base = frozenset("".join(documents))
    return train_tokenizer({"train": iter(documents)}, vocab_size=len(base), recipe="character")


def _byte_level(*specials: str, merges: int = 0, text: str = "x") -> Tokenizer:
    return train_tokenizer(
        {"train": iter([text])}, vocab_size=256 + len(specials) + merges, min_frequency=1, special_tokens=specials
    )


@pytest.fixture(scope="session")
def encoded() -> Callable[..., Split]:
    """(documents, tokenizer, separator=None) → a split as an id file has it."""
    return _encoded


@pytest.fixture(scope="session")
def characters_of() -> Callable[..., Tokenizer]:
    """(*documents) → a character tokenizer without merges."""
    return _characters_of


@pytest.fixture(scope="session")
def byte_level() -> Callable[..., Tokenizer]:
    """(*specials, merges=0, text="x") → a byte-level tokenizer with so many merges learned from the text."""
    return _byte_level
