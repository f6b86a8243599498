"""Which characters are letters, numbers, marks and white space: by Unicode 16.0, whatever Python runs this."""

from bisect import bisect_right
from functools import cache

from minigpt_tok.bpe.unicode_classes import RANGES

Ranges = tuple[tuple[int, int], ...]
"""Code points as closed ranges, ascending and never touching."""


@cache
def class_ranges(name: str) -> Ranges:
    """The code points of a class: `L`, `Lu`, `Ll`, `Lt`, `Lm`, `Lo`, `M`, `N` or `White_Space`, by Unicode 16.0."""
    if name == "L":
        return union(*(class_ranges(kind) for kind in ("Lu", "Ll", "Lt", "Lm", "Lo")))
    words = (word.partition("-") for word in RANGES[name].split())
    return tuple((int(first, 16), int(last or first, 16)) for first, _, last in words)


def is_space(ch: str) -> bool:
    """Whether `ch` (one character) has the property White_Space; U+001C..U+001F have not, unlike in `str.isspace`."""
    return is_in("White_Space", ch)


def is_letter(ch: str) -> bool:
    """Whether `ch` (one character) is a letter of Unicode 16.0, categories L*."""
    return is_in("L", ch)


def is_number(ch: str) -> bool:
    """Whether `ch` (one character) is a number of Unicode 16.0, categories N*: `5`, `½` and `Ⅷ` are."""
    return is_in("N", ch)


def is_mark(ch: str) -> bool:
    """Whether `ch` (one character) is a combining mark of Unicode 16.0, categories M*."""
    return is_in("M", ch)


def is_in(name: str, ch: str) -> bool:
    """Whether `ch` (one character) is in a class; see `class_ranges`."""
    return bool(bisect_right(_borders(name), ord(ch)) % 2)


@cache
def _borders(name: str) -> tuple[int, ...]:
    """Where a class begins and ends in turn, so that an odd number of borders lie at or before its members."""
    return tuple(border for first, last in class_ranges(name) for border in (first, last + 1))


def union(*many: Ranges) -> Ranges:
    """The code points of any."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pair for ranges in many for pair in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
