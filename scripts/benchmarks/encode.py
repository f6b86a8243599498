"""Text to ids, one thread: the whole text to an array, documents to arrays and to lists, and the count alone.

Whole texts are English prose (100 MB), Python source and the Declaration of Human Rights in 25 languages; documents are
the prose, cut at blank lines into at least 2,000 characters each. Every contender runs in processes of its own, pinned
to one core, in interleaved rounds; its ids are compared with tiktoken's before anything is timed. The first pass in a
fresh process is told apart from later ones. Speeds are in megabytes of UTF-8 a second of CPU time, medians.
"""

import argparse

from benchmarks.goals import Goal, Verdict, judge
from benchmarks.measure import Outcome, compare, session
from benchmarks.options import add_common, add_texts, add_vocabularies, names
from benchmarks.peers import OURS, PURE
from benchmarks.report import Report

JOBS = ("array", "documents_to_arrays", "documents_to_lists", "count")
GOALS = {
    "array": Goal(1.25, 0.8),
    "documents_to_arrays": Goal(1.25, 1.0),
    "documents_to_lists": Goal(1.25, 1.0),
    "count": Goal(1.25, 1.0, against="toktok"),
}
PROSE_IN_GPT2 = Goal(1.25, 0.8, against="gigatoken", ahead_of_others=True)
PURE_GOAL, PURE_LEAST = 5, 3  # megabytes a second, with its cache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    add_common(parser)
    add_vocabularies(parser)
    add_texts(parser)
    parser.add_argument("--jobs", type=names, default=list(JOBS), help=f"of {', '.join(JOBS)} (all)")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print the tables, write the files."""
    with session(arguments) as running, Report("encode", arguments) as report:
        for vocabulary in arguments.vocabularies:
            for job in arguments.jobs:
                for text in arguments.texts:
                    if job != "array" and text != "prose":
                        continue
                    outcome = compare(running, job, text, vocabulary)
                    report.add(outcome, verdicts(outcome))
        report.texts = running.texts.made()


def verdicts(outcome: Outcome) -> list[Verdict]:
    """On the goals of one job."""
    in_main_table = outcome.job == "array" and outcome.text == "prose" and outcome.vocabulary == "gpt2"
    found = judge(outcome, PROSE_IN_GPT2 if in_main_table else GOALS[outcome.job])
    if in_main_table and any(result.name == PURE for result in outcome.results):
        found.append(_pure(outcome))
    if outcome.job == "count" and outcome.find("toktok") is None:
        return []  # it has no GPT-2
    return found


def _pure(outcome: Outcome) -> Verdict:
    result = outcome.find(PURE)
    speed = result.speed("later", outcome.clock) if result else None
    reached = "unknown" if speed is None else "goal" if speed >= PURE_GOAL else "least" if speed >= PURE_LEAST else "no"
    return Verdict(
        f"{OURS} in pure Python, later passes",
        "not measured" if speed is None else f"{speed:.1f} MB/s",
        f"{PURE_GOAL} MB/s; at least {PURE_LEAST} MB/s",
        reached,
    )
