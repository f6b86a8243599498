"""Plots of a comparison: bits per byte at the end, and on the way against bytes, FLOPs and seconds.

Drawn without a display and without pyplot, so nothing of the caller's matplotlib changes. As PNG on white paper; as SVG
for HTML pages with all ink but the curves in the page's own text colour, so that light and dark pages both read well.
"""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minigpt_tok.files import StrPath, replacing
from minigpt_tok.measure.comparison import Comparison, CurvePoint
from minigpt_tok.report.numbers import tick

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; they read on white and on black. After them, markers change.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
_INK = "#010203"  # stands for the page's text colour in SVG
_SIZE = (4.8, 3.4)  # inches: the width of a phone, so that text keeps its size there

CURVES: dict[str, tuple[str, Callable[[CurvePoint], float]]] = {
    "bytes": ("bytes of text seen", lambda point: point.bytes),
    "flops": ("training FLOPs", lambda point: point.flops),
    "seconds": ("seconds of training", lambda point: point.seconds),
}


def figures(comparison: Comparison) -> dict[str, "Figure"]:
    """All plots by file name without its ending: `bits_per_byte`, `curve_bytes`, `curve_flops`, `curve_seconds`."""
    drawn = {"bits_per_byte": scores_figure(comparison)}
    drawn |= {f"curve_{axis}": curves_figure(comparison, axis) for axis in CURVES}
    return drawn


def scores_figure(comparison: Comparison) -> "Figure":
    """The final score of every run with its interval, a row for each tokenizer."""
    figure, axes = _empty_figure(height=1.2 + 0.42 * len(comparison.entries))
    for row, entry in enumerate(comparison.entries):
        colour, marker = _style(row)
        for number, run in enumerate(entry.runs):
            # Seeds lie above one another within the row.
            place = row + 0.5 * ((number + 0.5) / len(entry.runs) - 0.5)
            interval = run.score.interval
            if interval is not None:
                axes.plot([interval.low, interval.high], [place, place], color=colour, linewidth=1.8)
            axes.plot(run.score.bits_per_byte, place, marker=marker, color=colour, markersize=5)
        axes.annotate(
            f"{entry.bits_per_byte:.3f}",
            (entry.bits_per_byte, row - 0.2),
            ha="center",
            va="bottom",
            color=_INK,
            fontsize=9,
        )
    axes.set_yticks(range(len(comparison.entries)), [entry.name for entry in comparison.entries])
    axes.set_ylim(len(comparison.entries) - 0.4, -0.75)
    axes.set_xlabel("bits per byte (lower is better), with 95% intervals")
    axes.margins(x=0.12)
    return figure


def curves_figure(comparison: Comparison, axis: str) -> "Figure":
    """Bits per byte on the way against `bytes`, `flops` or `seconds`: a line for each seed, a colour for each tokenizer."""
    label, value = CURVES[axis]
    figure, axes = _empty_figure()
    for row, entry in enumerate(comparison.entries):
        colour, marker = _style(row)
        for number, run in enumerate(entry.runs):
            axes.plot(
                [value(point) for point in run.curve],
                [point.bits_per_byte for point in run.curve],
                color=colour,
                marker=marker,
                markersize=3.5,
                linewidth=1.4,
                label=entry.name if number == 0 else None,
            )
    axes.set_xlabel(label)
    axes.set_ylabel("bits per byte")
    axes.xaxis.set_major_formatter(lambda number, _: tick(number))
    legend = axes.legend(frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_color(_INK)
    return figure


def write_plots(comparison: Comparison, folder: StrPath) -> list[Path]:
    """Write every plot as `<name>.png` into a folder, each whole or not at all."""
    written = []
    for name, figure in figures(comparison).items():
        path = Path(folder) / f"{name}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=200, facecolor="white", metadata={"Software": None})
        written.append(path)
    return written


def to_svg(figure: "Figure", name: str) -> str:
    """An `<svg>` element that takes the width of its place and the text colour of its page.

    Args:
        figure: one of `figures`.
        name: told apart from other figures of the page by it: ids inside the SVG depend on it.
    """
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}), io.StringIO() as file:
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # The view box says the proportions; without a size of its own the picture takes the width of its place.
    text = re.sub(r'<svg ([^>]*?)\bwidth="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r'<svg ([^>]*?)\bheight="[^"]*"', r'<svg role="img" \1', text, count=1)
    return text.replace(_INK, "currentColor")


def _empty_figure(height: float = _SIZE[1]) -> tuple["Figure", Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_SIZE[0], height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(True, linewidth=0.5, color="#8888884d")
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(_INK)
    axes.tick_params(colors=_INK, labelsize=9)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    return figure, axes


def _style(number: int) -> tuple[str, str]:
    return COLOURS[number % len(COLOURS)], MARKERS[(number // len(COLOURS) + number) % len(MARKERS)]
