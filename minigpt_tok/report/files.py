"""Everything that a comparison leaves for people: the page and the plots, beside `comparison.json`."""

from pathlib import Path

from minigpt_tok.files import StrPath
from minigpt_tok.measure.comparison import RESULT, Comparison
from minigpt_tok.report.html import write_comparison_report
from minigpt_tok.report.plots import write_plots


def write_comparison(comparison: Comparison, folder: StrPath) -> list[Path]:
    """Write `report.html`, `comparison.json` and the PNG plots into a folder, each whole or not at all."""
    comparison.save(Path(folder) / RESULT)
    return [write_comparison_report(comparison, folder), Path(folder) / RESULT, *write_plots(comparison, folder)]
