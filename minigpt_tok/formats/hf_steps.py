"""The normalizer and the pre-tokenizer of a `tokenizer.json`, read and written.

Each step is honoured as `tokenizers` does it or refused by its name; so is every field of one. What amounts to a named
pattern or to one expression is read as that, whatever the steps it is spelled in, and the rest as a pipeline.
"""

import re
from collections.abc import Callable
from typing import Any

from minigpt_tok.bpe import normalize, pipeline
from minigpt_tok.bpe.expression import get_expression
from minigpt_tok.bpe.normalize import Normalizer
from minigpt_tok.bpe.oniguruma import UnreadableError
from minigpt_tok.bpe.pipeline import BEHAVIORS, ByteLevel, Digits, Metaspace, Pipeline, Split
from minigpt_tok.bpe.pretokenize import (
    LONGEST_EXPRESSION,
    NO_CUT,
    PATTERNS,
    known_pattern_name,
    oniguruma_expression,
)
from minigpt_tok.errors import FormatError
from minigpt_tok.formats.loaded import field, refusal

MOST_STEPS = 1000
Nothing = type(None)
Fields = dict[str, Any]


# Normalizers


def read_normalizer(block: Fields | None, where: str) -> Normalizer | None:
    """The normalizer; `None` for one that changes nothing.

    Raises:
        FormatError: naming the step or field that cannot be honoured, and its place.
    """
    if block is None:
        return None
    steps: list[normalize.Step] = []
    for step, place in flat(block, "normalizers", where):
        kind = field(step, "type", str, place)
        if kind not in _NORMALIZERS:
            raise refusal(place, "type", kind)
        if steps and isinstance(steps[-1], normalize.ToPrintable):
            raise FormatError(
                f"{place}: {kind} after ByteLevel, which changes the characters that stand for bytes, is not read"
            )
        read = _NORMALIZERS[kind](step, place)
        if read is not None:
            steps.append(read)
    return Normalizer(tuple(steps)) if steps else None


def _form(step: Fields, place: str) -> normalize.Step:
    only(step, (), place)
    return normalize.UnicodeForm(step["type"])


def _simple(make: Callable[[], normalize.Step]) -> Callable[[Fields, str], normalize.Step]:
    def read(step: Fields, place: str) -> normalize.Step:
        only(step, (), place)
        return make()

    return read


def _strip(step: Fields, place: str) -> normalize.Step | None:
    only(step, ("strip_left", "strip_right"), place)
    left, right = field(step, "strip_left", bool, place), field(step, "strip_right", bool, place)
    return normalize.Strip(left, right) if left or right else None


def _prepend(step: Fields, place: str) -> normalize.Step | None:
    only(step, ("prepend",), place)
    text = field(step, "prepend", str, place)
    return normalize.Prepend(text) if text else None


def _replace(step: Fields, place: str) -> normalize.Step | None:
    only(step, ("pattern", "content"), place)
    pattern, is_expression = read_pattern(step, place)
    content = field(step, "content", str, place)
    may_be_empty = get_expression(pattern).may_be_empty if is_expression else not pattern
    if not content and not pattern:
        return None
    if may_be_empty and content:
        raise FormatError(
            f"{place}.pattern: {pattern!r} matches nothing, too, where {content!r} is put in; tokenizers itself fails on that"
        )
    return normalize.Replace(pattern, is_expression, content)


_NORMALIZERS: dict[str, Callable[[Fields, str], normalize.Step | None]] = {
    "NFC": _form,
    "NFD": _form,
    "NFKC": _form,
    "NFKD": _form,
    "Lowercase": _simple(normalize.Lowercase),
    "StripAccents": _simple(normalize.StripAccents),
    "ByteLevel": _simple(normalize.ToPrintable),
    "Strip": _strip,
    "Prepend": _prepend,
    "Replace": _replace,
}


def write_normalizer(normalizer: Normalizer | None) -> Fields | None:
    """As `tokenizers` spells it."""
    if normalizer is None:
        return None
    steps = normalizer.plain()
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "normalizers": steps}


# Pre-tokenizers


