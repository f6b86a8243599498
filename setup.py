"""Builds the C++ core; all other metadata is in setup.cfg.

The core is optional: without a compiler the package installs as pure Python, with the same results. It is compiled once
for each level of the x86-64 instruction set, and the level is chosen when it is loaded.
"""

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup

try:
    from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
except ImportError:  # an old way of building that passes over pyproject.toml: pure Python then
    setup()
    sys.exit()

NATIVE = "minigpt_tok/bpe/native"
HEADERS = sorted(str(path) for path in Path(NATIVE).glob("*.hpp"))
# As far as x86-64-v3 and v4 go; elsewhere the first level is the only one.
LEVELS = (1, 3, 4) if platform.machine().lower() in ("x86_64", "amd64") and sys.platform != "win32" else (1,)


def core(level: int) -> Extension:
    """The module of one level."""
    arguments = ["/O2"] if sys.platform == "win32" else ["-O3", "-fno-plt"]
    if level > 1:
        arguments.append(f"-march=x86-64-v{level}")
    extension = Pybind11Extension(
        f"minigpt_tok.bpe.native._core_v{level}",
        [f"{NATIVE}/core_v{level}.cpp"],
        cxx_std=20,
        extra_compile_args=arguments,
        depends=HEADERS,
    )
    extension.optional = True
    return extension


ParallelCompile("MINIGPT_TOK_BUILD_JOBS", default=2).install()
setup(
    ext_modules=[
        Extension("minigpt_tok.bpe.native._cpu", [f"{NATIVE}/cpu.c"], optional=True),
        *(core(level) for level in LEVELS),
    ]
)
