"""Documents to arrays on one thread and on several (two, unless said): what the others add, by the wall clock."""

import argparse

from benchmarks.goals import Verdict, met
from benchmarks.measure import Outcome, compare, session
from benchmarks.options import add_common, add_vocabularies
from benchmarks.peers import OURS, PURE
from benchmarks.report import Report

GOAL, LEAST, AHEAD_OF = 1.9, 1.7, "gigatoken"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    add_common(parser)
    add_vocabularies(parser)
    parser.add_argument("--threads", type=int, default=2, help="of the second measurement (%(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print the tables, write the files."""
    with session(arguments) as running, Report("threads", arguments) as report:
        running.contenders = [peer for peer in running.contenders if peer.name != PURE]
        for vocabulary in arguments.vocabularies:
            one = compare(running, "documents_to_arrays", "prose", vocabulary)
            report.add(one, [])
            several = compare(running, "documents_to_arrays", "prose", vocabulary, threads=arguments.threads)
            report.add(several, [verdict(one, several)])
        report.texts = running.texts.made()


def verdict(one: Outcome, several: Outcome) -> Verdict:
    """Whether we gain as much as wanted, and are ahead of the best peer on as many threads."""
    speeds = [outcome.find(OURS) for outcome in (one, several)]
    alone, together = (result.speed("later", "wall") if result else None for result in speeds)
    other = several.find(AHEAD_OF)
    others = other.speed("later", "wall") if other else None
    what = f"{several.threads} threads, {several.title}, {several.vocabulary}, later passes"
    wanted = f"{GOAL} × one thread and ahead of {AHEAD_OF}; at least {LEAST} ×"
    if not alone or not together or not others:
        return Verdict(what, "not measured", wanted, "unknown")
    gain = together / alone
    figure = f"{gain:.2f} × one thread, {together / others:.2f} × {AHEAD_OF}"
    return Verdict(what, figure, wanted, met(goal=gain >= GOAL and together > others, least=gain >= LEAST))
