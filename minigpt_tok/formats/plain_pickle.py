"""Pickles of `dict`, `list`, `tuple`, `int` and `bytes`, read without running anything that they ask for.

A pickle is a program for a small machine. This reader looks at its instructions first and runs it only if all of them
belong to the few that build these five types: none can import, call or allocate by a number in the file.
"""

import io
import pickle
import pickletools
from typing import Any, Literal, NoReturn

from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, read_bytes

LARGEST_PICKLE = 64 << 20  # bytes
MOST_INSTRUCTIONS = 4_000_000  # a vocabulary of 200,000 ids with its merges has 1.6 million
MOST_LONG_NUMBERS = 1_000  # of more than 8 bytes: many can be chosen so that a dict of them takes quadratic time
FIRST_BYTE = b"\x80"  # of every pickle since protocol 2

_HARMLESS = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
    "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
}  # fmt: skip
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
# Instruction → bytes of its argument; where that says how many bytes follow, less than 0: so many bytes say it.
_ARGUMENT = {
    "PROTO": 1, "FRAME": 8, "BINPUT": 1, "LONG_BINPUT": 4, "BINGET": 1, "LONG_BINGET": 4, "BININT": 4, "BININT1": 1,
    "BININT2": 2, "LONG1": -1, "SHORT_BINBYTES": -1, "BINBYTES": -4, "BINBYTES8": -8,
}  # fmt: skip
_SIZES: list[int | None] = [_ARGUMENT.get(_NAMES[b], 0) if _NAMES.get(b) in _HARMLESS else None for b in range(256)]
_STOP, _LONG1, _PUTS = ord("."), 0x8A, {ord("q"): 1, ord("r"): 4}


class _Unpickler(pickle.Unpickler):
    """Cannot import: no harmless instruction asks for it, so this is never reached."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module_name}.{global_name}")


def load(path: StrPath) -> Any:
    """What a pickle of these types holds.

    Raises:
        FormatError: other types, or no whole pickle.
    """
    data = read_bytes(path, limit=LARGEST_PICKLE, what="a pickle")
    try:
        _look_at(data, path)
        return _Unpickler(io.BytesIO(data)).load()
    except FormatError:
        raise
    except Exception as error:  # damaged pickles raise almost anything
        raise FormatError(f"{path}: a damaged pickle: {error}") from None


def _look_at(data: bytes, path: StrPath) -> None:
    """Refuse every pickle that has other instructions, or that would take more time or memory than its size."""
    at = long_numbers = 0
    size = len(data)
    for _ in range(MOST_INSTRUCTIONS):
        if at >= size:
            raise FormatError(f"{path}: a damaged pickle: its end is missing")
        instruction = data[at]
        argument = _SIZES[instruction]
        at += 1
        if argument is None:
            raise FormatError(
                f"{path}: a pickle with the instruction {_NAMES.get(instruction, hex(instruction))}, so of more than dict, "
                "list, tuple, int and bytes; such a pickle can run anything. Save plain dict and list with pickle protocol 3 "
                "or newer, or JSON"
            )
        if argument >= 0:
            # The memo is an array: an index far beyond what can be in it would allocate as much.
            if instruction in _PUTS and int.from_bytes(data[at : at + argument], "little") >= size:
                raise FormatError(f"{path}: a damaged pickle")
            at += argument
        else:
            length = int.from_bytes(data[at : at - argument], "little")
            at += length - argument
            if instruction == _LONG1 and length > 8:
                long_numbers += 1
                if long_numbers > MOST_LONG_NUMBERS:
                    raise FormatError(
                        f"{path}: a pickle with more numbers of over 8 bytes than a vocabulary could have"
                    )
        if instruction == _STOP:
            return
    raise FormatError(f"{path}: a pickle of more than {MOST_INSTRUCTIONS:,} instructions, the most that is read")


def kind_of(start: bytes) -> Literal["dict", "list"] | None:
    """What a pickle that starts like this makes, if that is a `dict` or a `list`."""
    rest = start[2:]
    if rest[:1] == b"\x95":  # FRAME
        rest = rest[9:]
    kinds: dict[bytes, Literal["dict", "list"]] = {b"}": "dict", b"]": "list"}
    return kinds.get(rest[:1])
