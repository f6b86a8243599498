"""The virtual environment that `demo.py` and `test.py` run in: made once, remade when the pins change.

Standard library only: this runs before anything is installed.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"


def prepare(requirements: str) -> Path:
    """Install what `requirements/<requirements>.txt` pins, and this project, into `.venv`; give its Python.

    A mark in the environment says which pins are installed, so that a second run starts at once.
    """
    if sys.version_info < (3, 11):  # noqa: UP036  # whoever starts the script may have an older one
        raise SystemExit(f"Python 3.11 or newer is needed, and this is {sys.version.split()[0]}")
    python = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        print(f"Making {ENVIRONMENT.name} …", flush=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=ENVIRONMENT.exists())
    pins = ROOT / "requirements" / f"{requirements}.txt"
    wanted = _digest()
    mark = ENVIRONMENT / f"installed-{requirements}"
    if not mark.exists() or mark.read_text() != wanted:
        print(f"Installing what requirements/{pins.name} pins (once; some minutes) …", flush=True)
        _pip(python, "-r", str(pins))
        _pip(python, "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        mark.write_text(wanted)
    return python


def _digest() -> str:
    """Of all pins, the metadata and the C++ core: what decides whether the environment is up to date."""
    core = (ROOT / "minigpt_tok" / "bpe" / "native").glob("*.[ch]*")
    metadata = [ROOT / name for name in ("setup.cfg", "setup.py", "pyproject.toml")]
    files = [*sorted((ROOT / "requirements").glob("*.txt")), *sorted(core), *metadata]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    if subprocess.run(command).returncode:
        raise SystemExit(f"the installation failed; the command was:\n  {' '.join(command)}")
