"""One call on a short string, text to a list of ids: a sentence of 44 characters, and 1,000 characters of prose.

The same call again and again, as `timeit` does it, garbage collection off; the median of five repetitions in each of
the rounds. So every cache is warm, and what is measured is what a call costs at least.
"""

import argparse

from benchmarks import texts
from benchmarks.goals import Goal, Verdict, judge
from benchmarks.measure import compare, session
from benchmarks.options import add_common, add_vocabularies
from benchmarks.report import Report

LONGER = 1000  # characters
GOALS = {
    "a short sentence": Goal(1.0, 0, against="toktok", most_seconds=0.8e-6),
    "1,000 characters": Goal(1.0, 0, against="toktok", most_seconds=8e-6),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    add_common(parser)
    add_vocabularies(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print the tables, write the files."""
    arguments.passes = 5
    with session(arguments) as running, Report("latency", arguments) as report:
        prose = texts.read(running.texts.get("prose", 2_000_000).path)
        middle = prose.index("\n\n", len(prose) // 2) + 2
        strings = dict(zip(GOALS, (texts.SENTENCE, prose[middle : middle + LONGER]), strict=True))
        for vocabulary in arguments.vocabularies:
            for name, string in strings.items():
                outcome = compare(running, "list", name, vocabulary, string=string)
                found: list[Verdict] = []
                if outcome.find("toktok"):  # it has no GPT-2
                    found = judge(outcome, GOALS[name], ("later",))
                report.add(outcome, found)
        report.texts = running.texts.made()
