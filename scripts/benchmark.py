"""Benchmarks, each one subcommand: `python scripts/benchmark.py fit --help`. Results go to docs/benchmarks/."""

import argparse
import importlib.util
import sys
from pathlib import Path

if (
    importlib.util.find_spec("minigpt_tok") is None
):  # not installed here: this clone's, with the core if it is built in it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import decode, encode, encode_corpus, fit, latency, load, threads, train


def main() -> None:
    """Run the benchmark that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="BENCHMARK")
    for benchmark in (encode, encode_corpus, train, decode, latency, threads, load, fit):
        name = benchmark.__name__.rsplit(".", 1)[-1].replace("_", "-")
        first_line = (benchmark.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(
            name, help=first_line, description=benchmark.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        benchmark.add_arguments(command)
        command.set_defaults(run=benchmark.run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
