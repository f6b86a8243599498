"""Pre-tokenizers of several steps, as a `tokenizer.json` may have them: each cuts every piece of the one before.

One named pattern or one expression is a `PreTokenizer` and runs in the core; anything else is a `Pipeline`. Its pieces
need not join back to the text: steps drop white space, put a space in front, or spell bytes as printable characters
(ByteLevel), after which the next step cuts those. Each step does what `tokenizers` 0.23 does.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, get_args

from minigpt_tok.bpe import character_sets as sets
from minigpt_tok.bpe.expression import get_expression
from minigpt_tok.bpe.normalize import Span, ToPrintable, to_printable
from minigpt_tok.bpe.patterns import known_pattern_name
from minigpt_tok.bpe.pretokenize import get_pretokenizer

Behavior = Literal["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
BEHAVIORS: tuple[Behavior, ...] = get_args(Behavior)
PrependScheme = Literal["first", "never", "always"]
Stretch = tuple[int, int, bool]  # start, end, and whether it is a match


class Step(ABC):
    """One step; frozen, and equal to another that cuts alike."""

    @abstractmethod
    def cut(self, text: str) -> list[str]:
        """The pieces of one piece, which is not empty: none of them is either."""

    @abstractmethod
    def cut_with_spans(self, text: str, spans: list[Span]) -> list[tuple[str, list[Span]]]:
        """The same, with what each character of a piece stands for."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """As a `tokenizer.json` spells it."""


class Cutting(Step):
    """A step that leaves the characters as they are."""

    @abstractmethod
    def ranges(self, text: str) -> Iterable[Span]:
        """Where the pieces are, none of them empty."""

    def cut(self, text: str) -> list[str]:
        return [text[start:end] for start, end in self.ranges(text)]

    def cut_with_spans(self, text: str, spans: list[Span]) -> list[tuple[str, list[Span]]]:
        return [(text[start:end], spans[start:end]) for start, end in self.ranges(text)]


@dataclass(frozen=True)
class Split(Cutting):
    """Cuts around the matches of an expression or of a text; `invert` swaps matches and what is between them."""

    pattern: str
    is_expression: bool
    behavior: Behavior
    invert: bool

    @cached_property
    def _name(self) -> str | None:
        isolated = self.behavior == "Isolated" or (self.behavior == "Removed" and self.invert)
        return known_pattern_name(self.pattern, engine="oniguruma") if self.is_expression and isolated else None

    def cut(self, text: str) -> list[str]:
        if self._name is not None:  # which leaves nothing between its matches
            return get_pretokenizer(self._name).pieces(text)
        if self.is_expression and self.behavior == "Isolated":
            return get_expression(self.pattern).cut(text)
        return super().cut(text)

    def ranges(self, text: str) -> Iterable[Span]:
        return _kept(self._stretches(text), self.behavior)

    def _stretches(self, text: str) -> Iterator[Stretch]:
        if self.is_expression:
            matches = get_expression(self.pattern).matches(text)
        else:
            matches = (match.span() for match in re.finditer(re.escape(self.pattern), text))
        done = 0
        for start, end in matches:
            if done < start:
                yield done, start, self.invert
            yield start, end, not self.invert
            done = end
        if done < len(text):
            yield done, len(text), self.invert

    def plain(self) -> dict[str, Any]:
        return {
            "type": "Split",
            "pattern": {"Regex" if self.is_expression else "String": self.pattern},
            "behavior": self.behavior,
            "invert": self.invert,
        }


class CharacterSplit(Cutting):
    """Cuts around each character of a class."""

    behavior: Behavior

    @property
    @abstractmethod
    def one(self) -> "re.Pattern[str]":
        """An expression for one character of the class."""

    def cut(self, text: str) -> list[str]:
        return [text] if self.one.search(text) is None else super().cut(text)

    def ranges(self, text: str) -> Iterable[Span]:
        return _kept(self._stretches(text), self.behavior)

    def _stretches(self, text: str) -> Iterator[Stretch]:
        done = 0
        for match in self.one.finditer(text):
            start, end = match.span()
            if done < start:
                yield done, start, False
            yield start, end, True
            done = end
        if done < len(text):
            yield done, len(text), False


@dataclass(frozen=True)
class Digits(CharacterSplit):
    """Cuts numbers out, each by itself or as they stand together."""

    individual: bool

    @property
    def behavior(self) -> Behavior:  # type: ignore[override]
        return "Isolated" if self.individual else "Contiguous"

    @property
    def one(self) -> "re.Pattern[str]":
        return _one_of("NUMERIC")

    def plain(self) -> dict[str, Any]:
        return {"type": "Digits", "individual_digits": self.individual}


@dataclass(frozen=True)
class Punctuation(CharacterSplit):
    """Cuts around punctuation, by Unicode 8.0 and all of ASCII's symbols."""

    behavior: Behavior

    @property
    def one(self) -> "re.Pattern[str]":
        return _one_of("PUNCTUATION")

    def plain(self) -> dict[str, Any]:
        return {"type": "Punctuation", "behavior": self.behavior}


