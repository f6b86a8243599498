"""Run the core's tests under AddressSanitizer and UndefinedBehaviorSanitizer: `python3 scripts/sanitize.py [pytest arguments]`.

Copies the package and the tests into a temporary folder, builds the core there for every level of the instruction set
that this processor has, with both sanitizers and the checks of the standard library (an index past a vector's end), and
runs `tests/bpe/test_core_*.py` on it. Python gets its memory straight from `malloc`, so that a read past the end of a
str is seen too; leaks are left to tests/bpe/test_core_memory.py, since Python itself has some. Whatever is found ends
the run with a report of where. Some three minutes on two cores; `--slow` adds the long tests. Needs Linux and GCC.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from environment import ROOT, prepare

NATIVE = Path("minigpt_tok", "bpe", "native")
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
FLAGS = ["-O1", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-D_GLIBCXX_ASSERTIONS", *SANITIZE]
DESCRIBE = """
import pybind11, sysconfig
print(pybind11.get_include(), sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX"), sep="\\n")
"""
LEVEL = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_cpu", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.level())
"""


def main() -> int:
    compiler = os.environ.get("CXX", "g++")
    if not sys.platform.startswith("linux") or shutil.which(compiler) is None:
        raise SystemExit("this needs Linux and GCC (g++, or what CXX names)")
    python = prepare("test")
    pybind11, include, suffix = subprocess.check_output([python, "-c", DESCRIBE], text=True).split("\n")[:3]
    with tempfile.TemporaryDirectory(prefix="minigpt-tok-sanitized-") as temporary:
        folder = Path(temporary)
        for part in ("minigpt_tok", "tests"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)

        def build(source: str, *flags: str) -> None:
            module = folder / NATIVE / f"_{Path(source).stem}{suffix}"
            includes = [f"-I{pybind11}", f"-I{include}"]
            subprocess.run([compiler, *flags, *FLAGS, *includes, folder / NATIVE / source, "-o", module], check=True)

        print("building the core with AddressSanitizer and UndefinedBehaviorSanitizer …", flush=True)
        build("cpu.c", "-x", "c")
        ask = [python, "-c", LEVEL, folder / NATIVE / f"_cpu{suffix}"]
        highest = int(subprocess.check_output(ask, env=_environment(compiler)))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            march = {1: [], 3: ["-march=x86-64-v3"], 4: ["-march=x86-64-v4"]}
            levels = [level for level in march if level <= highest]
            list(pool.map(lambda level: build(f"core_v{level}.cpp", "-std=c++20", *march[level]), levels))
        print(f"testing levels {', '.join(map(str, levels))} …", flush=True)
        tests = sorted(str(path.relative_to(folder)) for path in folder.glob("tests/bpe/test_core_*.py"))
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys", *sys.argv[1:], *tests]
        return subprocess.run(command, cwd=folder, env=_environment(compiler)).returncode


def _environment(compiler: str) -> dict[str, str]:
    """The sanitizers' own library comes before all others, with the one whose exceptions it watches."""
    libraries = [
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so.6")
    ]
    return os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:strict_string_checks=1:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONFAULTHANDLER": "1",
        "MINIGPT_TOK_PURE": "0",
        "MINIGPT_TOK_SHARED": os.environ.get("MINIGPT_TOK_SHARED") or str(ROOT.parent / "shared"),
    }


if __name__ == "__main__":
    sys.exit(main())
