"""Scores and comparisons in the terminal, as renderables of rich: whoever prints them decides where to."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from minigpt_tok.amounts import counted
from minigpt_tok.measure.comparison import Comparison
from minigpt_tok.measure.scores import PERPLEXITY_NOTE, BitsPerByte
from minigpt_tok.report.numbers import between, duration, short


def comparison_report(comparison: Comparison) -> RenderableType:
    """Both tables, the verdicts and what they do not say. Fits 80 columns with names of ordinary length."""
    parts: list[RenderableType] = [
        Text(f"{comparison.corpus}: the same body on each tokenizer, {comparison.budget_in_words}", style="bold"),
        scores_table(comparison),
        costs_table(comparison),
    ]
    for verdict in comparison.verdicts:
        parts.append(_point(verdict.text, "bold" if verdict.difference.is_shown else ""))
    parts += [_point(caveat, "dim") for caveat in comparison.caveats]
    return Group(*parts)


def scores_table(comparison: Comparison) -> Table:
    """What each tokenizer's model scored, in the order in which they were asked for; the lowest bits per byte in bold."""
    several = len(comparison.seeds) > 1
    table = _table(
        "vocabulary", "bytes/\ntoken", "bits/\nbyte", "\n95% interval", *["lowest to\nhighest"] * several, "time"
    )
    for entry in comparison.entries:
        table.add_row(
            Text(entry.name),
            f"{entry.vocab_size:,}",
            f"{entry.compression.bytes_per_token:.2f}",
            f"{entry.bits_per_byte:.4f}",
            between(entry.interval, 3),
            *([f"{entry.spread[0]:.3f} to {entry.spread[1]:.3f}"] if entry.spread else []),
            duration(entry.seconds),
            style="bold" if entry is comparison.ranked[0] else None,
        )
    return table


def costs_table(comparison: Comparison) -> Table:
    """What each tokenizer costs the model, and how much text it sees at once."""
    table = _table(
        "parameters\nof the body",
        "of the\nembedding",
        f"text in\n{comparison.block_size:,} tokens",
        "training\nFLOPs/byte",
        "attention\nFLOPs/byte",
    )
    for entry in comparison.entries:
        table.add_row(
            Text(entry.name),
            short(entry.body_parameters),
            f"{short(entry.embedding_parameters)} ({entry.embedding_share:.0%})",
            f"{entry.window_bytes:,.0f} bytes",
            short(entry.training_flops_per_byte),
            short(entry.attention_flops_per_byte),
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("\ntokenizer", overflow="fold")
    for heading in headings:
        table.add_column(heading if "\n" in heading else f"\n{heading}", justify="right", no_wrap=True)
    return table


def score_table(score: BitsPerByte) -> Table:
    """One score, with what it depends on."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    interval = score.interval
    text = ", ".join(
        counted(number, what)
        for number, what in (
            (score.documents, "document"),
            (score.bytes, "byte"),
            (score.characters, "character"),
            (score.tokens, "token"),
        )
    )
    rows = [
        ("bits per byte", f"{score.bits_per_byte:.4f}"),
        ("interval", "none: it takes two documents with text"),
        ("bits per character", f"{score.bits_per_character:.4f}"),
        ("token perplexity", f"{score.token_perplexity:,.2f}, {PERPLEXITY_NOTE}"),
        ("text", f"{score.corpus}, {score.split}: {text}"),
        ("context", score.context_description),
        ("tokenizer", f"{score.fingerprint} ({score.vocab_size:,} ids)"),
    ]
    if interval is not None:
        rows[1] = (f"{interval.level:.0%} interval", f"{between(interval)}, by a bootstrap over documents")
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _point(text: str, style: str) -> RenderableType:
    return Padding(Text(text, style=style), (0, 0, 0, 2))
