r"""Cut a text into the pieces that no merge may cross.

A named pattern is *a regular expression and a class table*. The expression is written once, in `patterns.py`, as its
publisher wrote it; the classes in it (`\p{L}`, `\s`, `[^\s\p{L}\p{N}]`, ...) are spelled out as code point ranges of
Unicode 16.0 from `classes.py`, and Python's own `re` runs the result. So pieces depend neither on the running Python's
`unicodedata` nor on the `regex` package, and what is run is what is read.

What it costs: about 40 MB/s of English on one core. Python's `re` finds a character up to U+FFFF in a bitmap but walks
the ranges beyond one by one, which made whole texts five times slower. So the ranges end at U+FFFF, and in a text with
characters beyond each of these is first replaced by one of its class (no pattern asks for more than the class), at
half the speed. Nothing here is quadratic: no alternative gives back more than the run that it has just taken.

Every piece is non-empty and the pieces of a text join back to it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from minigpt_tok.bpe.classes import Ranges, class_ranges, is_in, union
from minigpt_tok.bpe.patterns import DEFINITIONS, NO_CUT, PATTERNS, known_pattern_name, pattern_names
from minigpt_tok.errors import TokenizerError

LONGEST_EXPRESSION = 1 << 14  # characters; the longest published one has some 2,000

_LAST_OF_PLANE_0 = 0xFFFF
_BEYOND_PLANE_0 = re.compile("[\U00010000-\U0010ffff]")
_STAND_INS = {"Lu": "À", "Ll": "à", "Lt": "ǅ", "Lm": "ʰ", "Lo": "ª", "M": "\u0300", "N": "²"}
_STAND_IN_FOR_OTHER = "§"

# --- Classes spelled out as ranges -------------------------------------------------------------------------------

_CLASSES = re.compile(r"\[(?P<negated>\^?)(?P<members>(?:\\p\{\w+\}|\\.|[^\]\\])+)\]|(?P<single>\\p\{\w+\}|\\[sS])|\$")
_MEMBER = re.compile(r"\\p\{(?P<name>\w+)\}|(?P<space>\\s)|\\(?P<escape>[rn])|(?P<literal>[^\\])")
_ESCAPES = {"r": "\r", "n": "\n"}


def _compiled(expression: str) -> re.Pattern[str]:
    r"""A pattern with its classes as ranges up to U+FFFF: `\s+` -> `[\u0009-\u000d\u0020...]+`.

    Knows just what `patterns` use. Their `$` is the very end of the text, which Python calls `\Z`.
    """

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "$":
            return r"\Z"
        if found["single"]:
            return _set(found["single"].lower(), negated=found["single"] == r"\S")
        return _set(found["members"], negated=bool(found["negated"]))

    return re.compile(_CLASSES.sub(replacement, expression))


def _set(members: str, *, negated: bool) -> str:
    ranges: list[Ranges] = []
    for member in _MEMBER.finditer(members):
        if member["name"]:
            ranges.append(class_ranges(member["name"].capitalize()))
        elif member["space"]:
            ranges.append(class_ranges("White_Space"))
        else:
            code_point = ord(member["literal"] or _ESCAPES[member["escape"]])
            ranges.append(((code_point, code_point),))
    spelled = (
        f"\\u{first:04x}-\\u{min(last, _LAST_OF_PLANE_0):04x}" if first < last else f"\\u{first:04x}"
        for first, last in union(*ranges)
        if first <= _LAST_OF_PLANE_0
    )
    return f"[{'^' if negated else ''}{''.join(spelled)}]"


@lru_cache(maxsize=4096)
def _stand_in(ch: str) -> str:
    """The character up to U+FFFF that stands in for one beyond; there is no white space beyond."""
    return next((stand_in for name, stand_in in _STAND_INS.items() if is_in(name, ch)), _STAND_IN_FOR_OTHER)


def _in_plane_0(text: str) -> str:
    """The text with stand-ins: of the same length, and the very object if it needs none."""
    if _BEYOND_PLANE_0.search(text) is None:
        return text
    return _BEYOND_PLANE_0.sub(lambda found: _stand_in(found[0]), text)


# --- Pre-tokenizers ----------------------------------------------------------------------------------------------


class PreTokenizer(ABC):
    """How a text is cut into pieces; immutable, and the same for the same pattern (see `get_pretokenizer`).

    `name` is the pattern's name, None for an expression without one; `expression` is its regular expression, None for
    `none`.
    """

    name: str | None
    expression: str | None

    @abstractmethod
    def pieces(self, text: str) -> list[str]:
        """The pieces of `text` in order: none empty, and together the text."""

    @abstractmethod
    def explain(self, text: str) -> list[tuple[str, str]]:
        """The pieces of `text`, each with a few words on which alternative of the pattern cut it."""

    def last_certain_cut(self, text: str) -> int:
        """The largest index 0 < i < len(text) at which `text` can be cut whatever follows it; 0 if none is known.

        For every `more`, pieces(text[:i]) + pieces(text[i:] + more) == pieces(text + more). So a stream can be encoded
        up to i, and only the rest need be kept.
        """
        return 0

    def is_certain_cut(self, before: str, after: str) -> bool:
        """Whether any text that ends like `before` and any that begins like `after` have the joined text's pieces."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, for a worker process, as the pattern alone."""
        return get_pretokenizer, (self.expression if self.name is None else self.name,)

    def __repr__(self) -> str:
        """The pattern's name or expression."""
        return f"<PreTokenizer {self.name or self.expression!r}>"


