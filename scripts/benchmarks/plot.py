"""The plot: for each job a bar for each contender, ours in another colour; a mark where the first pass was."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Outcome
from benchmarks.peers import OURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's, told apart by colour-blind readers.
OUR_COLOUR, PEER_COLOUR, MARK_COLOUR = "#D55E00", "#56B4E9", "#000000"
COLUMNS = 2


def write_plot(outcomes: list[Outcome], path: Path) -> None:
    """Write the plot of all jobs as PNG."""
    plot(outcomes).savefig(path, format="png", dpi=120, facecolor="white", metadata={"Software": None})


def plot(outcomes: list[Outcome]) -> "Figure":
    """A picture with a part for each job."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(outcomes))
    rows = -(-len(outcomes) // columns)
    most = max(sum(result.status == "ok" for result in outcome.results) for outcome in outcomes)
    figure = Figure(figsize=(6.0 * columns, rows * (1.1 + 0.26 * most)), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, outcome in zip(parts, outcomes, strict=False):
        _draw(axes, outcome)
    for axes in parts[len(outcomes) :]:
        axes.set_axis_off()
    return figure


def _draw(axes: Any, outcome: Outcome) -> None:
    clock = outcome.clock
    measured = [result for result in outcome.results if result.status == "ok" and (result.later or result.first)]
    phase = "later" if any(result.later for result in measured) else "first"
    if outcome.job == "train":
        unit, factor, by_speed = "seconds", 1.0, False
    elif any(result.first for result in measured):
        unit, factor, by_speed = "MB/s", 1.0, True
    else:
        unit, factor, by_speed = "µs a call", 1e6, False

    def value(result: Any, which: str) -> float:
        found = result.speed(which, clock) if by_speed else result.seconds(which, clock)
        return (found or 0) * factor

    measured.sort(key=lambda result: value(result, phase), reverse=not by_speed)
    places = range(len(measured))
    colours = [OUR_COLOUR if result.name.startswith(OURS) else PEER_COLOUR for result in measured]
    axes.barh(places, [value(result, phase) for result in measured], color=colours, height=0.7)
    if phase == "later" and by_speed:
        axes.plot([value(result, "first") for result in measured], places, "|", color=MARK_COLOUR, markersize=9)
    for place, result in zip(places, measured, strict=True):
        figure = value(result, phase)
        axes.annotate(
            f" {figure:,.0f}" if figure >= 100 else f" {figure:,.2g}", (figure, place), va="center", fontsize=7
        )
    axes.set_yticks(places, [result.name for result in measured], fontsize=8)
    axes.margins(x=0.12)
    marks = "; mark: first pass" if phase == "later" and by_speed else ""
    kind = "CPU" if clock == "cpu" else "wall"
    axes.set_xlabel(f"{unit}, {kind} time{marks}", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    threads = f", {outcome.threads} threads" if outcome.threads > 1 else ""
    axes.set_title(f"{outcome.title}: {outcome.text}, {outcome.vocabulary}{threads}", fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
