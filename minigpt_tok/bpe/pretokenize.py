r"""Cut a text into the pieces that no merge may cross.

A named pattern is *a regular expression and a class table*. The expression is written once, below, as its publisher
wrote it; the classes in it (`\p{L}`, `\s`, `[^\s\p{L}\p{N}]`, ...) are spelled out as code point ranges of Unicode 16.0
from `unicode_classes.py`, and Python's own `re` runs the result. So pieces depend neither on the running Python's
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
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from typing import Any, Literal

from minigpt_tok.bpe.unicode_classes import RANGES
from minigpt_tok.errors import TokenizerError

Ranges = tuple[tuple[int, int], ...]
"""Code points as closed ranges, ascending and never touching."""

_LAST_OF_PLANE_0 = 0xFFFF
_BEYOND_PLANE_0 = re.compile("[\U00010000-\U0010ffff]")
_STAND_INS = {"Lu": "À", "Ll": "à", "Lt": "ǅ", "Lm": "ʰ", "Lo": "ª", "M": "\u0300", "N": "²"}
_STAND_IN_FOR_OTHER = "§"


# --- The class table ---------------------------------------------------------------------------------------------


@cache
def class_ranges(name: str) -> Ranges:
    """The code points of a class: `L`, `Lu`, `Ll`, `Lt`, `Lm`, `Lo`, `M`, `N` or `White_Space`, by Unicode 16.0."""
    if name == "L":
        return _union(*(class_ranges(kind) for kind in ("Lu", "Ll", "Lt", "Lm", "Lo")))
    words = (word.partition("-") for word in RANGES[name].split())
    return tuple((int(first, 16), int(last or first, 16)) for first, _, last in words)


def is_space(ch: str) -> bool:
    """Whether `ch` (one character) has the property White_Space; U+001C..U+001F have not, unlike in `str.isspace`."""
    return _is_in("White_Space", ch)


def is_letter(ch: str) -> bool:
    """Whether `ch` (one character) is a letter of Unicode 16.0, categories L*."""
    return _is_in("L", ch)


def is_number(ch: str) -> bool:
    """Whether `ch` (one character) is a number of Unicode 16.0, categories N*: `5`, `½` and `Ⅷ` are."""
    return _is_in("N", ch)


def is_mark(ch: str) -> bool:
    """Whether `ch` (one character) is a combining mark of Unicode 16.0, categories M*."""
    return _is_in("M", ch)


def _is_in(name: str, ch: str) -> bool:
    return bool(bisect_right(_borders(name), ord(ch)) % 2)


@cache
def _borders(name: str) -> tuple[int, ...]:
    """Where a class begins and ends in turn, so that an odd number of borders lie at or before its members."""
    return tuple(border for first, last in class_ranges(name) for border in (first, last + 1))


@lru_cache(maxsize=4096)
def _stand_in(ch: str) -> str:
    """The character up to U+FFFF that stands in for one beyond; there is no white space beyond."""
    return next((stand_in for name, stand_in in _STAND_INS.items() if _is_in(name, ch)), _STAND_IN_FOR_OTHER)


def _in_plane_0(text: str) -> str:
    """The text with stand-ins: of the same length, and the very object if it needs none."""
    if _BEYOND_PLANE_0.search(text) is None:
        return text
    return _BEYOND_PLANE_0.sub(lambda found: _stand_in(found[0]), text)


def _union(*many: Ranges) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pair for ranges in many for pair in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


# --- The named patterns ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Definition:
    """A pattern as (label, expression) of each alternative in order, and where it is certain to cut.

    `certain_cuts` matches, without taking a character, where the text to the left and the text to the right can be cut
    into pieces apart, whatever the rest of either is. It only looks at the two characters beside the cut.
    """

    alternatives: tuple[tuple[str, str], ...]
    certain_cuts: str


_WHITE_SPACE = (("white space before a word", r"\s+(?!\S)"), ("white space", r"\s+"))
_ANY_CASE_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_NOT_SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_NOT_CAPITAL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_OTHER = r"[^\s\p{L}\p{N}]"


def _digits(most: str) -> _Definition:
    return _Definition(
        alternatives=(
            ("contraction", _ANY_CASE_CONTRACTION),
            ("letters", r"[^\r\n\p{L}\p{N}]?\p{L}+"),
            ("numbers", rf"\p{{N}}{most}"),
            ("other", r" ?[^\s\p{L}\p{N}]+[\r\n]*"),
            ("newlines", r"\s*[\r\n]+"),
            *_WHITE_SPACE,
        ),
        certain_cuts=_DIGITS_CERTAIN_CUTS if most else rf"{_DIGITS_CERTAIN_CUTS}|(?<=\p{{N}})",
    )


# A letter ends where no letter follows, a number likewise; other characters may lead a word and take newlines with
# them; a newline ends white space, unless more white space follows that may hold another one.
_DIGITS_CERTAIN_CUTS = "|".join(
    (
        r"(?<=\p{L})(?=[^\p{L}])",
        r"(?<=\p{N})(?=[^\p{N}])",
        rf"(?<={_OTHER})(?=[\p{{N}}\s])(?![\r\n])",
        r"(?<=[\r\n])(?=\S)",
    )
)

_DEFINITIONS = {
    "gpt2": _Definition(
        alternatives=(
            ("contraction", r"'(?:[sdmt]|ll|ve|re)"),
            ("letters", r" ?\p{L}+"),
            ("numbers", r" ?\p{N}+"),
            ("other", r" ?[^\s\p{L}\p{N}]+"),
            *_WHITE_SPACE,
        ),
        # A run of one class ends where another class begins; the apostrophe may begin a contraction, and white space
        # may give up its last character.
        certain_cuts="|".join(
            (
                r"(?<=\p{L})(?=[^\p{L}])",
                r"(?<=\p{N})(?=[^\p{N}])",
                rf"(?<={_OTHER})(?=[\p{{N}}\s])",
                r"(?<=[^\s\p{L}\p{N}'])(?=\p{L})",
            )
        ),
    ),
    "digits1": _digits(""),
    "digits2": _digits("{1,2}"),
    "llama3": _digits("{1,3}"),
    "cl100k": _Definition(
        alternatives=(
            ("contraction", r"'(?i:[sdmt]|ll|ve|re)"),
            ("letters", r"[^\r\n\p{L}\p{N}]?+\p{L}++"),
            ("numbers", r"\p{N}{1,3}+"),
            ("other", r" ?[^\s\p{L}\p{N}]++[\r\n]*+"),
            ("white space at the end", r"\s++$"),
            ("newlines", r"\s*[\r\n]"),
            ("white space before a word", r"\s+(?!\S)"),
            ("white space", r"\s"),
        ),
        certain_cuts=_DIGITS_CERTAIN_CUTS,
    ),
    "o200k": _Definition(
        alternatives=(
            ("letters", rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_SMALL}*{_NOT_CAPITAL}+{_ANY_CASE_CONTRACTION}?"),
            ("capital letters", rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_SMALL}+{_NOT_CAPITAL}*{_ANY_CASE_CONTRACTION}?"),
            ("numbers", r"\p{N}{1,3}"),
            ("other", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"),
            ("newlines", r"\s*[\r\n]+"),
            *_WHITE_SPACE,
        ),
        # As above, but letters take marks and a contraction with them, and other characters newlines and slashes.
        certain_cuts="|".join(
            (
                r"(?<=\p{L})(?=[^\p{L}\p{M}'])",
                r"(?<=\p{N})(?=[^\p{N}])",
                rf"(?<={_OTHER})(?=[\p{{N}}\s])(?![\r\n])",
                r"(?<=[\r\n])(?=[^\s/])",
            )
        ),
    ),
    # Published as two steps, Digits(individual_digits) and then gpt2 on each side of every number; as one expression,
    # a number ends the text for the look-ahead, and ` ?\p{N}+` has nothing left to match.
    "smollm": _Definition(
        alternatives=(
            ("number", r"\p{N}"),
            ("contraction", r"'(?:[sdmt]|ll|ve|re)"),
            ("letters", r" ?\p{L}+"),
            ("other", r" ?[^\s\p{L}\p{N}]+"),
            ("white space before a word", r"\s+(?![^\s\p{N}])"),
            ("white space", r"\s+"),
        ),
        certain_cuts="|".join(
            (
                r"(?<=\p{N})",
                r"(?=\p{N})",
                r"(?<=\p{L})(?=[^\p{L}])",
                rf"(?<={_OTHER})(?=\s)",
                r"(?<=[^\s\p{L}\p{N}'])(?=\p{L})",
            )
        ),
    ),
}

NO_CUT = "none"
"""The name of the pattern that does not cut: a text is one piece."""

PATTERNS: dict[str, str] = {
    name: "|".join(expression for _, expression in definition.alternatives) for name, definition in _DEFINITIONS.items()
}
"""The named patterns' published regular expressions. `none`, which does not cut, has no expression."""