class _Named(PreTokenizer):
    """A named pattern, run by Python's `re` over our own class table."""

    name: str
    expression: str

    def __init__(self, name: str) -> None:
        self.name = name
        self.expression = PATTERNS[name]
        self._definition = DEFINITIONS[name]

    def pieces(self, text: str) -> list[str]:
        matched = _in_plane_0(text)
        pieces: list[str] = self._pieces.findall(matched)
        if matched is text:
            return pieces
        ends = list(accumulate(map(len, pieces)))
        return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def explain(self, text: str) -> list[tuple[str, str]]:
        labels = [label for label, _ in self._definition.alternatives]
        explained = []
        for match in self._alternatives.finditer(_in_plane_0(text)):
            label = labels[(match.lastindex or 0) - 1]
            if label == "white space before a word" and match.end() == len(text):
                label = "white space at the end"
            explained.append((text[match.start() : match.end()], label))
        return explained

    def last_certain_cut(self, text: str) -> int:
        match = self._up_to_certain_cut.match(_in_plane_0(text))
        return match.end() if match else 0

    def is_certain_cut(self, before: str, after: str) -> bool:
        return self.last_certain_cut(before[-1:] + after[:1]) == 1

    @cached_property
    def _pieces(self) -> re.Pattern[str]:
        return _compiled(self.expression)

    @cached_property
    def _alternatives(self) -> re.Pattern[str]:
        return _compiled("|".join(f"({expression})" for _, expression in self._definition.alternatives))

    @cached_property
    def _up_to_certain_cut(self) -> re.Pattern[str]:
        # Greedy, so it finds the last one; the dots make sure that there is a character on either side.
        return _compiled(f"(?s:.+(?=.))(?:{self._definition.certain_cuts})")


class _Whole(PreTokenizer):
    """The pattern `none`: a text is one piece, and the empty text has none."""

    name = NO_CUT
    expression = None

    def pieces(self, text: str) -> list[str]:
        return [text] if text else []

    def explain(self, text: str) -> list[tuple[str, str]]:
        return [(piece, "the whole text") for piece in self.pieces(text)]


class UnicodeVersionWarning(UserWarning):
    """A pattern's classes come from a library whose Unicode version is not ours, so ids may depend on the machine."""


@lru_cache(maxsize=256)
def get_pretokenizer(pattern: str) -> PreTokenizer:
    """The pre-tokenizer of a named pattern or of a regular expression; asked twice, the same object.

    An expression that spells a named pattern (`known_pattern_name`) gives that one. One that engines read differently
    is run by the `regex` package, which a `UnicodeVersionWarning` says once. Raises `TokenizerError` for an expression
    that cannot be run, and for a bare word that is no pattern's name.
    """
    if pattern == NO_CUT:
        return _Whole()
    name = pattern if pattern in PATTERNS else known_pattern_name(pattern)
    if name is not None:
        return _Named(name) if name == pattern else get_pretokenizer(name)
    if not pattern:
        raise TokenizerError(f"the pattern is empty; to cut nothing use {NO_CUT!r}, else one of {pattern_names()}")
    if re.fullmatch(r"[\w-]+", pattern):
        raise TokenizerError(
            f"{pattern!r} is no pattern's name; the names are {pattern_names()}. To cut at this very word, write the regular "
            f"expression '(?:{pattern})'"
        )
    if len(pattern) > LONGEST_EXPRESSION:
        raise TokenizerError(
            f"the pattern has {len(pattern):,} characters; an expression of more than {LONGEST_EXPRESSION:,} would take "
            "minutes to compile"
        )
    from minigpt_tok.bpe.custom_pattern import CustomPattern  # which is built on this module

    return CustomPattern(pattern)
