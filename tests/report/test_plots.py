import matplotlib
import numpy as np
import pytest

from minigpt_tok.report.plots import curves_figure, figures, scores_figure, write_plots


def test_every_plot_is_a_png(tmp_path, comparison):
    before = matplotlib.get_backend(auto_select=False)
    written = write_plots(comparison(), tmp_path)
    assert [path.name for path in written] == [
        "bits_per_byte.png",
        "curve_bytes.png",
        "curve_flops.png",
        "curve_seconds.png",
    ]
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
        assert matplotlib.image.imread(path).std() > 0.01  # not an empty picture
    assert matplotlib.get_backend(auto_select=False) == before


@pytest.mark.parametrize("axis", ["bytes", "flops", "seconds"])
def test_curves_are_those_of_the_runs(comparison, axis):
    found = comparison(seeds=2)
    axes = curves_figure(found, axis).axes[0]
    lines = axes.get_lines()
    runs = [run for entry in found.entries for run in entry.runs]
    assert len(lines) == len(runs) == 6
    for line, run in zip(lines, runs, strict=True):
        assert np.array_equal(line.get_xdata(), [getattr(point, axis) for point in run.curve])
        assert np.array_equal(line.get_ydata(), [point.bits_per_byte for point in run.curve])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [entry.name for entry in found.entries]


def test_scores_are_drawn_with_their_intervals(comparison):
    found = comparison()
    lines = scores_figure(found).axes[0].get_lines()
    for entry, (bar, point) in zip(found.entries, zip(lines[::2], lines[1::2], strict=True), strict=True):
        interval = entry.runs[0].score.interval
        assert list(bar.get_xdata()) == [interval.low, interval.high]
        assert list(point.get_xdata()) == [entry.bits_per_byte]


def test_scores_without_intervals_and_runs_without_curves_are_drawn_too(comparison):
    import dataclasses

    found = comparison(documents=1)
    bare = dataclasses.replace(found.entries[0], runs=(dataclasses.replace(found.entries[0].runs[0], curve=()),))
    assert len(figures(dataclasses.replace(found, entries=(bare,)))) == 4
