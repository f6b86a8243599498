"""Progress of long work on standard error: what is done, the rate, the time gone and left. On a terminal only, else nothing."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from minigpt_tok.amounts import counted, lasted, sized

if TYPE_CHECKING:
    from rich.progress import Task

Report = Callable[[str, int, int | None], None]
"""Called with the stage, how much of it is done, and of how much if known.

What counts bytes is called `bytes`, `… bytes`. Stages may stand under a heading: `tokenizer: bytes`. Those in `BESIDE`
are counts that are said beside the stage that is reported next.
"""

BESIDE = {"chunks": "chunk", "distinct pieces": "distinct piece"}

_REFRESHES = 4  # a second


def is_shown() -> bool:
    """Whether anybody would see progress."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def progress(titles: dict[str, str] | None = None, *, total_bytes: int | None = None) -> Iterator[Report | None]:
    """A function to report to, or `None` where nobody would see it.

    Args:
        titles: stage → what to call it.
        total_bytes: of a stage in bytes that does not say its total.
    """
    if not is_shown():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn
    from rich.table import Column
    from rich.text import Text

    tasks: dict[str, TaskID] = {}
    beside: dict[str, int] = {}  # what is said beside the present stage
    new: dict[str, int] = {}  # since that was last reported

    class Amounts(ProgressColumn):
        def render(self, task: "Task") -> Text:
            said = describe(
                task.fields["stage"], task.completed, task.total, task.speed, task.elapsed, task.time_remaining
            )
            return Text("; ".join([said, *(counted(number, BESIDE[what]) for what, number in beside.items())]))

    amounts = Amounts(table_column=Column(no_wrap=True))  # a narrow terminal shows less
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=12), amounts)
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=_REFRESHES, transient=True) as bars:

        def report(stage: str, done: int, total: int | None = None) -> None:
            if (what := stage.rpartition(": ")[2]) in BESIDE:
                new[what] = done
                return
            if total is None and is_in_bytes(stage):
                total = total_bytes
            if total is not None:
                total = max(done, total)
            if stage not in tasks:
                beside.clear()
                for other in tasks.values():  # what has ended gives its line to what begins
                    bars.update(other, visible=False)
                tasks[stage] = bars.add_task((titles or {}).get(stage, stage), total=total, stage=stage)
            beside.update(new)
            new.clear()
            bars.update(tasks[stage], completed=done, total=total)

        yield report


def quiet(stage: str, done: int, total: int | None) -> None:
    """Shows nothing, for those who would be shown bars by default."""


def is_in_bytes(stage: str) -> bool:
    """Whether a stage counts bytes."""
    return stage == "bytes" or stage.endswith(" bytes")


def describe(
    stage: str,
    done: float,
    total: float | None,
    rate: float | None,
    seconds_gone: float | None,
    seconds_left: float | None,
) -> str:
    """`12.3 MB of 45.6 MB, 3.4 MB/s, 4 s gone, 10 s left`; what is not known is left out."""
    amount = sized if is_in_bytes(stage) else "{:,.0f}".format
    said = f"{amount(done)} of {amount(total)}" if total is not None else amount(done)
    if rate:
        said += f", {amount(rate)}/s"
    if seconds_gone is not None:
        said += f", {_whole(seconds_gone)} gone"
    if seconds_left is not None and total is not None and done < total:
        said += f", {_whole(seconds_left)} left"
    return said


def _whole(seconds: float) -> str:
    return lasted(seconds) if seconds >= 60 else f"{seconds:.0f} s"