# What tiktoken 0.5 to 0.8 had for cl100k, and minbpe and nanochat took over.
_HEAD = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
_TAIL = r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

_OTHER_SPELLINGS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
    f"{_HEAD}{_TAIL}": "digits1",
    f"{_HEAD}{{1,2}}{_TAIL}": "digits2",
    f"{_HEAD}{{1,3}}{_TAIL}": "llama3",
}

# In the Ruby syntax of Hugging Face's engine, Oniguruma, `{1,3}+` is no possessive repeat but one or more of `{1,3}`:
# numbers of any length. So cl100k needs another spelling there, which tiktoken's engine reads alike.
_ONIGURUMA_SPELLINGS = {
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+\z|\s*[\r\n]|\s+(?!\S)|\s",
}

_NAME_OF_EXPRESSION = (
    {expression: name for name, expression in PATTERNS.items()}
    | {expression: name for name, expression in _ONIGURUMA_SPELLINGS.items()}
    | _OTHER_SPELLINGS
)


def known_pattern_name(expression: str, *, engine: Literal["tiktoken", "oniguruma"] = "tiktoken") -> str | None:
    """The name of the pattern that a published regular expression spells, or None.

    Only spellings that cut every string alike have the same name: the expression that tiktoken once gave for cl100k is
    `llama3` here, since today's cuts white space at the end of a text elsewhere. `engine` is the one that the
    expression was written for, `oniguruma` for one from a `tokenizer.json`; both read all spellings alike but today's
    of cl100k, which has no name in Oniguruma's reading.
    """
    name = _NAME_OF_EXPRESSION.get(expression)
    if engine == "oniguruma" and name in _ONIGURUMA_SPELLINGS and expression != _ONIGURUMA_SPELLINGS[name]:
        return None
    return name


