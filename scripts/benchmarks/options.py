"""Options that several subcommands share."""

import argparse
from pathlib import Path

from benchmarks import texts, vocabularies
from benchmarks.measure import ROOT

OUT = ROOT / "docs" / "benchmarks"


def add_common(parser: argparse.ArgumentParser) -> None:
    """Where the data is, what to measure, how often, and where the results go."""
    add = parser.add_argument
    add(
        "--shared", type=Path, help="folder of shared data (default: $MINIGPT_TOK_SHARED, or shared beside the project)"
    )
    add("--contenders", type=names, help="names with commas between them, or module:function for your own (all)")
    add("--rounds", type=int, help="fresh processes for each contender and job (5; 2 with --quick)")
    add("--passes", type=int, default=3, help="later passes in each process (%(default)s)")
    add("--budget", type=float, default=60, help="seconds for a contender at a job, after two rounds (%(default)s)")
    add("--timeout", type=float, default=900, help="seconds for one process (%(default)s)")
    add(
        "--quick", action="store_true", help="some megabytes of text: to see that it works; writes nothing but to --out"
    )
    add("--out", type=Path, help="folder for .json, .md and .png (docs/benchmarks)")


def add_vocabularies(parser: argparse.ArgumentParser) -> None:
    """Which vocabularies."""
    parser.add_argument(
        "--vocabularies", type=names, default=list(vocabularies.NAMES), help=f"of {', '.join(vocabularies.NAMES)} (all)"
    )


def add_texts(parser: argparse.ArgumentParser, default: tuple[str, ...] = texts.NAMES) -> None:
    """Which texts."""
    parser.add_argument("--texts", type=names, default=list(default), help=f"of {', '.join(texts.NAMES)} (all)")


def names(text: str) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def out_folder(arguments: argparse.Namespace) -> Path | None:
    """Where results go; nowhere, when a quick run was not told."""
    folder: Path | None = arguments.out
    return folder or (None if arguments.quick else OUT)
