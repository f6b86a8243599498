"""What `bits_per_byte` gives back, how parts of it are joined, and how two of them are compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from minigpt_tok.errors import DataError
from minigpt_tok.measure import bootstrap
from minigpt_tok.measure.bootstrap import LEVEL, RESAMPLES, Interval

PERPLEXITY_NOTE = "per token of this vocabulary: it does not compare across tokenizers"


@dataclass(frozen=True, kw_only=True, eq=False)
class BitsPerByte:
    """The score of one model on one split, with everything that it depends on.

    Attributes:
        document_bits: bits of each document, float64 `(documents,)`.
        document_bytes: UTF-8 bytes of each document, int64 `(documents,)`.
        tokens: that stand for text.
        special_tokens: that do not.
        characters: of the text.
        scored: tokens whose bits are in the sum: `tokens`, and `special_tokens` with `count_special`; fewer in a part.
        charged: of these, how many had no left context and cost log2(`vocab_size`) each.
        context: `sliding` or `blocks`.
        block_size: the most tokens of context.
        stride: how far a window begins after the one before it, in tokens.
        own_context: whether each document is scored alone (its own text as context) or in the stream of all.
        separator: the special from which a text's first token was predicted; `None`: it was charged.
        count_special: whether special tokens' bits are in the sum.
        vocab_size, fingerprint: of the tokenizer.
        corpus, split: what the text is.
        text_sha256: of its documents, as the id file has it.
    """

    document_bits: np.ndarray
    document_bytes: np.ndarray
    tokens: int
    special_tokens: int
    characters: int
    scored: int
    charged: int
    context: str
    block_size: int
    stride: int
    own_context: bool
    separator: str | None
    count_special: bool
    vocab_size: int
    fingerprint: str
    corpus: str
    split: str
    text_sha256: str

    @property
    def is_complete(self) -> bool:
        """Whether every token is in the sum; a part of a run over several devices is not."""
        return self.scored == self.tokens + (self.special_tokens if self.count_special else 0)

    @cached_property
    def bits(self) -> float:
        """Of the whole split. The sum is exact, so it does not depend on the order of documents.

        Raises:
            DataError: this is only a part, see `joined`.
        """
        if not self.is_complete:
            raise DataError(
                f"this is a part of a score ({self.scored:,} of {self.tokens:,} tokens); join all parts with "
                "BitsPerByte.joined before reading it"
            )
        return math.fsum(self.document_bits.tolist())

    @property
    def bytes(self) -> int:
        """Of the split's text, in UTF-8."""
        return int(self.document_bytes.sum())

    @property
    def documents(self) -> int:
        """How many the split has."""
        return len(self.document_bytes)

    @property
    def bits_per_byte(self) -> float:
        """Bits of all predicted tokens over UTF-8 bytes of the text, divided once."""
        return self.bits / self.bytes

    @property
    def bits_per_character(self) -> float:
        """The same bits over characters."""
        return self.bits / self.characters

    @property
    def token_perplexity(self) -> float:
        """2 to the bits per token. Of this vocabulary's tokens: it does not compare across tokenizers."""
        bits = self.bits / self.scored
        return 2.0**bits if bits < 1024 else math.inf

    @cached_property
    def interval(self) -> Interval | None:
        """The 95% interval of `bits_per_byte` by a bootstrap over documents; `None` with fewer than two of them."""
        return self.bootstrap()

    def bootstrap(self, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0) -> Interval | None:
        """As `interval`, with other choices."""
        _ = self.bits  # refuses a part
        return bootstrap.ratio_interval(
            self.document_bits, self.document_bytes, level=level, resamples=resamples, seed=seed
        )

    @property
    def context_description(self) -> str:
        """The context in words, for tables: `sliding over each document, block 128, stride 64`."""
        where = "each document" if self.own_context else "the stream"
        how = f"sliding over {where}" if self.context == "sliding" else f"blocks of {where}"
        first = f"first token after {self.separator}" if self.separator else "first token charged log2(vocabulary)"
        return f"{how}, block {self.block_size}, stride {self.stride}, {first}"

    @classmethod
    def joined(cls, parts: Sequence["BitsPerByte"]) -> "BitsPerByte":
        """One score from its parts, each made with `part=(number, of how many)` of one model on one split.

        Raises:
            DataError: no parts, parts of different runs, or not each exactly once.
        """
        if not parts:
            raise DataError("there are no parts to join")
        first = parts[0]
        summed = {"document_bits", "scored", "charged"}
        for part in parts[1:]:
            for field in fields(cls):
                mine, other = getattr(first, field.name), getattr(part, field.name)
                if field.name not in summed and not np.array_equal(mine, other):
                    raise DataError(f"parts of different runs cannot be joined: their {field.name} differ")
        whole = replace(
            first,
            document_bits=np.sum([part.document_bits for part in parts], axis=0),
            scored=sum(part.scored for part in parts),
            charged=sum(part.charged for part in parts),
        )
        if not whole.is_complete:
            raise DataError(
                f"the parts hold {whole.scored:,} tokens, the split has {whole.tokens:,}: each part is needed once"
            )
        return whole

    def to_plain(self, *, with_documents: bool = False) -> dict[str, Any]:
        """As JSON can hold it; `with_documents` adds the bits and bytes of every document."""
        plain: dict[str, Any] = {
            "bits_per_byte": self.bits_per_byte,
            "interval": None if self.interval is None else self.interval.to_plain(),
            "bits_per_character": self.bits_per_character,
            "token_perplexity": self.token_perplexity,
            "token_perplexity_note": PERPLEXITY_NOTE,
            "bits": self.bits,
            "bytes": self.bytes,
            "documents": self.documents,
        }
        plain |= {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("document_bits", "document_bytes")
        }
        if with_documents:
            plain["document_bits"] = self.document_bits.tolist()
            plain["document_bytes"] = self.document_bytes.tolist()
        return plain

    def __str__(self) -> str:
        if not self.is_complete:
            return f"a part of a score: {self.scored:,} of {self.tokens:,} tokens"
        between = self.interval and f" ({self.interval.level:.0%} {self.interval.low:.4f} to {self.interval.high:.4f})"
        return f"{self.bits_per_byte:.4f} bits per byte{between or ''}, {self.context_description}"


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Bits per byte of one model minus that of another, on the same documents. Negative: the first is better.

    Attributes:
        difference: in bits per byte.
        interval: its bootstrap interval, or `None` with fewer than two documents.
        seeds: how many runs of each model the means are over, (first, second).
        documents: how many they were scored on.
    """

    difference: float
    interval: Interval | None
    seeds: tuple[int, int]
    documents: int

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves no doubt which is better: it exists and does not contain 0."""
        return self.interval is not None and (self.interval.low > 0 or self.interval.high < 0)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "difference": self.difference,
            "interval": None if self.interval is None else self.interval.to_plain(),
            "seeds": list(self.seeds),
            "documents": self.documents,
        }