def read_pre_tokenizer(block: Fields | None, normalizer: Normalizer | None, where: str) -> tuple[str, Pipeline | None]:
    """The pattern that the steps amount to; or, with the pattern `none`, the pipeline that they are.

    Raises:
        FormatError: naming the step or field that cannot be honoured; or the pieces do not end up as bytes.
    """
    steps: list[pipeline.Step] = []
    if block is not None:
        for step, place in flat(block, "pretokenizers", where):
            kind = field(step, "type", str, place)
            if kind not in _PRE_TOKENIZERS:
                raise refusal(place, "type", kind)
            steps.append(_PRE_TOKENIZERS[kind](step, place))
    last = max((n for n, step in enumerate(steps) if isinstance(step, ByteLevel)), default=-1)
    printable = normalizer is not None and normalizer.gives_printable
    if last < 0 and not printable:
        what = "is null" if block is None else "has no ByteLevel"
        raise FormatError(f"{where} {what}, so the model's tokens are not bytes: not a byte-level tokenizer")
    if any(isinstance(step, Metaspace) for step in steps[last + 1 :]):
        raise FormatError(f"{where}: Metaspace after the bytes have been spelled puts in what stands for no byte")
    if printable:
        return NO_CUT, Pipeline(tuple(steps)) if steps else None
    pattern = _as_pattern(steps)
    return (NO_CUT, Pipeline(tuple(steps))) if pattern is None else (pattern, None)


def _as_pattern(steps: list[pipeline.Step]) -> str | None:
    """The named pattern or the expression that steps amount to, if they do."""
    match steps:
        case [ByteLevel(False, cuts)]:
            return "gpt2" if cuts else NO_CUT
        case [Digits(True), ByteLevel(False, True)]:
            return "smollm"
        case [Split(pattern, True, behavior, invert), ByteLevel(False, False)]:
            # A named pattern leaves nothing between its matches, so it is the same whether that is kept or removed.
            all_kept = behavior == "Isolated" or (behavior == "Removed" and invert)
            if (name := known_pattern_name(pattern, engine="oniguruma")) is not None and all_kept:
                return name
            if behavior == "Isolated" and get_expression(pattern).neutral and known_pattern_name(pattern) is None:
                return f"(?:{pattern})" if re.fullmatch(r"[\w-]+", pattern) else pattern
    return None


def _byte_level(step: Fields, place: str) -> pipeline.Step:
    only(step, ("add_prefix_space", "trim_offsets", "use_regex"), place)
    field(step, "trim_offsets", bool, place, default=True)  # which is for offsets, and ours always are whole
    return ByteLevel(
        field(step, "add_prefix_space", bool, place, default=True), field(step, "use_regex", bool, place, default=True)
    )


def _split(step: Fields, place: str) -> pipeline.Step:
    only(step, ("pattern", "behavior", "invert"), place)
    pattern, is_expression = read_pattern(step, place)
    behavior = _behavior(step, place, default=...)
    invert = field(step, "invert", bool, place, default=False)
    if behavior in ("Isolated", "Contiguous"):
        invert = False  # matches and what is between them are kept alike
    return Split(pattern, is_expression, behavior, invert)


def _digits(step: Fields, place: str) -> pipeline.Step:
    only(step, ("individual_digits",), place)
    return Digits(field(step, "individual_digits", bool, place))


def _punctuation(step: Fields, place: str) -> pipeline.Step:
    only(step, ("behavior",), place)
    return pipeline.Punctuation(_behavior(step, place, default="Isolated"))


def _whitespace(step: Fields, place: str) -> pipeline.Step:
    only(step, (), place)
    return pipeline.Whitespace()


def _whitespace_split(step: Fields, place: str) -> pipeline.Step:
    only(step, (), place)
    return pipeline.WhitespaceSplit()


def _delimiter(step: Fields, place: str) -> pipeline.Step:
    only(step, ("delimiter",), place)
    return pipeline.CharDelimiterSplit(_character(step, "delimiter", place))


def _fixed_length(step: Fields, place: str) -> pipeline.Step:
    only(step, ("length",), place)
    length = field(step, "length", int, place, default=5)
    if length < 1:
        raise FormatError(f"{place}.length: is {length}, and pieces have a character at least")
    return pipeline.FixedLength(length)


def _metaspace(step: Fields, place: str) -> pipeline.Step:
    only(step, ("replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"), place)
    scheme = field(step, "prepend_scheme", str, place, default="always")
    if scheme not in ("first", "never", "always"):
        raise refusal(place, "prepend_scheme", scheme)
    if field(step, "add_prefix_space", (bool, Nothing), place, default=None) is False and scheme != "never":
        raise FormatError(
            f"{place}: add_prefix_space is False and prepend_scheme {scheme!r}: they contradict each other"
        )
    split = field(step, "split", (bool, Nothing), place, default=True)
    return Metaspace(_character(step, "replacement", place), scheme, split is not False)


