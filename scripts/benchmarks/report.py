"""Results in the terminal while they come; then a page, JSON and a plot in the folder for results."""

import argparse
import json
import re
from dataclasses import asdict
from typing import Any

from benchmarks.goals import Verdict
from benchmarks.machine import machine
from benchmarks.measure import Outcome, Result, best_peer
from benchmarks.options import out_folder
from benchmarks.peers import OURS
from benchmarks.texts import Text
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text as Styled

MET = {"goal": "goal reached", "least": "enough, goal not reached", "no": "NOT REACHED", "unknown": "unknown"}
STYLES = {"goal": "green", "least": "yellow", "no": "red", "unknown": "dim"}
NOT_SETTINGS = ("run", "out", "command", "shared")


class Report:
    """Collects outcomes. As a context it writes the files when all has gone well.

    Attributes:
        texts: that were measured on, set before the end.
    """

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name = name
        self.texts: list[Text] = []
        self._folder = out_folder(arguments)
        self._settings = {key: value for key, value in vars(arguments).items() if key not in NOT_SETTINGS}
        self._machine = machine()
        self._outcomes: list[Outcome] = []
        self._verdicts: list[list[Verdict]] = []
        self._extra: list[dict[str, Any]] = []
        self._console = Console()
        if not self._console.is_terminal:
            self._console = Console(width=120)

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._outcomes:
            self._finish()

    def add(self, outcome: Outcome, verdicts: list[Verdict], extra: dict[str, Any] | None = None) -> None:
        """Keep an outcome and show its table. `extra`: name → contender → figure."""
        self._outcomes.append(outcome)
        self._verdicts.append(verdicts)
        self._extra.append(extra or {})
        headings, rows = table_of(outcome, self._extra[-1])
        shown = Table(*headings, box=SIMPLE_HEAD, title=Styled(title_of(outcome), style="bold"), title_justify="left")
        for column in shown.columns[1:]:
            column.justify = "right"
        for row in rows:
            shown.add_row(*map(Styled, row), style="bold" if row[0] == OURS else None)
        self._console.print(shown)
        for note in notes_of(outcome):
            self._console.print(Styled(f"  {note}", style="dim"), soft_wrap=True)
        for verdict in verdicts:
            line = f"  {verdict.what}: {verdict.figure} (goal {verdict.goal}): {MET[verdict.met]}"
            self._console.print(Styled(line, style=STYLES[verdict.met]), soft_wrap=True)

    def _finish(self) -> None:
        after = machine()["load"]
        if self._folder is None:
            self._console.print("a quick run: nothing is written without --out")
            return
        from benchmarks.plot import write_plot

        self._folder.mkdir(parents=True, exist_ok=True)
        self._machine |= {"load_after": after, "versions": self._versions(), "core": _core()}
        stem = self._folder / self.name
        content = json.dumps(self.to_plain(), indent=1, ensure_ascii=False)
        # A list of numbers in a line.
        content = re.sub(r"\[\s+([^][{}\"]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", content)
        stem.with_suffix(".json").write_text(content + "\n", encoding="utf-8")
        stem.with_suffix(".md").write_text(self.to_page(), encoding="utf-8")
        write_plot(self._outcomes, stem.with_suffix(".png"))
        self._console.print(f"written to {stem}.json, .md and .png")

    def _versions(self) -> dict[str, str]:
        results = [result for outcome in self._outcomes for result in outcome.results]
        return {result.name: result.version for result in results if result.version}

    def to_plain(self) -> dict[str, Any]:
        """As JSON holds it: every sample in seconds, and the medians."""
        return {
            "benchmark": self.name,
            "machine": self._machine,
            "settings": self._settings,
            "texts": [{"name": text.name, "bytes": text.size, "sha256": text.sha256} for text in self.texts],
            "jobs": [
                {
                    **{name: getattr(outcome, name) for name in ("job", "title", "text", "vocabulary", "threads")},
                    "reference": outcome.reference,
                    "compared_by": outcome.clock,
                    "contenders": [_plain_result(result) for result in outcome.results],
                    **extra,
                    "verdicts": [verdict.to_plain() for verdict in verdicts],
                }
                for outcome, verdicts, extra in zip(self._outcomes, self._verdicts, self._extra, strict=True)
            ],
        }

    def to_page(self) -> str:
        """A page in Markdown: goals first, then a table for each job."""
        lines = [
            f"# Benchmark: {self.name}",
            "",
            f"Written by `python scripts/benchmark.py {self.name}`. {self._on()}",
            "",
        ]
        if any(self._verdicts):
            lines += ["| job | reached | goal | |", "| --- | --- | --- | --- |"]
            for verdict in (verdict for verdicts in self._verdicts for verdict in verdicts):
                lines.append(f"| {verdict.what} | {verdict.figure} | {verdict.goal} | {MET[verdict.met]} |")
            lines.append("")
        for outcome, extra in zip(self._outcomes, self._extra, strict=True):
            headings, rows = table_of(outcome, extra)
            lines += [f"## {title_of(outcome)}", "", f"| {' | '.join(headings)} |"]
            lines.append("| --- |" + " ---: |" * (len(headings) - 1))
            for row in rows:
                lines.append(f"| {' | '.join(f'**{cell}**' if row[0] == OURS else cell for cell in row)} |")
            lines.append("")
            lines += [f"- {note}" for note in notes_of(outcome)]
            lines.append("")
        lines += [f"Every sample is in `{self.name}.json`, and `{self.name}.png` shows it.", ""]
        return "\n".join(lines)

    def _on(self) -> str:
        on = self._machine
        texts = ", ".join(f"{text.name} {text.size:,} bytes" for text in self.texts)
        quick = "A quick run on little text, to see that all works. " if self._settings.get("quick") else ""
        return (
            f"{quick}{on['processor']}, {on['cores']} cores, load {on['load']} before and {on['load_after']} after; Python "
            f"{on['python']}, {on['core']}. Medians; a ratio is a contender's speed over that of the fastest peer, by CPU "
            f"time for one thread and by the wall for several. Texts: {texts}."
        )