Scores = BitsPerByte | Sequence[BitsPerByte]  # of one model, or of several runs of it with different seeds


def paired_difference(
    a: Scores, b: Scores, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> PairedDifference:
    """How much two models differ on one split, in bits per byte of `a` minus `b`, with a paired bootstrap interval.

    Args:
        a, b: a score, or a list of scores of runs that differ in their seed alone (their mean is compared, and the
            bootstrap draws runs as well as documents).
        level, resamples, seed: of the interval.

    Raises:
        DataError: the documents are not the same ones, or a list is empty.
    """
    runs_a, runs_b = ([scores] if isinstance(scores, BitsPerByte) else list(scores) for scores in (a, b))
    if not runs_a or not runs_b:
        raise DataError("there are no scores to compare")
    n_bytes = runs_a[0].document_bytes
    for run in [*runs_a, *runs_b]:
        if run.text_sha256 != runs_a[0].text_sha256 or not np.array_equal(run.document_bytes, n_bytes):
            raise DataError(
                f"{runs_a[0].corpus}, {runs_a[0].split} and {run.corpus}, {run.split} have different documents "
                f"({len(n_bytes):,} and {run.documents:,}, {n_bytes.sum():,} and {run.bytes:,} bytes); a paired "
                "difference needs both models scored on the same ones, in the same order"
            )
    mean_a, mean_b = (math.fsum(run.bits_per_byte for run in runs) / len(runs) for runs in (runs_a, runs_b))
    return PairedDifference(
        difference=mean_a - mean_b,
        interval=bootstrap.difference_interval(
            np.stack([run.document_bits for run in runs_a]),
            np.stack([run.document_bits for run in runs_b]),
            n_bytes,
            level=level,
            resamples=resamples,
            seed=seed,
        ),
        seeds=(len(runs_a), len(runs_b)),
        documents=len(n_bytes),
    )
