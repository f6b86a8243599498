"""Sets of characters as ranges, and the names that regular expressions have for them.

A set is a tuple of closed ranges of code points, ascending and never touching, as in `classes`.
"""

from bisect import bisect_right
from functools import cache

from minigpt_tok.bpe import oniguruma_classes, rust_classes
from minigpt_tok.bpe.classes import Ranges, class_ranges
from minigpt_tok.bpe.classes import union as union

LAST = 0x10FFFF
EVERYTHING: Ranges = ((0, LAST),)
_LATIN_1_FRACTIONS: Ranges = ((0xB2, 0xB3), (0xB9, 0xB9), (0xBC, 0xBE))
_HEX_DIGITS: Ranges = ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
_LETTERS = ("Lu", "Ll", "Lt", "Lm", "Lo")


def complement(ranges: Ranges) -> Ranges:
    """The characters that are not in it."""
    borders = [-1, *(point for first, last in ranges for point in (first, last)), LAST + 1]
    gaps = ((borders[n] + 1, borders[n + 1] - 1) for n in range(0, len(borders), 2))
    return tuple((first, last) for first, last in gaps if first <= last)


def intersection(first: Ranges, second: Ranges) -> Ranges:
    """The characters of both."""
    return complement(union(complement(first), complement(second)))


def difference(first: Ranges, second: Ranges) -> Ranges:
    """The characters of the first that are not in the second."""
    return intersection(first, complement(second))


def of(characters: str) -> Ranges:
    """The set of some characters."""
    return union(*(((ord(character), ord(character)),) for character in characters))


def borders_of(ranges: Ranges) -> tuple[int, ...]:
    """Where a set begins and ends in turn: an odd number of borders lie at or before its members."""
    return tuple(border for first, last in ranges for border in (first, last + 1))


def contains(ranges: Ranges, code_point: int) -> bool:
    """Whether a character is in the set."""
    place = bisect_right(ranges, (code_point, LAST)) - 1
    return place >= 0 and code_point <= ranges[place][1]


def parsed(words: str) -> Ranges:
    """From the spelling of the generated tables: `41-5A AA`."""
    parts = (word.partition("-") for word in words.split())
    return tuple((int(first, 16), int(last or first, 16)) for first, _, last in parts)


@cache
def rust_class(name: str) -> Ranges:
    """A table of `rust_classes` by its name, `NUMERIC` say."""
    return parsed(getattr(rust_classes, name))


@cache
def property_ranges(name: str) -> Ranges | None:
    r"""What `\p{name}` means to Oniguruma, by Unicode 16.0; None where the name is not known here."""
    plain = "".join(character for character in name if character not in " _-").lower()
    if plain in _spelled_properties():
        return _spelled_properties()[plain]
    known = _names_of_tables().get(plain)
    return None if known is None else _table(known)


@cache
def posix_class(name: str) -> Ranges | None:
    """What `[:name:]` means in a set, which for `word` and `punct` is not what `\\p{name}` is."""
    if name == "word":
        return difference(_required("word"), _LATIN_1_FRACTIONS)
    if name == "punct":
        symbols = (_table(kind) for kind in ("Sc", "Sk", "Sm", "So"))
        return union(_required("punct"), *symbols)
    if name in (
        "alnum",
        "alpha",
        "ascii",
        "blank",
        "cntrl",
        "digit",
        "graph",
        "lower",
        "print",
        "space",
        "upper",
        "xdigit",
    ):
        return property_ranges(name)
    return None


@cache
def rust_word() -> Ranges:
    r"""What `\w` means to Rust's regular expressions: Oniguruma's in a set, and the two joiners."""
    return union(difference(_required("word"), _LATIN_1_FRACTIONS), ((0x200C, 0x200D),))


def _required(name: str) -> Ranges:
    ranges = property_ranges(name)
    assert ranges is not None
    return ranges


@cache
def _table(name: str) -> Ranges:
    if name in _LETTERS or name in ("N", "M", "L"):
        return class_ranges(name)
    if name == "Cn":
        rest = union(*(_table(kind) for kind in (*oniguruma_classes.CATEGORIES, *_LETTERS)), ((0xD800, 0xDFFF),))
        return complement(rest)
    for tables in (oniguruma_classes.CATEGORIES, oniguruma_classes.PROPERTIES, oniguruma_classes.SCRIPTS):
        if name in tables:
            return parsed(tables[name])
    members = [kind for kind in (*oniguruma_classes.CATEGORIES, *_LETTERS, "Cn") if kind.startswith(name)]
    assert members, name
    return union(*map(_table, members))


