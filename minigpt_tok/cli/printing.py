"""What commands print on standard output: one JSON object, or a page of facts and tables; and tokens as people read them."""

import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len

PAGE_WIDTH = 160  # columns of what is not a terminal


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object. What JSON has no numbers for (infinity, not a number) becomes `null`."""
    ascii_only = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    print(json.dumps(plain(result), ensure_ascii=ascii_only, allow_nan=False))


def plain(value: Any) -> Any:
    """A value as JSON can hold it: dataclasses as objects, paths as text, arrays and sets as lists, bytes as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, bytes):
        return as_text(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, and tensors
        return plain(value.tolist())
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value))
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def print_facts(facts: Iterable[tuple[str, object]], *, indent: int = 0) -> None:
    """Print name and value, a line each, values below one another; facts that are `None` are left out."""
    known = [(name, str(value)) for name, value in facts if value is not None]
    width = max((cell_len(name) for name, _ in known), default=0)
    for name, value in known:
        first, *more = value.split("\n")
        print(f"{' ' * indent}{_padded(name, width)}  {first}".rstrip())
        for line in more:
            print(f"{' ' * (indent + width + 2)}{line}".rstrip())


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[int] = (0,), indent: int = 0
) -> None:
    """Print rows in columns, numbers to the right; `left` numbers the columns that stand to the left."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [
            _padded(cell, width, to_right=column not in left)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print((" " * indent + "  ".join(cells)).rstrip())


def _padded(text: str, width: int, *, to_right: bool = False) -> str:
    """Filled up to `width` columns of the terminal, in which 日 takes two."""
    fill = " " * max(0, width - cell_len(text))
    return fill + text if to_right else text + fill


def print_rich(renderable: Any) -> None:
    """Print a table or text of rich, in the width of the terminal; elsewhere in a width that breaks no line."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PAGE_WIDTH
    with console.capture() as captured:
        console.print(renderable)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


# Tokens


_MARKS = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


def as_text(token: bytes | str) -> str:
    """A token's text; bytes that are no character alone as `\\xe6`."""
    return token.decode("utf-8", "backslashreplace") if isinstance(token, bytes) else token


def readable(token: bytes | str) -> str:
    """A token on one line, as a person reads it: `␣the`, `⏎`, and control characters as `\\x1b`."""
    return escaped(as_text(token).translate(_MARKS))


def escaped(text: str) -> str:
    """Text in which nothing moves the cursor or changes the terminal's state; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else repr(character)[1:-1] for character in text
    )
