"""What was to be reached, and whether it was."""

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measure import Outcome, best_peer
from benchmarks.peers import OURS


@dataclass(frozen=True)
class Goal:
    """A ratio of speeds to be reached.

    Attributes:
        goal, least: times the speed of the other.
        against: a peer's name, or `None` for the best one.
        ahead_of_others: at least, we are also ahead of every peer but `against`.
        most_seconds: at least means a call in so many seconds instead.
    """

    goal: float
    least: float
    against: str | None = None
    ahead_of_others: bool = False
    most_seconds: float | None = None


@dataclass(frozen=True)
class Verdict:
    """One goal judged. `met` is `goal`, `least`, `no`, or `unknown` where something was not measured."""

    what: str
    figure: str
    goal: str
    met: str

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def met(*, goal: bool, least: bool) -> str:
    """In one word."""
    return "goal" if goal else "least" if least else "no"


def judge(outcome: Outcome, goal: Goal, phases: tuple[str, ...] = ("first", "later")) -> list[Verdict]:
    """A verdict for each phase of a job."""
    verdicts = []
    for phase in phases:
        names = {"first": ", first pass", "later": ", later passes"} if len(phases) > 1 else {}
        what = f"{outcome.title}, {outcome.text}, {outcome.vocabulary}{names.get(phase, '')}"
        against = goal.against or "the best peer"
        wanted = f"{goal.goal:g} × {against}; at least " + (
            f"{goal.most_seconds * 1e6:g} µs" if goal.most_seconds else f"{goal.least:g} ×"
        )
        clock = outcome.clock
        ours = outcome.find(OURS)
        other = outcome.find(goal.against) if goal.against else best_peer(outcome.results, phase, clock)
        ours_speed = ours.speed(phase, clock) if ours else None
        other_speed = other.speed(phase, clock) if other else None
        if ours is None or other is None or not ours_speed or not other_speed:
            verdicts.append(Verdict(what, "not measured", wanted, "unknown"))
            continue
        ratio = ours_speed / other_speed
        least = ratio >= goal.least
        if goal.most_seconds:
            least = (ours.seconds(phase, clock) or 0) <= goal.most_seconds
        figure = f"{ratio:.2f} × {other.name}"
        if goal.ahead_of_others:
            rest = best_peer([result for result in outcome.results if result.name != goal.against], phase, clock)
            if rest is not None and (rest.speed(phase, clock) or 0) > ours_speed:
                least = False
                figure += f", behind {rest.name}"
        verdicts.append(Verdict(what, figure, wanted, met(goal=ratio >= goal.goal, least=least)))
    return verdicts