@dataclass(frozen=True)
class WhitespaceSplit(CharacterSplit):
    """Cuts at white space, and drops it."""

    behavior: Behavior = "Removed"

    @property
    def one(self) -> "re.Pattern[str]":
        return _white_space()

    def plain(self) -> dict[str, Any]:
        return {"type": "WhitespaceSplit"}


@dataclass(frozen=True)
class CharDelimiterSplit(CharacterSplit):
    """Cuts at one character, and drops it."""

    delimiter: str
    behavior: Behavior = "Removed"

    @property
    def one(self) -> "re.Pattern[str]":
        return re.compile(re.escape(self.delimiter))

    def plain(self) -> dict[str, Any]:
        return {"type": "CharDelimiterSplit", "delimiter": self.delimiter}


@dataclass(frozen=True)
class Whitespace(Cutting):
    """Keeps runs of word characters and runs of other characters, and drops white space."""

    def ranges(self, text: str) -> Iterable[Span]:
        return (match.span() for match in _words()(text).finditer(text))

    def plain(self) -> dict[str, Any]:
        return {"type": "Whitespace"}


@dataclass(frozen=True)
class FixedLength(Cutting):
    """Cuts every so many characters."""

    length: int

    def ranges(self, text: str) -> Iterable[Span]:
        size = len(text)
        return ((start, min(start + self.length, size)) for start in range(0, size, self.length))

    def plain(self) -> dict[str, Any]:
        return {"type": "FixedLength", "length": self.length}


@dataclass(frozen=True)
class Metaspace(Step):
    """Writes another character for the space, puts one in front, and cuts before each."""

    replacement: str
    prepend: PrependScheme
    split: bool

    def cut(self, text: str) -> list[str]:
        return [piece for piece, _ in self.cut_with_spans(text, [(1, 1)] * len(text))]

    def cut_with_spans(self, text: str, spans: list[Span]) -> list[tuple[str, list[Span]]]:
        text = text.replace(" ", self.replacement)
        wanted = self.prepend == "always" or (self.prepend == "first" and spans[0][0] == 0)
        if wanted and not text.startswith(self.replacement):
            text, spans = self.replacement + text, [spans[0], *spans]
        if not self.split:
            return [(text, spans)]
        return Split(self.replacement, False, "MergedWithNext", False).cut_with_spans(text, spans)

    def plain(self) -> dict[str, Any]:
        return {
            "type": "Metaspace",
            "replacement": self.replacement,
            "prepend_scheme": self.prepend,
            "split": self.split,
        }


@dataclass(frozen=True)
class ByteLevel(Step):
    """Puts a space in front, cuts as `gpt2` does, and spells the bytes as printable characters; the first two at will."""

    prefix_space: bool
    cuts: bool

    def text_pieces(self, text: str) -> list[str]:
        """The pieces before their bytes are spelled."""
        if self.prefix_space and not text.startswith(" "):
            text = f" {text}"
        return get_pretokenizer("gpt2").pieces(text) if self.cuts else [text]

    def text_pieces_with_spans(self, text: str, spans: list[Span]) -> list[tuple[str, list[Span]]]:
        """The same with spans."""
        if self.prefix_space and not text.startswith(" "):
            spans = [spans[0], *spans]
        pieces = []
        done = 0
        for piece in self.text_pieces(text):
            pieces.append((piece, spans[done : done + len(piece)]))
            done += len(piece)
        return pieces

    def cut(self, text: str) -> list[str]:
        return [to_printable(piece) for piece in self.text_pieces(text)]

    def cut_with_spans(self, text: str, spans: list[Span]) -> list[tuple[str, list[Span]]]:
        spell = ToPrintable()
        return [
            (spell.apply(piece), [piece_spans[place] for place in spell.sources(piece)])
            for piece, piece_spans in self.text_pieces_with_spans(text, spans)
        ]

    def plain(self) -> dict[str, Any]:
        return {
            "type": "ByteLevel",
            "add_prefix_space": self.prefix_space,
            "trim_offsets": True,
            "use_regex": self.cuts,
        }