def _core() -> str | None:
    """Which of the core's builds this processor runs."""
    from minigpt_tok.bpe.native import core

    return core and core.__name__.rpartition(".")[2].lstrip("_")


def title_of(outcome: Outcome) -> str:
    """In a line."""
    threads = f"{outcome.threads} thread{'s' * (outcome.threads > 1)}"
    return f"{outcome.title}: {outcome.text}, {outcome.vocabulary}, {threads} ({unit_of(outcome)})"


def table_of(outcome: Outcome, extra: dict[str, dict[str, int]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of an outcome's table: those that were measured, their figures and ratios to the best peer."""
    clock = outcome.clock
    phases = [phase for phase in ("first", "later") if any(getattr(result, phase) for result in outcome.results)]
    names = {phase: phase for phase in phases} if len(phases) > 1 else dict.fromkeys(phases, "")
    headings = ["contender"]
    for phase in phases:
        headings += [f"{names[phase]} CPU".strip(), f"{names[phase]} wall".strip()]
    headings += [f"{names[phase]} ratio".strip() for phase in phases]
    headings += [f"{name.replace('_', ' ')}, MB" for name in extra]
    rows = []
    best = {phase: best_peer(outcome.results, phase, clock) for phase in phases}
    for result in sorted(outcome.results, key=lambda result: _order(result, phases, clock)):
        if result.status != "ok":
            continue
        row = [result.name]
        for phase in phases:
            row += [_figure(result, phase, by, unit_of(outcome)) for by in ("cpu", "wall")]
        for phase in phases:
            own, other = result.speed(phase, clock), best[phase]
            speed = other.speed(phase, clock) if other else None
            row.append(f"{own / speed:.2f}" if own and speed else "–")
        for figures in extra.values():
            row.append(f"{figures[result.name] / 1e6:.0f}" if result.name in figures else "–")
        rows.append(row)
    return headings, rows


def unit_of(outcome: Outcome) -> str:
    """Of the figures: megabytes a second for passes, else time."""
    if outcome.job == "train":
        return "s"
    return "MB/s" if any(result.first for result in outcome.results) else "µs"


def notes_of(outcome: Outcome) -> list[str]:
    """What has to be said about contenders: those with other results, those not measured, and on less text."""
    notes = [
        f"{result.name}: WRONG, not timed: {result.note}" for result in outcome.results if result.status == "wrong"
    ]
    notes += [f"{result.name}: failed: {result.note}" for result in outcome.results if result.status == "failed"]
    most = max(result.bytes for result in outcome.results)
    for result in outcome.results:
        if result.status != "ok":
            continue
        parts = [result.note] if result.note else []
        if result.bytes < most:
            parts.append(f"on {result.bytes / 1e6:.0f} MB of text")
        if result.vectors_wrong:
            parts.append(f"right here, but other ids in {result.vectors_wrong} of {result.vectors} published vectors")
        notes += [f"{result.name}: {', '.join(parts)}"] if parts else []
    without: dict[str, list[str]] = {}
    for result in outcome.results:
        if result.status in ("missing", "cannot"):
            without.setdefault(str(result.note), []).append(result.name)
    notes += [f"left out: {', '.join(names)} ({why})" for why, names in without.items()]
    return notes


def _order(result: Result, phases: list[str], clock: str) -> float:
    return -(result.speed(phases[-1], clock) or 0) if phases else 0


def _figure(result: Result, phase: str, clock: str, unit: str) -> str:
    seconds, speed = result.seconds(phase, clock), result.speed(phase, clock)
    if not seconds or not speed:
        return "–"
    if unit == "MB/s":
        return f"{speed:,.1f}" if speed < 10 else f"{speed:,.0f}"
    return f"{seconds * 1e6:,.2f}" if unit == "µs" else f"{seconds:.2f}"


def _plain_result(result: Result) -> dict[str, Any]:
    plain = asdict(result)
    for name in ("first", "later"):
        plain[name] = [[float(f"{seconds:.4g}") for seconds in sample] for sample in plain[name]]
    plain["load"] = [round(seconds, 3) for seconds in plain["load"]]
    plain["medians"] = {
        f"{phase}_{clock}": float(f"{seconds:.4g}")
        for phase in ("first", "later")
        for clock in ("cpu", "wall")
        if (seconds := result.seconds(phase, clock))
    }
    return plain
