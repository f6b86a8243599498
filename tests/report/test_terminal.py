import dataclasses
import io

import pytest
from rich.console import Console, RenderableType

from minigpt_tok.report.terminal import comparison_report, costs_table, score_table, scores_table


def rendered(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, color_system=None, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def test_comparison_shows_every_tokenizer_with_its_score_and_interval(comparison):
    found = comparison()
    text = rendered(comparison_report(found))
    for entry in found.entries:
        row = next(line for line in text.splitlines() if entry.name in line)
        assert f"{entry.bits_per_byte:.4f}" in row
        assert f"{entry.interval.low:.3f} to {entry.interval.high:.3f}" in row
        assert f"{entry.vocab_size:,}" in row
    assert "5,000,000 bytes of text seen each" in text
    words = " ".join(text.split())
    for said in (*(verdict.text for verdict in found.verdicts), *found.caveats):
        assert said in words


@pytest.mark.parametrize("seeds", [1, 3])
def test_fits_an_ordinary_terminal(comparison, seeds):
    text = rendered(comparison_report(comparison(seeds=seeds)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_the_best_is_marked(comparison):
    assert [row.style for row in scores_table(comparison()).rows] == [None, "bold", None]


def test_several_seeds_show_their_spread(comparison):
    found = comparison(seeds=3)
    low, high = found.entries[1].spread
    assert f"{low:.3f} to {high:.3f}" in rendered(scores_table(found))


def test_costs_are_shown(comparison):
    row = next(line for line in rendered(costs_table(comparison())).splitlines() if "bpe-1024" in line)
    assert row.split() == ["bpe-1024", "793k", "131k", "(14%)", "371", "bytes", "1.91M", "271k"]


def test_names_are_no_markup(comparison):
    found = comparison()
    odd = dataclasses.replace(found.entries[1], name="[red]x[/red]")
    found = dataclasses.replace(found, corpus="[bold]c", entries=(found.entries[0], odd))
    text = rendered(comparison_report(found))
    assert text.count("[red]x[/red]") >= 3
    assert "[bold]c" in text


def test_score_says_what_it_depends_on(comparison):
    score = comparison().entries[1].runs[0].score
    text = rendered(score_table(score))
    assert score.fingerprint in "".join(text.split())
    text = " ".join(text.split())
    for expected in (
        "95% interval",
        "bits per character",
        "does not compare across tokenizers",
        "stride 64",
        "60 documents",
    ):
        assert expected in text


def test_score_of_one_document_has_no_interval(comparison):
    text = rendered(score_table(comparison(documents=1).entries[0].runs[0].score))
    assert "none: it takes two documents" in text
    assert "1 document," in text