@dataclass(frozen=True)
class Pipeline:
    """Steps, one after the other."""

    steps: tuple[Step, ...]

    @cached_property
    def gives_text(self) -> bool:
        """Whether the pieces are of the text itself: the only ByteLevel comes last, so its spelling can be left out."""
        kinds = [isinstance(step, ByteLevel) for step in self.steps]
        return kinds[-1:] == [True] and sum(kinds) == 1

    @cached_property
    def needs_spans(self) -> bool:
        """Whether a step asks where in the text a piece comes from."""
        return any(isinstance(step, Metaspace) and step.prepend == "first" for step in self.steps)

    def pieces(self, text: str, *, as_text: bool) -> list[str]:
        """The pieces of a text; `as_text`: before a last ByteLevel has spelled their bytes."""
        pieces = [text] if text else []
        for step in self.steps[:-1] if as_text else self.steps:
            cut = step.cut
            pieces = [part for piece in pieces for part in cut(piece)]
        if as_text:
            last = self.steps[-1]
            assert isinstance(last, ByteLevel)
            if last.prefix_space or last.cuts:
                pieces = [part for piece in pieces for part in last.text_pieces(piece)]
        return pieces

    def pieces_with_spans(self, text: str, spans: list[Span], *, as_text: bool) -> list[tuple[str, list[Span]]]:
        """The same, and for each character of a piece the span of what it stands for."""
        pieces = [(text, spans)] if text else []
        for step in self.steps[:-1] if as_text else self.steps:
            pieces = [part for piece in pieces for part in step.cut_with_spans(*piece)]
        if as_text:
            last = self.steps[-1]
            assert isinstance(last, ByteLevel)
            pieces = [part for piece in pieces for part in last.text_pieces_with_spans(*piece)]
        return pieces

    def plain(self) -> list[dict[str, Any]]:
        """As a `tokenizer.json` spells the steps."""
        return [step.plain() for step in self.steps]

    def __str__(self) -> str:
        return " > ".join(_described(step.plain()) for step in self.steps)


def _described(plain: dict[str, Any]) -> str:
    details = [value for key, value in plain.items() if key not in ("type", "pattern", "trim_offsets")]
    if "pattern" in plain:
        details.insert(0, next(iter(plain["pattern"].values())))
    return f"{plain['type']}({', '.join(map(repr, details))})"


def _kept(stretches: Iterable[Stretch], behavior: Behavior) -> list[Span]:
    """What becomes of matches and of what is between them; empty pieces left out."""
    if behavior == "Isolated":
        return [(start, end) for start, end, _ in stretches if start < end]
    if behavior == "Removed":
        return [(start, end) for start, end, matched in stretches if start < end and not matched]
    pieces: list[Span] = []
    before = False  # whether the last one was a match
    if behavior == "MergedWithNext":
        for start, end, matched in reversed(list(stretches)):
            if matched and not before and pieces:
                pieces[-1] = (start, pieces[-1][1])
            else:
                pieces.append((start, end))
            before = matched
        pieces.reverse()
    else:
        for start, end, matched in stretches:
            joins = matched == before if behavior == "Contiguous" else matched and not before
            if joins and pieces:
                pieces[-1] = (pieces[-1][0], end)
            else:
                pieces.append((start, end))
            before = matched
    return [(start, end) for start, end in pieces if start < end]


@cache
def _one_of(name: str) -> "re.Pattern[str]":
    ranges = sets.rust_class(name)
    return re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]")


@cache
def _white_space() -> "re.Pattern[str]":
    ranges = sets.posix_class("space") or ()
    return re.compile("[" + "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in ranges) + "]")


class _Words:
    """The expression `\\w+|[^\\w\\s]+` of Rust; the faster one where a text has nothing beyond U+FFFF."""

    def __init__(self) -> None:
        self._low, self._every = (self._compiled(last) for last in (0xFFFF, sets.LAST))

    def _compiled(self, last: int) -> "re.Pattern[str]":
        within = ((0, last),)
        space = sets.posix_class("space") or ()
        word = sets.intersection(sets.rust_word(), within)
        other = sets.difference(sets.difference(within, word), space)
        classes = (
            "[" + "".join(f"\\U{first:08x}-\\U{end:08x}" for first, end in ranges) + "]+" for ranges in (word, other)
        )
        return re.compile("|".join(classes))

    def __call__(self, text: str) -> "re.Pattern[str]":
        return self._low if text.isascii() or max(text) <= "\uffff" else self._every


@cache
def _words() -> _Words:
    return _Words()
