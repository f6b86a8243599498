"""Pickles of `dict`, `list`, `tuple`, `int` and `bytes`, read without running anything that they ask for.

A pickle is a program for a small machine. This reader looks at its instructions first and runs it only if all of them
belong to the few that build these five types: none can import, call or allocate by a number in the file.
"""

import io
import pickle
import pickletools
from typing import Any, NoReturn

from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath

LARGEST_PICKLE = 64 << 20  # bytes
FIRST_BYTE = b"\x80"  # of every pickle since protocol 2

_HARMLESS = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
    "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    """Cannot import: no harmless instruction asks for it, so this is never reached."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module_name}.{global_name}")


def load(path: StrPath) -> Any:
    """What a pickle of these types holds.

    Raises:
        FormatError: other types, or no whole pickle.
    """
    with open(path, "rb") as file:
        data = file.read(LARGEST_PICKLE + 1)
    if len(data) > LARGEST_PICKLE:
        raise FormatError(f"{path}: larger than {LARGEST_PICKLE:,} bytes, the most that is read as a pickle")
    try:
        for instruction, argument, _ in pickletools.genops(data):
            if instruction.name not in _HARMLESS:
                raise FormatError(
                    f"{path}: a pickle with the instruction {instruction.name}, so of more than dict, list, tuple, int and "
                    "bytes; such a pickle can run anything. Save plain dict and list with pickle protocol 3 or newer, or JSON"
                )
            # The memo is an array: an index far beyond what can be in it would allocate as much.
            if instruction.name in ("BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) < len(data):
                raise FormatError(f"{path}: a damaged pickle")
        return _Unpickler(io.BytesIO(data)).load()
    except FormatError:
        raise
    except Exception as error:  # damaged pickles raise almost anything
        raise FormatError(f"{path}: a damaged pickle: {error}") from None
