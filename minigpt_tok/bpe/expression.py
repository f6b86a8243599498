"""Run the regular expressions of a `tokenizer.json` by Python's `re`, every set of characters spelled out.

So the pieces depend on no library's version of Unicode. As in `pretokenize`, a character beyond U+FFFF is replaced before
matching by one up to U+FFFF that is in the same sets, because `re` looks for those in a bitmap.
"""

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache

from minigpt_tok.bpe import character_sets as sets
from minigpt_tok.bpe.classes import Ranges
from minigpt_tok.bpe.oniguruma import (
    Alternatives,
    Anchor,
    Atomic,
    Look,
    Node,
    Repeat,
    Sequence,
    Set,
    may_be_empty,
    parse,
)

_BEYOND_PLANE_0 = re.compile("[\U00010000-\U0010ffff]")
_PLANE_0: Ranges = ((0, 0xFFFF),)


def _sets_of(node: Node) -> Iterator[Ranges]:
    match node:
        case Set(ranges):
            yield ranges
        case Sequence(parts) | Alternatives(parts):
            for part in parts:
                yield from _sets_of(part)
        case Repeat(part) | Look(part) | Atomic(part):
            yield from _sets_of(part)
        case Anchor("b" | "B"):
            yield _word()


def _word() -> Ranges:
    ranges = sets.property_ranges("word")
    assert ranges is not None
    return ranges


class _StandIns:
    """Characters up to U+FFFF that are in the same sets of one expression as those beyond."""

    def __init__(self, many: tuple[Ranges, ...]) -> None:
        self._sets = tuple(ranges for ranges in many if ranges and ranges[-1][1] > 0xFFFF)
        starts = sorted({0, *(border for ranges in many for border in sets.borders_of(ranges) if border <= 0xFFFF)})
        self._by_kind: dict[tuple[bool, ...], str] = {}
        for start in starts:
            if not 0xD800 <= start <= 0xDFFF:
                # A negated set holds all surrogates but none stands in: the next border after them is a start too.
                self._by_kind.setdefault(self._kind(many, start), chr(start))
        self._many = many
        beyond = sorted(
            {0x10000, *(border for ranges in many for border in sets.borders_of(ranges) if border > 0xFFFF)}
        )
        ends = [*beyond[1:], sets.LAST + 1]
        self.left: Ranges = sets.union(
            *(
                ((start, end - 1),)
                for start, end in zip(beyond, ends, strict=True)
                if start <= sets.LAST and self._kind(many, start) not in self._by_kind
            )
        )
        self._stand_in = lru_cache(maxsize=4096)(self._find)

    def _kind(self, many: tuple[Ranges, ...], point: int) -> tuple[bool, ...]:
        return tuple(sets.contains(ranges, point) for ranges in many)

    def _find(self, character: str) -> str:
        return self._by_kind.get(self._kind(self._many, ord(character)), character)

    def replaced(self, text: str) -> str:
        """The text with stand-ins, of the same length; the very object if it needs none."""
        if text.isascii() or _BEYOND_PLANE_0.search(text) is None:
            return text
        return _BEYOND_PLANE_0.sub(lambda found: self._stand_in(found[0]), text)


class Expression:
    """A regular expression of a `tokenizer.json`.

    Attributes:
        source: as it stands in the file.
        neutral: whether other engines (the `regex` package, tiktoken's) read it alike.
        may_be_empty: whether it can match between two characters.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._node, self.neutral = parse(source)
        self.may_be_empty = may_be_empty(self._node)

    @property
    def literal(self) -> str | None:
        """The one text that it matches, where it is no more than that."""
        parts = self._node.parts if isinstance(self._node, Sequence) else (self._node,)
        if all(isinstance(part, Set) and part.spelled and not part.any_case for part in parts):
            return "".join(part.spelled for part in parts if isinstance(part, Set))
        return None

    @cached_property
    def _stand_ins(self) -> _StandIns:
        return _StandIns(tuple(dict.fromkeys(_sets_of(self._node))))

    @cached_property
    def _compiled(self) -> "re.Pattern[str]":
        return re.compile(self._spelled(self._node))

    def matches(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of every match, in order; an empty one only where no match has just ended."""
        matched = self._stand_ins.replaced(text)
        if not self.may_be_empty:
            for match in self._compiled.finditer(matched):
                yield match.span()
            return
        at, last_end = 0, -1
        while at <= len(matched):
            found = self._compiled.search(matched, at)
            if found is None:
                return
            start, end = found.span()
            if start == end == last_end:
                at += 1
                continue
            yield start, end
            at = last_end = end

    def cut(self, text: str) -> list[str]:
        """The matches and what is between them, as pieces none of which is empty."""
        pieces = []
        done = 0
        for start, end in self.matches(text):
            if done < start:
                pieces.append(text[done:start])
            if start < end:
                pieces.append(text[start:end])
            done = end
        if done < len(text):
            pieces.append(text[done:])
        return pieces

    def _spelled(self, node: Node) -> str:
        match node:
            case Set(ranges):
                return self._bracket(ranges)
            case Sequence(parts):
                return "".join(map(self._spelled, parts))
            case Alternatives(parts):
                return f"(?:{'|'.join(map(self._spelled, parts))})"
            case Atomic(part):
                return f"(?>{self._spelled(part)})"
            case Look(part, behind, negative):
                return f"(?{'<' if behind else ''}{'!' if negative else '='}{self._spelled(part)})"
            case Repeat(part, least, most, kind):
                inner = self._spelled(part)
                if not isinstance(part, (Set, Alternatives, Atomic)):
                    inner = f"(?:{inner})"
                count = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(
                    (least, most), f"{{{least},{'' if most is None else most}}}"
                )
                return f"{inner}{count}{ {'greedy': '', 'lazy': '?', 'possessive': '+'}[kind] }"
            case Anchor(name):
                return self._anchor(name)

    def _anchor(self, name: str) -> str:
        if name in "bB":
            word = self._bracket(_word())
            if name == "b":
                return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
            return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"
        return {"^": r"(?:\A|(?<=\n)(?!\Z))", "$": r"(?:(?=\n)|\Z)", "A": r"\A", "z": r"\Z", "Z": r"(?=\n?\Z)"}[name]

    def _bracket(self, ranges: Ranges) -> str:
        left = self._stand_ins.left
        kept = sets.union(sets.intersection(ranges, _PLANE_0), sets.intersection(ranges, left) if left else ())
        if not kept:
            return r"(?!)"
        if len(kept) == 1 and kept[0][0] == kept[0][1]:
            return re.escape(chr(kept[0][0]))
        return f"[{''.join(map(_range, kept))}]"


def _range(ends: tuple[int, int]) -> str:
    first, last = (f"\\U{point:08x}" for point in ends)
    return first if ends[0] == ends[1] else f"{first}-{last}"


@lru_cache(maxsize=256)
def get_expression(source: str) -> Expression:
    """The expression that a text spells; asked twice, the same object.

    Raises:
        UnreadableError: it is wrong, or uses what is not read here; with the place.
    """
    return Expression(source)
