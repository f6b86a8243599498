"""What every reader gives, and what every reader needs: bounded JSON, and vocabularies without gaps."""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minigpt_tok.bpe.trainer import Training
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, read_text

if TYPE_CHECKING:
    from minigpt_tok.formats.hf_after import Carried

LARGEST_FILE = 128 << 20  # bytes; the largest published tokenizer.json has some 35 MB
MOST_IDS = 1 << 24
# What a file may make in memory is bounded by these, not by its size: `[[],[],…` takes 20 times the memory of its text.
# The largest published files have 0.5 million lists and objects, 0.3 million keys and 1.5 million values.
MOST_CONTAINERS = 2_000_000
MOST_KEYS = 1_500_000
MOST_VALUES = 4_000_000
# Of the lengths of all tokens, each squared: what reading every split of every token costs. One token may have 32 KiB.
MOST_SPLITTING = 1 << 30
MOST_DIGITS = 19  # of a whole number: longer ones can be chosen so that a dict of them takes quadratic time


@dataclass(frozen=True)
class Loaded:
    """A model read from a file, and what came with it."""

    model: Any
    training: Training | None = None
    fingerprint: str | None = None  # that the file says it has
    source: str = "the text"  # for messages
    name: str | None = None
    carried: "Carried | None" = None  # what goes around texts, and how ids become text


def check_fingerprint(loaded: Loaded, computed: str) -> None:
    """Refuse a file whose tokenizer is not the one it was saved with. No fingerprint in it is no error.

    Raises:
        FormatError: with both fingerprints.
    """
    if loaded.fingerprint is not None and loaded.fingerprint != computed:
        raise FormatError(
            f"{loaded.source}: damaged or edited since it was saved: it says its fingerprint is {loaded.fingerprint}, but "
            f"what is in it gives {computed}. Take the original file, or remove the fingerprint from this one to make it "
            "another tokenizer"
        )


def read_json(path: StrPath, what: str) -> Any:
    """Parse a JSON file of bounded size, content and depth; doubled keys are errors."""
    return parse_json(read_text(path, limit=LARGEST_FILE, what=what), str(path))


def parse_json(text: str, source: str) -> Any:
    """As `read_json`, from a text."""

    def no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise FormatError(f"{source}: the key {double!r} stands twice in one object")
        return found

    def no_constant(name: str) -> None:
        raise FormatError(f"{source}: {name} stands in it, which is no JSON")

    def whole(digits: str) -> int:
        if len(digits) > MOST_DIGITS:
            raise FormatError(f"{source}: the number {digits[:MOST_DIGITS]}… in it has {len(digits):,} digits")
        return int(digits)

    if text.startswith("\ufeff"):
        raise FormatError(f"{source}: not JSON: it begins with a byte order mark; save it as UTF-8 without one")
    most = (
        (text.count("[") + text.count("{"), MOST_CONTAINERS),
        (text.count(":"), MOST_KEYS),
        (text.count(","), MOST_VALUES),
    )
    if any(number > limit for number, limit in most):
        raise FormatError(f"{source}: has more lists, objects or values than the largest tokenizer could")
    try:
        return json.loads(text, object_pairs_hook=no_doubles, parse_constant=no_constant, parse_int=whole)
    except json.JSONDecodeError as error:
        raise FormatError(f"{source}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except FormatError:
        raise
    except RecursionError:
        raise FormatError(f"{source}: nested too deeply to be a tokenizer") from None


def refusal(where: str, key: str, value: Any) -> FormatError:
    """What is honoured neither here nor by leaving it out."""
    shown = value.get("type", value) if isinstance(value, dict) else value
    return FormatError(
        f"{where}.{key} is {_short(shown)}, which is not honoured here; loading without it would give other ids than the "
        "file means"
    )


def field(container: Any, key: str, kind: type | tuple[type, ...], where: str, *, default: Any = ...) -> Any:
    """`container[key]`, checked; missing is an error unless there is a default.

    Raises:
        FormatError: naming the field, its value and the place.
    """
    if not isinstance(container, dict):
        raise FormatError(f"{where}: is {_short(container)}, not an object")
    if key not in container:
        if default is ...:
            raise FormatError(f"{where}: has no {key!r}")
        return default
    value = container[key]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise FormatError(f"{where}.{key}: is {_short(value)}, not {names}")
    if isinstance(value, str):
        check_text(value, f"{where}.{key}")
    return value


def check_text(value: str, where: str) -> None:
    """Refuse a lone surrogate, which JSON can spell but no text can hold."""
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise FormatError(f"{where}: {_short(value)} has a lone surrogate, which no text can hold")


def tokens_by_id(vocab: Mapping[Any, Any], source: str, *, gaps: bool = False) -> list[bytes | None]:
    """Ids → raw bytes as a list, from id → bytes; ids must be integers from 0 without gaps (unless `gaps`)."""
    for id in vocab:
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < MOST_IDS:
            raise FormatError(f"{source}: id {_short(id)} is not a whole number from 0 to {MOST_IDS - 1:,}")
    if not vocab:
        raise FormatError(f"{source}: the vocabulary is empty")
    size = max(vocab) + 1
    if size > len(vocab) and not gaps:
        gap = next(id for id in range(size) if id not in vocab)
        raise FormatError(
            f"{source}: no token has id {gap}, but ids go up to {size - 1}: ids must have no gaps, or the file is cut short"
        )
    tokens: list[bytes | None] = [None] * size
    for id, token in vocab.items():
        tokens[id] = token
    if sum(len(token) ** 2 for token in tokens if token is not None) > MOST_SPLITTING:
        longest = max(len(token or b"") for token in tokens)
        raise FormatError(f"{source}: the tokens are longer than a tokenizer's could be, the longest {longest:,} bytes")
    return tokens


def _short(value: Any) -> str:
    text = reprlib.repr(value)  # which goes no deeper than a few levels
    return text if len(text) <= 60 else text[:57] + "…"
