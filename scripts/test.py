"""Run every check of the project: `python3 scripts/test.py [pytest arguments]`.

Makes `.venv` if there is none, installs what is pinned, then runs ruff, mypy and the tests. `--slow` adds the tests
that take minutes. Standard library only.
"""

import os
import subprocess
import sys

from environment import ROOT, prepare


def main() -> int:
    python = prepare("test")
    # One thread per process: the tests run in as many processes as there are cores.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    checks = {
        "ruff check": ["-m", "ruff", "check", "."],
        "ruff format": ["-m", "ruff", "format", "--check", "."],
        "mypy": ["-m", "mypy"],
        "pytest": ["-m", "pytest", "-n", "auto", "--dist", "loadfile", "-q", *sys.argv[1:]],
    }
    failed = []
    for name, arguments in checks.items():
        print(f"== {name}", flush=True)
        if subprocess.run([str(python), *arguments], cwd=ROOT, env=environment).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
