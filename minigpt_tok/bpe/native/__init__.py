"""The core in C++: the same results as `bpe.reference`, fast. Optional at run time.

It is built three times from the same headers, for three levels of the x86-64 instruction set (the first of them for
every other processor too), and the best that the processor can run is loaded. `MINIGPT_TOK_PURE=1`, or a machine where
it could not be compiled, leaves the readable Python to do the work: `core` is then `None`.
"""

import importlib
import logging
import os
from types import ModuleType

from minigpt_tok.bpe.classes import class_ranges

_LETTER, _NUMBER, _SPACE, _NOT_SMALL, _NOT_CAPITAL = 1, 2, 4, 8, 16  # as in text.hpp
_FLAGS = {
    "Lu": _LETTER | _NOT_SMALL,
    "Lt": _LETTER | _NOT_SMALL,
    "Lm": _LETTER | _NOT_SMALL | _NOT_CAPITAL,
    "Lo": _LETTER | _NOT_SMALL | _NOT_CAPITAL,
    "Ll": _LETTER | _NOT_CAPITAL,
    "M": _NOT_SMALL | _NOT_CAPITAL,
    "N": _NUMBER,
    "White_Space": _SPACE,
}


def load_level(level: int) -> ModuleType:
    """The core as built for one level of the instruction set, 1, 3 or 4, which the processor must have.

    Raises:
        ImportError: it has not been built.
    """
    core = importlib.import_module(f"{__name__}._core_v{level}")
    flags = bytearray(0x110000)
    for name, flag in _FLAGS.items():
        for first, last in class_ranges(name):
            flags[first : last + 1] = bytes([flag]) * (last + 1 - first)
    core.set_classes(bytes(flags))
    return core


def _load() -> ModuleType | None:
    if os.environ.get("MINIGPT_TOK_PURE", "") not in ("", "0"):
        return None
    try:
        return load_level(importlib.import_module(f"{__name__}._cpu").level())
    except ImportError as error:
        logging.getLogger(__name__).warning(
            "the C++ core is not there (%s): the readable Python does the work, with the same results, many times slower. "
            "Install a C++ compiler and install this package again",
            error,
        )
        return None


core = _load()