_LONG_NAMES = {
    "L": "Letter", "Lu": "Uppercase_Letter", "Ll": "Lowercase_Letter", "Lt": "Titlecase_Letter", "Lm": "Modifier_Letter",
    "Lo": "Other_Letter", "M": "Mark", "Mn": "Nonspacing_Mark", "Mc": "Spacing_Mark", "Me": "Enclosing_Mark",
    "N": "Number", "Nd": "Decimal_Number", "Nl": "Letter_Number", "No": "Other_Number", "P": "Punctuation",
    "Pc": "Connector_Punctuation", "Pd": "Dash_Punctuation", "Ps": "Open_Punctuation", "Pe": "Close_Punctuation",
    "Pi": "Initial_Punctuation", "Pf": "Final_Punctuation", "Po": "Other_Punctuation", "S": "Symbol", "Sm": "Math_Symbol",
    "Sc": "Currency_Symbol", "Sk": "Modifier_Symbol", "So": "Other_Symbol", "Z": "Separator", "Zs": "Space_Separator",
    "Zl": "Line_Separator", "Zp": "Paragraph_Separator", "C": "Other", "Cc": "Control", "Cf": "Format", "Co": "Private_Use",
    "Cn": "Unassigned",
}  # fmt: skip


@cache
def _names_of_tables() -> dict[str, str]:
    """Name as Oniguruma compares it → name of the table."""
    names = dict.fromkeys(
        [*_LONG_NAMES, *_LONG_NAMES.values(), *oniguruma_classes.PROPERTIES, *oniguruma_classes.SCRIPTS]
    )
    of_long = {long: short for short, long in _LONG_NAMES.items()}
    return {name.replace("_", "").lower(): of_long.get(name, name) for name in names}


@cache
def _spelled_properties() -> dict[str, Ranges]:
    """The properties that are made of others."""
    alphabetic = _table("Alphabetic")
    white_space = class_ranges("White_Space")
    digits = _table("Nd")
    control: Ranges = ((0, 0x1F), (0x7F, 0x9F))
    graph = complement(union(white_space, control, _table("Cn"), ((0xD800, 0xDFFF),)))
    word = union(alphabetic, _table("M"), digits, _table("Pc"))
    return {
        "any": EVERYTHING,
        "ascii": ((0, 0x7F),),
        "alnum": union(alphabetic, digits),
        "alpha": alphabetic,
        "blank": union(_table("Zs"), ((9, 9),)),
        "cntrl": control,
        "digit": digits,
        "graph": graph,
        "lower": _table("Lowercase"),
        "print": union(graph, _table("Zs")),
        "punct": _table("P"),
        "space": white_space,
        "whitespace": white_space,
        "upper": _table("Uppercase"),
        "xdigit": _HEX_DIGITS,
        "word": union(word, _LATIN_1_FRACTIONS),
        "lc": union(*(_table(kind) for kind in ("Lu", "Ll", "Lt"))),
        "casedletter": union(*(_table(kind) for kind in ("Lu", "Ll", "Lt"))),
    }


# Case


@cache
def _folds() -> dict[int, tuple[int, ...]]:
    """Code point → all that are like it where case does not matter, itself included."""
    groups: dict[int, tuple[int, ...]] = {}
    for first, last in lower_case().items():
        groups[first] = groups[last] = (first, last)
    for word in oniguruma_classes.FOLDS.split():
        group = tuple(int(point, 16) for point in word.split("+"))
        for point in group:
            groups[point] = group
    return groups


@cache
def lower_case() -> dict[int, int]:
    """Code point → its lower case by Unicode 17.0, where that is one other character."""
    found = {}
    for run in rust_classes.LOWERCASE.split():
        first_and_last, _, rule = run.partition("/")
        first, last = (int(point, 16) for point in first_and_last.split("-"))
        step, difference = int(rule[0]), int(rule[1:])
        found.update({point: point + difference for point in range(first, last + 1, step)})
    return found


def any_case(ranges: Ranges) -> Ranges:
    """The set with every character that differs from one of its own in case alone."""
    more = {point for one, group in _folds().items() if contains(ranges, one) for point in group}
    return union(ranges, tuple((point, point) for point in more))


@cache
def folds_to_many() -> dict[str, tuple[int, ...]]:
    """What single characters are like in any case, where that is several, `ss` for `ß` say; with those characters."""
    many: dict[str, tuple[int, ...]] = {}
    for point in range(LAST + 1):
        if len(folded := chr(point).casefold()) > 1:
            many[folded] = (*many.get(folded, ()), point)
    return many
