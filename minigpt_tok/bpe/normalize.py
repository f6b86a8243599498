"""Normalizers: what a `tokenizer.json` does to a text before it looks for words in it.

A normalizer is a tuple of steps. Each does what `tokenizers` 0.23 does, on every machine: the four normalization forms
know the characters of Unicode 9.0, lower case is Unicode 17.0's, and neither follows the running Python. Normalization
never changes for a character once it is assigned, so any newer `unicodedata` normalizes right what stands between two
characters that 9.0 did not know; those are left alone, as starters that nothing joins.

A step also says, for each character that it gives, which character before it that one stands for: offsets are counted
in the text that came in.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, ClassVar, Literal

from minigpt_tok.bpe import character_sets as sets
from minigpt_tok.bpe.classes import Ranges, class_ranges
from minigpt_tok.bpe.expression import get_expression
from minigpt_tok.bpe.model import BYTE_TO_CHARACTER, CHARACTER_TO_BYTE

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
Span = tuple[int, int]
_WITHIN_PLANE_0: Ranges = ((0, 0xFFFF),)
_CAPITAL_I_WITH_DOT = 0x130  # the one character whose lower case is two


class Step(ABC):
    """One step; frozen, and equal to another that does the same."""

    local: ClassVar[bool] = False
    """Whether a text can be cut before any ASCII character and normalized side by side."""

    @abstractmethod
    def apply(self, text: str) -> str:
        """The text after this step; `text` is not empty."""

    @abstractmethod
    def sources(self, text: str) -> list[int]:
        """For each character of `apply(text)` the place in `text` of the one it stands for."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """As a `tokenizer.json` spells it."""


@dataclass(frozen=True)
class UnicodeForm(Step):
    """NFC, NFD, NFKC or NFKD, by Unicode 9.0."""

    form: Form
    local = True

    def apply(self, text: str) -> str:
        if text.isascii() or unicodedata.is_normalized(self.form, text):
            return text
        parts = []
        done = 0
        for match in _may_be("UNKNOWN_9").finditer(text):
            if _is("UNKNOWN_9", match[0]):
                parts += [unicodedata.normalize(self.form, text[done : match.start()]), match[0]]
                done = match.end()
        return "".join([*parts, unicodedata.normalize(self.form, text[done:])])

    def sources(self, text: str) -> list[int]:
        if text.isascii() or unicodedata.is_normalized(self.form, text):
            return list(range(len(text)))
        changes: Iterable[tuple[str, int]] = _decomposed(text, "NFKD" if "K" in self.form else "NFD")
        if self.form.endswith("C"):
            changes = _composed(changes)
        # How many characters a result takes up is 1 less its change. One that takes up none stands for the one before.
        places = []
        at = 0
        for _, change in changes:
            places.append(max(at - 1, 0) if change > 0 else at)
            at += max(1 - change, 0)
        return places

    def plain(self) -> dict[str, Any]:
        return {"type": self.form}


@dataclass(frozen=True)
class Lowercase(Step):
    """Each character's lower case by itself, by Unicode 17.0: no other sigma at the end of a word."""

    local = True

    def apply(self, text: str) -> str:
        return text.lower() if text.isascii() else text.translate(_lower_case())

    def sources(self, text: str) -> list[int]:
        two = chr(_CAPITAL_I_WITH_DOT)
        return [place for place, character in enumerate(text) for _ in range(2 if character == two else 1)]

    def plain(self) -> dict[str, Any]:
        return {"type": "Lowercase"}


@dataclass(frozen=True)
class StripAccents(Step):
    """Removes combining marks; it decomposes nothing."""

    local = True

    def apply(self, text: str) -> str:
        if text.isascii():
            return text
        return _may_be("COMBINING").sub(lambda match: "" if _is("COMBINING", match[0]) else match[0], text)

    def sources(self, text: str) -> list[int]:
        return [place for place, character in enumerate(text) if not _is("COMBINING", character)]

    def plain(self) -> dict[str, Any]:
        return {"type": "StripAccents"}


@dataclass(frozen=True)
class Strip(Step):
    """Removes white space at the ends."""

    left: bool
    right: bool

    def apply(self, text: str) -> str:
        if self.left:
            text = text.lstrip(_white_space())
        return text.rstrip(_white_space()) if self.right else text

    def sources(self, text: str) -> list[int]:
        start = len(text) - len(text.lstrip(_white_space())) if self.left else 0
        return list(range(start, start + len(self.apply(text))))

    def plain(self) -> dict[str, Any]:
        return {"type": "Strip", "strip_left": self.left, "strip_right": self.right}


@dataclass(frozen=True)
class Prepend(Step):
    """Puts a text in front of every text that is not empty."""

    text: str

    def apply(self, text: str) -> str:
        return self.text + text

    def sources(self, text: str) -> list[int]:
        return [0] * len(self.text) + list(range(len(text)))

    def plain(self) -> dict[str, Any]:
        return {"type": "Prepend", "prepend": self.text}


@dataclass(frozen=True)
class Replace(Step):
    """Puts a text in the place of every match of an expression, or of another text."""

    pattern: str
    is_expression: bool
    content: str

    def apply(self, text: str) -> str:
        if not self.is_expression:
            return text.replace(self.pattern, self.content)
        parts = []
        done = 0
        for start, end in self._matches(text):
            parts += [text[done:start], self.content]
            done = end
        return "".join([*parts, text[done:]])

    def sources(self, text: str) -> list[int]:
        places: list[int] = []
        done = 0
        for start, end in self._matches(text):
            places.extend(range(done, start))
            places.extend([max(end - 1, 0)] * len(self.content))  # all stand for the last character that was replaced
            done = end
        return [*places, *range(done, len(text))]

    def _matches(self, text: str) -> Iterator[Span]:
        if self.is_expression:
            return get_expression(self.pattern).matches(text)
        return (match.span() for match in re.finditer(re.escape(self.pattern), text))

    def plain(self) -> dict[str, Any]:
        return {
            "type": "Replace",
            "pattern": {"Regex" if self.is_expression else "String": self.pattern},
            "content": self.content,
        }


