"""Ids to a string, one thread: from a list and from an array of the ids of the prose.

What must come out is the text itself. The list has an int object of its own for every id. An array has the type of the
contender's own ids: 16 bits for minigpt-tok and GPT-2, else 32.
"""

import argparse

from benchmarks.goals import Goal, judge
from benchmarks.measure import compare, session
from benchmarks.options import add_common, add_vocabularies
from benchmarks.report import Report

GOAL = Goal(1.25, 1.0, against="tuetoken")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    add_common(parser)
    add_vocabularies(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print the tables, write the files."""
    with session(arguments) as running, Report("decode", arguments) as report:
        for vocabulary in arguments.vocabularies:
            for job in ("decode_list", "decode_array"):
                outcome = compare(running, job, "prose", vocabulary)
                report.add(outcome, judge(outcome, GOAL))
        report.texts = running.texts.made()
