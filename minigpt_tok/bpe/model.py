"""The value that decides ids: base tokens, merges or ranks, pattern, added tokens, normalizer.

Everything else (file formats, caches, training records, decoders) leads to such a value or follows from it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from minigpt_tok.bpe.normalize import Normalizer
    from minigpt_tok.bpe.pipeline import Pipeline

Unit = Literal["byte", "character"]
RankRule = Literal["pair", "bytes"]

ALL_BYTES = tuple(bytes([value]) for value in range(256))


def _byte_characters() -> dict[int, str]:
    """Byte → the printable character that stands for it in GPT-2's files.

    Printable Latin-1 stands for itself; the other 68 bytes take U+0100 onwards in order (source: GPT-2's encoder.py).
    `0x20` → `Ġ` (U+0120), `0x0A` → `Ċ` (U+010A), `0x41` → `A`.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    return {value: chr(value) for value in printable} | {value: chr(0x100 + n) for n, value in enumerate(others)}


BYTE_TO_CHARACTER = _byte_characters()
CHARACTER_TO_BYTE = {character: value for value, character in BYTE_TO_CHARACTER.items()}
_TO_LATIN_1 = {ord(character): value for character, value in CHARACTER_TO_BYTE.items()}
# What stands for no byte must not come out as one: characters below U+0100 that are not among the printable ones.
_TO_LATIN_1 |= {code: 0x100 + code for code in range(0x100) if chr(code) not in CHARACTER_TO_BYTE}
# Base bytes in the order in which Hugging Face numbers them: by code point of their printable character.
BYTES_BY_CHARACTER = tuple(bytes([value]) for value in sorted(range(256), key=lambda value: BYTE_TO_CHARACTER[value]))


def bytes_of(text: str) -> bytes:
    """The bytes that printable characters stand for.

    Raises:
        KeyError: with the first character that stands for none.
    """
    try:
        return text.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError as error:
        raise KeyError(text[error.start]) from None


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A string with its own id, matched in text before pre-tokenization; special or not.

    The flags are Hugging Face's: `lstrip`/`rstrip` take the white space on that side into the match, `single_word`
    matches only where no word character touches it, `normalized` matches after the normalizer instead of before.
    """

    content: str
    id: int
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


@dataclass(frozen=True, kw_only=True)
class BPEModel:
    """What decides the ids of a text. Immutable; two equal models give equal ids for every text.

    Attributes:
        unit: what a base token is, a byte or a character.
        tokens: the raw bytes of every id; `None` where the id is a hole, or an added token's that no merge leads to.
        merges: pairs of ids, by rank. Empty under the rule `bytes`, whose ranks are the ids.
        merge_results: the id that each merge makes.
        rank_rule: `pair`: two neighbours merge if the pair is in `merges`; `bytes`: if their joined bytes are a token.
        whole_piece: a piece that is a token is taken whole, before any merge.
        pattern: a named pattern, or a regular expression; `none` where there is a pipeline.
        added_tokens: by id.
        normalizer: what is done to a text first; `None` for nothing.
        pipeline: how a text is cut where that is more than one pattern.
    """

    unit: Unit = "byte"
    tokens: tuple[bytes | None, ...]
    merges: tuple[tuple[int, int], ...] = ()
    merge_results: tuple[int, ...] = ()
    rank_rule: RankRule = "pair"
    whole_piece: bool = False
    pattern: str = "gpt2"
    added_tokens: tuple[AddedToken, ...] = ()
    normalizer: "Normalizer | None" = None
    pipeline: "Pipeline | None" = None

    @property
    def vocab_size(self) -> int:
        """The largest id plus one."""
        return len(self.tokens)

    @cached_property
    def id_of(self) -> dict[bytes, int]:
        """Raw bytes → id, added tokens left out."""
        return {token: id for id, token in enumerate(self.tokens) if token is not None}

    @cached_property
    def base_ids(self) -> dict[bytes, int]:
        """Base token → id: the single bytes, or the characters as UTF-8, that the vocabulary has."""
        if self.unit == "byte":
            return {token: id for token, id in self.id_of.items() if len(token) == 1}
        made = set(self.merge_results)
        return {token: id for token, id in self.id_of.items() if id not in made}

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """The ids of the added tokens."""
        return frozenset(token.id for token in self.added_tokens)

    @cached_property
    def ids_by_rank(self) -> tuple[int, ...]:
        """The ids that are neither base nor added, in the order of their ids."""
        base = set(self.base_ids.values())
        return tuple(id for id, token in enumerate(self.tokens) if token is not None and id not in base)
