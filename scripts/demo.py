"""From text to a verdict in about three minutes: `python3 scripts/demo.py [folder]`.

Makes `.venv` if there is none and installs what is pinned. Then, on English prose that every Python has on disk: trains
a BPE tokenizer, encodes the text, trains a GPT on characters and a GPT on BPE tokens with equal bytes of text, and
compares them by bits per byte. The folder (`runs/demo`) holds a report to open. Standard library only.
"""

import argparse
import subprocess
import sys

from environment import ROOT, prepare

# Equal bytes of text for both models; some two minutes of training for the one on characters.
COMPARISON = [
    "compare", "pydocs", "--vocab-sizes", "2048", "--budget", "bytes=2e6", "--block-size", "128",
    "--validation-text", "100000", "--overwrite",
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=str(ROOT / "runs" / "demo"), help="where to write (runs/demo)")
    folder = parser.parse_args().folder
    python = prepare("runtime")
    command = [str(python), "-m", "minigpt_tok", *COMPARISON, "-o", folder]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