@dataclass(frozen=True)
class ToPrintable(Step):
    """Spells every byte of the text's UTF-8 as the printable character that stands for it: ByteLevel."""

    def apply(self, text: str) -> str:
        return to_printable(text)

    def sources(self, text: str) -> list[int]:
        return [place for place, character in enumerate(text) for _ in character.encode("utf-8")]

    def plain(self) -> dict[str, Any]:
        return {"type": "ByteLevel"}


@dataclass(frozen=True)
class Normalizer:
    """Steps, one after the other. Neutral where there are none: then a model has `None`."""

    steps: tuple[Step, ...]

    def __call__(self, text: str) -> str:
        for step in self.steps:
            if not text:
                break
            text = step.apply(text)
        return text

    def with_spans(self, text: str, spans: list[Span]) -> tuple[str, list[Span]]:
        """The normalized text, and for each of its characters the span of the one of `text` that it stands for."""
        for step in self.steps:
            if not text:
                break
            sources = step.sources(text)
            text = step.apply(text)
            spans = [spans[place] for place in sources]
        return text, spans

    @cached_property
    def local(self) -> bool:
        """Whether a text can be cut before any ASCII character and normalized side by side."""
        return all(step.local for step in self.steps)

    @cached_property
    def gives_printable(self) -> bool:
        """Whether what comes out is spelled in the printable characters that stand for bytes."""
        return any(isinstance(step, ToPrintable) for step in self.steps)

    def plain(self) -> list[dict[str, Any]]:
        """As a `tokenizer.json` spells the steps."""
        return [step.plain() for step in self.steps]


@cache
def _printable_table() -> dict[int, str]:
    return dict(BYTE_TO_CHARACTER)


def to_printable(text: str) -> str:
    """Each byte of the text's UTF-8 as the character that stands for it in GPT-2's files."""
    # Latin-1 makes every byte a character of the same number. A lone surrogate is an error, as where a text is encoded.
    return text.encode("utf-8").decode("latin-1").translate(_printable_table())


def from_printable(piece: str) -> bytes:
    """The bytes that a piece in printable characters spells; a character that stands for no byte is dropped."""
    return bytes(byte for character in piece if (byte := CHARACTER_TO_BYTE.get(character)) is not None)


@cache
def _lower_case() -> dict[int, int | str]:
    return {**sets.lower_case(), _CAPITAL_I_WITH_DOT: "i\u0307"}


@cache
def _white_space() -> str:
    return "".join(chr(point) for first, last in class_ranges("White_Space") for point in range(first, last + 1))


@cache
def _class(name: str) -> Ranges:
    return sets.complement(sets.rust_class("ASSIGNED_9")) if name == "UNKNOWN_9" else sets.rust_class(name)


@lru_cache(maxsize=4096)
def _is(name: str, character: str) -> bool:
    return sets.contains(_class(name), ord(character))


@cache
def _may_be(name: str) -> "re.Pattern[str]":
    """An expression for one character of a class up to U+FFFF, which `re` finds in a bitmap, or for any beyond."""
    within = sets.union(sets.intersection(_class(name), _WITHIN_PLANE_0), ((0x10000, sets.LAST),))
    return re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in within) + "]")


# Normalization character by character, with what became of each


def _combining(character: str) -> int:
    return 0 if _is("UNKNOWN_9", character) else unicodedata.combining(character)


def _decomposed(text: str, form: Literal["NFD", "NFKD"]) -> list[tuple[str, int]]:
    """(character, change): 0 for the first that a character of the text becomes, 1 for the others; in canonical order."""
    result: list[tuple[str, int]] = []
    marks: list[tuple[int, str, int]] = []
    for character in text:
        parts = character if _is("UNKNOWN_9", character) else unicodedata.normalize(form, character)
        for place, part in enumerate(parts):
            kind = _combining(part)
            if kind == 0:
                result += [(mark, change) for _, mark, change in sorted(marks, key=lambda mark: mark[0])]
                marks.clear()
                result.append((part, int(place > 0)))
            else:
                marks.append((kind, part, int(place > 0)))
    return result + [(mark, change) for _, mark, change in sorted(marks, key=lambda mark: mark[0])]


def _composed(parts: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Joins what composes; the change of a composed character counts the characters that it took in."""
    starter: tuple[str, int] | None = None
    between: list[tuple[str, int]] = []  # marks after the starter that did not join it
    last_kind = 0
    for character, change in parts:
        kind = _combining(character)
        if starter is None:
            if kind != 0:
                yield character, change
            else:
                starter = character, change
            continue
        blocked = bool(between) and last_kind >= kind
        if not blocked and (joined := _pair(starter[0], character)) is not None:
            starter = joined, starter[1] + change - 1
        elif kind == 0:
            yield starter
            yield from between
            starter, between = (character, change), []
        else:
            between.append((character, change))
            last_kind = kind
    if starter is not None:
        yield starter
    yield from between


def _pair(first: str, second: str) -> str | None:
    """The one character that two compose to."""
    if _is("UNKNOWN_9", first) or _is("UNKNOWN_9", second):
        return None
    joined = unicodedata.normalize("NFC", first + second)
    return joined if len(joined) == 1 else None
