"""The calls of a readable byte-level trainer: Qwen2's pattern, ties to the pair seen first, eight special tokens last.

>>> merges, vocab = train_bpe(["the cat sat on the mat. the cat ate the rat."], 2)
>>> merges, vocab[257]
({(97, 116): 256, (116, 104): 257}, b'th')
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from minigpt_tok import tokenizer as core
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.recipes import CHAT_TOKENS, get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.errors import TokenizerError

PATTERN = PATTERNS["digits1"]
"""The regular expression that cuts pieces; numbers stand alone."""

Token = TypeVar("Token")


def pair_counts(
    sequences: Sequence[int] | Iterable[Sequence[int]] | Mapping[Sequence[int], int],
) -> Counter[tuple[int, int]]:
    """How often each pair of neighbours occurs, in the order in which they are first seen.

    `[1, 2, 1, 2]` → `{(1, 2): 2, (2, 1): 1}`. Takes one sequence of ids, several, or a mapping from sequence to how
    often it occurs; `[1, 1, 1]` counts `(1, 1)` twice.
    """
    weighted: Iterable[tuple[Sequence[int], int]]
    if isinstance(sequences, Mapping):
        weighted = sequences.items()
    else:
        several = list(sequences)
        one = all(isinstance(id, int) for id in several)
        weighted = [(several, 1)] if one else [(sequence, 1) for sequence in several]  # type: ignore[list-item,misc]
    counts: Counter[tuple[int, int]] = Counter()
    for sequence, count in weighted:
        for pair in pairwise(sequence):
            counts[pair] += count
    return counts


def merge(ids: Sequence[Token], pair: tuple[Token, Token], new_id: Token) -> list[Token]:
    """Replace a pair, left to right without overlap: `merge([1, 1, 1], (1, 1), 9)` → `[9, 1]`."""
    merged: list[Token] = []
    place = 0
    while place < len(ids):
        if place + 1 < len(ids) and (ids[place], ids[place + 1]) == pair:
            merged.append(new_id)
            place += 2
        else:
            merged.append(ids[place])
            place += 1
    return merged


def train_bpe(
    texts: Iterable[str], n_merges: int, verbose: bool = False
) -> tuple[dict[tuple[int, int], int], dict[int, bytes]]:
    """Learn up to `n_merges` merges: (left id, right id) → new id in the order learned, and id → bytes.

    Args:
        texts: documents; one text alone counts as a list of it.
        verbose: print every merge with its count.

    Raises:
        TokenizerError: a number of merges below 0.
        CorpusError: no text.
    """
    if n_merges < 0:
        raise TokenizerError(f"n_merges is {n_merges}; the least is 0")
    tokenizer = _train(texts, 256 + n_merges, ())
    if verbose:
        _print_merges(tokenizer)
    return _merges(tokenizer), tokenizer.vocab


class BPETokenizer:
    """Trains, encodes and decodes; special tokens have the last ids and are matched in text.

    Attributes:
        merges: (left id, right id) → new id, in the order learned.
        vocab: id → bytes.
        special_tokens: special token → id.
        vocab_size: ids in all.
        tokenizer: the core's value.
    """

    def __init__(self, special_tokens: Sequence[str] = CHAT_TOKENS) -> None:
        self._special_tokens = tuple(special_tokens)
        self._tokenizer: core.Tokenizer | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: core.Tokenizer) -> "BPETokenizer":
        """A view of any byte-level tokenizer, its ids in this layout: bytes by value, merges, specials.

        So a production tokenizer of 32,768 ids, which has 8 specials, 256 bytes and 32,504 merges in this order, is
        read here; `production_layout` leads back.
        """
        made = cls(tuple(tokenizer.special_tokens))
        made._tokenizer = tokenizer.with_id_order("specials_last")
        return made

    def production_layout(self) -> core.Tokenizer:
        """The same tokenizer with its ids in the order specials, bytes by printable character, merges."""
        return self.tokenizer.with_id_order("specials_first")

    def train(self, texts: Iterable[str], vocab_size: int, verbose: bool = False) -> "BPETokenizer":
        """Learn merges until there are `vocab_size` ids, specials included; gives itself back.

        Raises:
            TokenizerError: a vocabulary smaller than bytes and specials.
            CorpusError: no text.
        """
        self._tokenizer = _train(texts, vocab_size, self._special_tokens)
        if verbose:
            _print_merges(self._tokenizer)
        return self

    @property
    def tokenizer(self) -> core.Tokenizer:
        """The core's value.

        Raises:
            TokenizerError: `train` has not been called.
        """
        if self._tokenizer is None:
            raise TokenizerError("this tokenizer is not trained; call train(texts, vocab_size) first")
        return self._tokenizer

    @property
    def merges(self) -> dict[tuple[int, int], int]:
        """(left id, right id) → new id, in the order learned."""
        return _merges(self.tokenizer)

    @property
    def vocab(self) -> dict[int, bytes]:
        """Id → bytes, specials as their text."""
        return self.tokenizer.vocab

    @property
    def special_tokens(self) -> dict[str, int]:
        """Special token → id."""
        return dict(self.tokenizer.special_tokens)

    @property
    def vocab_size(self) -> int:
        """Ids in all."""
        return self.tokenizer.vocab_size

    def encode(self, text: str) -> list[int]:
        """Ids of a text, specials matched."""
        return self.tokenizer.encode(text, allowed_special="all")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        return self.tokenizer.decode(ids)


def _train(texts: Iterable[str], vocab_size: int, special_tokens: tuple[str, ...]) -> core.Tokenizer:
    documents = [texts] if isinstance(texts, str) else texts
    return core.Tokenizer(*train_model(documents, vocab_size, get_recipe("readable"), special_tokens))


def _merges(tokenizer: core.Tokenizer) -> dict[tuple[int, int], int]:
    model = tokenizer.model
    return dict(zip(model.merges, model.merge_results, strict=True))


def _print_merges(tokenizer: core.Tokenizer) -> None:
    model, record = tokenizer.model, tokenizer.training
    counts = () if record is None else record.counts
    for number, (pair, new_id, count) in enumerate(zip(model.merges, model.merge_results, counts, strict=True), 1):
        token = tokenizer.token_bytes(new_id).decode("utf-8", "backslashreplace")
        print(f"merge {number}: {pair} -> {new_id} {token!r}, {count} times")  # noqa: T201  # what verbose asks for