def oniguruma_expression(name: str) -> str:
    """A spelling of a named pattern that Hugging Face's engine reads as we do: what a `tokenizer.json` should hold."""
    return _ONIGURUMA_SPELLINGS.get(name, PATTERNS[name])


LONGEST_EXPRESSION = 1 << 14  # characters; the longest published one has some 2,000

# --- Classes spelled out as ranges -------------------------------------------------------------------------------

_CLASSES = re.compile(r"\[(?P<negated>\^?)(?P<members>(?:\\p\{\w+\}|\\.|[^\]\\])+)\]|(?P<single>\\p\{\w+\}|\\[sS])|\$")
_MEMBER = re.compile(r"\\p\{(?P<name>\w+)\}|(?P<space>\\s)|\\(?P<escape>[rn])|(?P<literal>[^\\])")
_ESCAPES = {"r": "\r", "n": "\n"}


def _compiled(expression: str) -> re.Pattern[str]:
    r"""An expression of this module with its classes as ranges up to U+FFFF: `\s+` -> `[\u0009-\u000d\u0020...]+`.

    Knows just what the patterns above use. Their `$` is the very end of the text, which Python calls `\Z`.
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
        for first, last in _union(*ranges)
        if first <= _LAST_OF_PLANE_0
    )
    return f"[{'^' if negated else ''}{''.join(spelled)}]"


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
        self._definition = _DEFINITIONS[name]

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


def pattern_names() -> str:
    """The names of all patterns, for messages."""
    return ", ".join([*PATTERNS, NO_CUT])


def shortened(expression: str) -> str:
    """An expression for a message."""
    return repr(expression if len(expression) <= 80 else expression[:77] + "...")
