r"""Regular expressions of a `tokenizer.json`, read as their engine reads them.

The engine of `tokenizers` is Oniguruma. Its syntax is parsed here into sets of characters and what joins them. What
differs between engines is where wrong ids come from: `\p{N}{1,3}+` is one or more of `{1,3}` and not possessive, `$`
matches before every newline, `(?m)` makes the dot match newlines, `{,3}` counts from 0, `[a[bc]&&[^c]]` is algebra.
What is not parsed here is refused with its place. Sources: Oniguruma's doc/RE, and what tokenizers 0.23.3 does.

This is the parser; `expression` runs what it gives.
"""

import re
from dataclasses import dataclass
from typing import Literal

from minigpt_tok.bpe import character_sets as sets
from minigpt_tok.bpe.classes import Ranges, class_ranges
from minigpt_tok.errors import TokenizerError

MOST_REPEATS = 1000
MOST_NESTED = 100
_NEWLINE = sets.of("\n")


class UnreadableError(TokenizerError):
    """A regular expression that is wrong, or uses what is not read here."""


# What an expression is made of


@dataclass(frozen=True)
class Set:
    """One character of a set; `spelled` is the character where the expression names just this one."""

    ranges: Ranges
    spelled: str = ""
    any_case: bool = False


@dataclass(frozen=True)
class Sequence:
    """One part after the other; none is the empty match."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Alternatives:
    """The first that leads to a match."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """`least` to `most` times (None: without end)."""

    part: "Node"
    least: int
    most: int | None
    kind: Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True)
class Look:
    """Whether the part matches ahead or behind, without taking it."""

    part: "Node"
    behind: bool
    negative: bool


@dataclass(frozen=True)
class Atomic:
    """The part, whose first way to match is not reconsidered."""

    part: "Node"


@dataclass(frozen=True)
class Anchor:
    """A place, by its name: `^`, `$`, `A`, `z`, `Z`, `b` or `B`."""

    name: str


Node = Set | Sequence | Alternatives | Repeat | Look | Atomic | Anchor


class _Parser:
    """Recursive descent over the expression; `neutral` turns False at what other engines read otherwise."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.any_case = False
        self.dot_all = False
        self.depth = 0
        self.neutral = True

    def parse(self) -> Node:
        node = self.alternatives()
        if self.at < len(self.text):
            raise self.error("has a parenthesis too many")
        return node

    def error(self, what: str, at: int | None = None) -> UnreadableError:
        at = self.at if at is None else at
        around = f", {self.text[at : at + 20]!r}" if at < len(self.text) else ""
        return UnreadableError(f"the expression {what} at character {at}{around}")

    def take(self, literal: str) -> bool:
        if self.text.startswith(literal, self.at):
            self.at += len(literal)
            return True
        return False

    def take_match(self, expression: str) -> re.Match[str] | None:
        match = re.compile(expression).match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def alternatives(self) -> Node:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self.error(f"nests more than {MOST_NESTED} deep")
        flags = self.any_case, self.dot_all
        parts = [self.sequence()]
        while self.take("|"):
            parts.append(self.sequence())
        self.any_case, self.dot_all = flags
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if (options := self.take_match(r"\(\?([im]*)(?:-([im]*))?\)")) is not None:
                # From here to the end of the group, alternatives included: what follows is a group of its own.
                self.neutral = False
                self.set_options(options)
                parts.append(self.alternatives())
                break
            at = self.at
            node = self.atom()
            if node is not None:
                parts.append(self.repeated(node, at))
        node = parts[0] if len(parts) == 1 else Sequence(tuple(parts))
        self.refuse_folds_to_many(parts)
        return node

    def set_options(self, options: re.Match[str]) -> None:
        on, off = options[1], options[2] or ""
        self.any_case = (self.any_case or "i" in on) and "i" not in off
        self.dot_all = (self.dot_all or "m" in on) and "m" not in off
        if "m" in on + off:
            self.neutral = False

    def refuse_folds_to_many(self, parts: list[Node]) -> None:
        """In any case `ss` is `ß` too, one character for two, which nothing that is done here can match."""
        run = ""
        for part in [*parts, Sequence(())]:
            if isinstance(part, Set) and part.spelled and part.any_case:
                run += part.spelled.casefold()
                continue
            if len(run) > 1 and any(many in run for many in sets.folds_to_many()):
                raise self.error(f"asks for {run!r} in any case, which a single character can also be,")
            run = ""

    def atom(self) -> Node | None:
        character = self.text[self.at]
        if character == "(":
            return self.group()
        if character == "[":
            return self.bracket()
        if character == "\\":
            return self.escape()
        if character in "*+?":
            raise self.error("repeats nothing")
        self.at += 1
        if character == ".":
            return Set(sets.EVERYTHING if self.dot_all else sets.complement(_NEWLINE))
        if character in "^$":
            self.neutral = False
            return Anchor(character)
        return self.literal(character)

    def literal(self, character: str) -> Set:
        if "\ud800" <= character <= "\udfff":
            raise self.error("has a lone surrogate", self.at - 1)
        ranges = sets.of(character)
        if not self.any_case:
            return Set(ranges, character)
        if len(character.casefold()) > 1:
            raise self.error(f"asks for {character!r} in any case, which several characters can also be,", self.at - 1)
        return Set(sets.any_case(ranges), character, any_case=True)

    def group(self) -> Node | None:
        at = self.at
        if self.take_match(r"\(\?#(?:[^)\\]|\\.)*\)"):
            self.neutral = False
            return None
        flags = self.any_case, self.dot_all
        make = None
        if self.take("(?:"):
            pass
        elif (options := self.take_match(r"\(\?([im]*)(?:-([im]*))?:")) is not None:
            self.set_options(options)
        elif self.take("(?>"):
            make = Atomic
        elif (look := self.take_match(r"\(\?(<?)([=!])")) is not None:
            behind, negative = bool(look[1]), look[2] == "!"
            inner = self.close(at)
            return self.look(inner, behind, negative, at)
        elif self.take_match(r"\(\?<[A-Za-z_]\w*>|\(\?'[A-Za-z_]\w*'"):
            self.neutral = False
        elif self.text.startswith(("(?", "(*"), at):
            raise self.error("has a kind of group that is not read here")
        else:
            self.take("(")
        inner = self.close(at)
        self.any_case, self.dot_all = flags
        if make is not None:
            return make(inner)
        # A group is one part to what repeats it; a repeat in a group is, too, and is seen as one below.
        return inner if isinstance(inner, (Set, Alternatives, Atomic, Repeat)) else Alternatives((inner,))

    def close(self, at: int) -> Node:
        inner = self.alternatives()
        if not self.take(")"):
            raise self.error("has a parenthesis that is not closed", at)
        return inner

    def look(self, inner: Node, behind: bool, negative: bool, at: int) -> Node:
        if not behind:
            return Look(inner, behind, negative)
        ways = inner.parts if isinstance(inner, Alternatives) else (inner,)
        if any(_width(way) is None for way in ways):
            raise self.error("looks behind for a text of no fixed length, which is not read here,", at)
        looks = tuple(Look(way, behind, negative) for way in ways)
        if len(looks) == 1:
            return looks[0]
        return Sequence(looks) if negative else Alternatives(looks)

    def repeated(self, node: Node, at: int) -> Node:
        direct = False
        while (found := self.quantifier()) is not None:
            least, most, kind = found
            if isinstance(node, (Anchor, Look)) or (most != 1 and may_be_empty(node)):
                raise self.error("repeats what may be empty, which is not read here,", at)
            if direct:
                self.neutral = False
            direct = True
            if (
                isinstance(node, Repeat)
                and isinstance(node.part, Set)
                and (node.kind, kind) == ("greedy", "greedy")
                and (node.least, least, most) == (1, 1, None)
            ):
                # `{1,3}` one or more times is just one or more times, in the same order of trying, and not exponential.
                node = Repeat(node.part, 1, None, kind)
                continue
            node = Repeat(node, least, most, kind)
        return node

    def quantifier(self) -> tuple[int, int | None, Literal["greedy", "lazy", "possessive"]] | None:
        if (simple := self.take_match(r"([*+?])([?+]?)")) is not None:
            kind: Literal["greedy", "lazy", "possessive"] = "greedy"
            if simple[2]:
                kind = "lazy" if simple[2] == "?" else "possessive"
            return int(simple[1] == "+"), 1 if simple[1] == "?" else None, kind
        interval = self.take_match(r"\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}(?<!\{\})(?<!\{,\})")
        if interval is None:
            return None
        least = int(interval["least"] or 0)
        most = (int(interval["most"]) if interval["most"] else None) if interval["comma"] else least
        if not interval["least"]:
            self.neutral = False
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise self.error("has a count of repeats that is not read here", interval.start())
        if most == 0:
            raise self.error("repeats something 0 times", interval.start())
        if self.text.startswith("+", self.at):
            self.neutral = False  # no possessive repeat here, but a repeat of the repeat
        elif interval["comma"] and self.take("?"):
            return least, most, "lazy"
        elif self.text.startswith("?", self.at):
            self.neutral = False  # `{2}?` is twice or not at all
        return least, most, "greedy"

    # Sets

    def escape(self) -> Node:
        at = self.at
        self.at += 1
        if self.at >= len(self.text):
            raise self.error("ends in a backslash", at)
        character = self.text[self.at]
        if character in "AzZbB":
            self.at += 1
            self.neutral = False
            return Anchor(character)
        if character == "O":
            self.at += 1
            self.neutral = False
            return Set(sets.EVERYTHING)
        if character == "N":
            self.at += 1
            self.neutral = False
            return Set(sets.complement(_NEWLINE))
        ranges = self.class_escape(in_brackets=False)
        if ranges is not None:
            return Set(ranges)
        return self.literal(self.character_escape(at, in_brackets=False))

    def class_escape(self, *, in_brackets: bool) -> Ranges | None:
        """The set of `\\p{…}`, `\\s` and so on, the backslash already taken; None for one character's escape."""
        if (named := self.take_match(r"([pP])\{(\^?)([^{}\\]*)\}")) is not None:
            ranges = sets.property_ranges(named[3])
            if ranges is None:
                raise self.error(f"has the property {named[3]!r}, which is not known here,", named.start() - 1)
            if named[2] or named[3] not in ("L", "N", "M", "P", "S", "Z", "Lu", "Ll", "Lt", "Lm", "Lo"):
                self.neutral = False
            return sets.complement(ranges) if (named[1] == "P") != bool(named[2]) else ranges
        letter = self.text[self.at]
        if letter not in "sSdDwWhH":
            return None
        self.at += 1
        kind = letter.lower()
        if kind not in "sd":
            self.neutral = False
        if kind == "s":
            ranges = class_ranges("White_Space")
        elif kind == "w" and in_brackets:
            ranges = sets.posix_class("word")
        else:
            ranges = sets.property_ranges({"d": "digit", "w": "word", "h": "xdigit"}[kind])
        assert ranges is not None
        return sets.complement(ranges) if letter.isupper() else ranges

    def character_escape(self, at: int, *, in_brackets: bool) -> str:
        """The character of `\\n`, `\\x{…}` and so on, the backslash already taken."""
        code = self.take_match(r"x\{([0-9A-Fa-f]{1,8})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
        if code is not None:
            point = int(code[1] or code[2] or code[3], 16)
            if point > sets.LAST or 0xD800 <= point <= 0xDFFF or (code[2] and point > 0x7F):
                raise self.error("has a code that is no character", at)
            return chr(point)
        character = self.text[self.at]
        self.at += 1
        simple = {"t": "\t", "v": "\v", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
        if in_brackets:
            simple["b"] = "\b"
        if character in simple:
            if character in "ae":
                self.neutral = False
            return simple[character]
        if character.isascii() and character.isalnum():
            raise self.error("has an escape that is not read here", at)
        return character

    def bracket(self) -> Set:
        ranges = self.bracket_ranges()
        return Set(ranges)

    def bracket_ranges(self) -> Ranges:
        at = self.at
        self.at += 1
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self.error(f"nests more than {MOST_NESTED} deep")
        negated = self.take("^")
        result: Ranges | None = None
        members: list[Ranges] = []
        first = True
        while first or not self.take("]"):
            if self.at >= len(self.text):
                raise self.error("has a bracket that is not closed", at)
            if self.take("&&"):
                self.neutral = False
                side = sets.union(*members)
                result = side if result is None else sets.intersection(result, side)
                members = []
            else:
                members.append(self.member(first=first))
            first = False
        last = sets.union(*members)
        if result is not None:
            last = sets.intersection(result, last)
        self.depth -= 1
        if self.any_case:
            cased = sets.any_case(last)
            if not negated and any(
                sets.contains(last, point) for points in sets.folds_to_many().values() for point in points
            ):
                raise self.error("has a set in any case in which one character can be several,", at)
            last = cased
        if not last and not negated:
            raise self.error("has an empty set", at)
        return sets.complement(last) if negated else last

    def member(self, *, first: bool) -> Ranges:
        at = self.at
        if (posix := self.take_match(r"\[:(\^?)([a-z]+):\]")) is not None:
            ranges = sets.posix_class(posix[2])
            if ranges is None:
                raise self.error(f"has the class {posix[2]!r}, which is not known here,", at)
            self.neutral = False
            return sets.complement(ranges) if posix[1] else ranges
        if self.text.startswith("[", at):
            self.neutral = False
            return self.bracket_ranges()
        if self.text.startswith("\\", at) and at + 1 < len(self.text):
            self.at += 1
            if (ranges := self.class_escape(in_brackets=True)) is not None:
                if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                    raise self.error("has a range that begins with a class", at)
                return ranges
            self.at = at
        start = self.member_character(first=first)
        if not self.text.startswith("-", self.at) or self.text.startswith("-]", self.at):
            return sets.of(start)
        self.at += 1
        if self.text.startswith("[", self.at) or self.text.startswith("&&", self.at):
            raise self.error("has a range that is not read here", at)
        end = self.member_character(first=False)
        if end < start:
            raise self.error("has a range that ends before it begins", at)
        if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
            raise self.error("has a range after a range, which is not read here,", at)
        return ((ord(start), ord(end)),)

    def member_character(self, *, first: bool) -> str:
        at = self.at
        if at >= len(self.text) or (self.text[at] == "]" and not first):
            raise self.error("has a bracket that is not closed", at)
        self.at += 1
        character = self.text[at]
        if character == "\\":
            if self.at >= len(self.text):
                raise self.error("ends in a backslash", at)
            return self.character_escape(at, in_brackets=True)
        if "\ud800" <= character <= "\udfff":
            raise self.error("has a lone surrogate", at)
        if character == "]":
            self.neutral = False
        return character


def parse(source: str) -> tuple[Node, bool]:
    """What an expression is made of, and whether other engines (`regex`, tiktoken's) read it alike.

    Raises:
        UnreadableError: it is wrong, or uses what is not read here; with the place.
    """
    parser = _Parser(source)
    return parser.parse(), parser.neutral


def may_be_empty(node: Node) -> bool:
    """Whether it can match without taking a character."""
    match node:
        case Set():
            return False
        case Sequence(parts):
            return all(map(may_be_empty, parts))
        case Alternatives(parts):
            return any(map(may_be_empty, parts))
        case Repeat(part, least, _, _):
            return least == 0 or may_be_empty(part)
        case Atomic(part):
            return may_be_empty(part)
    return True


def _width(node: Node) -> int | None:
    """The one number of characters that it can match; None where there are several."""
    match node:
        case Set():
            return 1
        case Sequence(parts):
            widths = [_width(part) for part in parts]
            return None if None in widths else sum(width or 0 for width in widths)
        case Alternatives(parts):
            several = {_width(part) for part in parts}
            return several.pop() if len(several) == 1 else None
        case Repeat(part, least, most, _):
            width = _width(part)
            return width * least if width is not None and least == most else None
        case Atomic(part):
            return _width(part)
    return 0