_PRE_TOKENIZERS: dict[str, Callable[[Fields, str], pipeline.Step]] = {
    "ByteLevel": _byte_level,
    "Split": _split,
    "Digits": _digits,
    "Punctuation": _punctuation,
    "Whitespace": _whitespace,
    "WhitespaceSplit": _whitespace_split,
    "CharDelimiterSplit": _delimiter,
    "FixedLength": _fixed_length,
    "Metaspace": _metaspace,
}


def write_pre_tokenizer(pattern: str, steps: Pipeline | None, normalizer: Normalizer | None) -> Fields | None:
    """The `pre_tokenizer` that cuts as a pattern or a pipeline does, and ends in bytes."""
    if steps is not None:
        plain = steps.plain()
        return plain[0] if len(plain) == 1 else {"type": "Sequence", "pretokenizers": plain}
    if normalizer is not None and normalizer.gives_printable:
        return None
    return pre_tokenizer_of(pattern)


def pre_tokenizer_of(pattern: str) -> Fields:
    """The `pre_tokenizer` that cuts as a pattern does, and ends in bytes."""
    if pattern == "gpt2":
        return _byte_level_block(True)
    if pattern == NO_CUT:
        return _byte_level_block(False)
    if pattern == "smollm":
        return {"type": "Sequence", "pretokenizers": [Digits(True).plain(), _byte_level_block(True)]}
    expression = oniguruma_expression(pattern) if pattern in PATTERNS else pattern
    split = Split(expression, True, "Isolated", False).plain()
    return {"type": "Sequence", "pretokenizers": [split, _byte_level_block(False)]}


def _byte_level_block(use_regex: bool) -> Fields:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


# What both have


def read_pattern(step: Fields, place: str) -> tuple[str, bool]:
    """The text of `pattern`, and whether it is an expression; one that matches just one text is that text.

    Raises:
        FormatError: it is neither a text nor an expression that is read here.
    """
    pattern = field(step, "pattern", dict, place)
    if len(pattern) != 1 or not pattern.keys() <= {"String", "Regex"}:
        raise FormatError(
            f"{place}.pattern: has {', '.join(map(repr, sorted(pattern))) or 'nothing'}, not 'String' or 'Regex'"
        )
    if "String" in pattern:
        return field(pattern, "String", str, f"{place}.pattern"), False
    expression: str = field(pattern, "Regex", str, f"{place}.pattern")
    if len(expression) > LONGEST_EXPRESSION:
        raise FormatError(
            f"{place}.pattern.Regex: has {len(expression):,} characters; more than {LONGEST_EXPRESSION:,} would take minutes "
            "to compile"
        )
    try:
        literal = get_expression(expression).literal
    except (UnreadableError, RecursionError) as error:
        reason = error if isinstance(error, UnreadableError) else "the expression nests too deeply"
        raise FormatError(f"{place}.pattern.Regex: {reason}") from None
    return (expression, True) if literal is None else (literal, False)


def _behavior(step: Fields, place: str, *, default: Any) -> pipeline.Behavior:
    behavior = field(step, "behavior", str, place, default=default)
    if behavior not in BEHAVIORS:
        raise refusal(place, "behavior", behavior)
    return behavior  # type: ignore[no-any-return]


def _character(step: Fields, key: str, place: str) -> str:
    character: str = field(step, key, str, place)
    if len(character) != 1:
        raise FormatError(f"{place}.{key}: is {character[:60]!r}, not one character")
    return character


def only(step: Fields, known: tuple[str, ...], place: str) -> None:
    """Refuse a field that is not known: its effect would not be either."""
    for key in step:
        if key != "type" and key not in known:
            raise FormatError(f"{place}: the field {key!r} is not known, so its effect on the ids is not either")


def flat(block: Any, inside: str, where: str) -> list[tuple[Fields, str]]:
    """The steps of a block, sequences opened, each with its place."""
    waiting: list[tuple[Any, str]] = [(block, where)]
    steps: list[tuple[Fields, str]] = []
    seen = 0
    while waiting:
        step, place = waiting.pop()
        seen += 1
        if seen > MOST_STEPS:
            raise FormatError(f"{where}: has more than {MOST_STEPS:,} steps")
        if not isinstance(step, dict):
            raise FormatError(f"{place}: is not an object")
        if step.get("type") != "Sequence":
            steps.append((step, place))
            continue
        only(step, (inside,), place)
        parts = field(step, inside, list, place)
        waiting += reversed([(part, f"{place}.{inside}[{number}]") for number, part in enumerate(parts)])
    return steps
