"""The named patterns: how their publishers wrote them, where they are certain to cut, and by what spellings they are known.

What runs them is `pretokenize`.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Definition:
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


def _digits(most: str) -> Definition:
    return Definition(
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

DEFINITIONS = {
    "gpt2": Definition(
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
    "cl100k": Definition(
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
    "o200k": Definition(
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
    "smollm": Definition(
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
    name: "|".join(expression for _, expression in definition.alternatives) for name, definition in DEFINITIONS.items()
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


def pattern_names() -> str:
    """The names of all patterns, for messages."""
    return ", ".join([*PATTERNS, NO_CUT])


def shortened(expression: str) -> str:
    """An expression for a message."""
    return repr(expression if len(expression) <= 80 else expression[:77] + "...")
