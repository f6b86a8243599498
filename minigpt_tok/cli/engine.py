"""`--engine` and `--scheduler`: who does the work of `train` and `encode`."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from minigpt_tok.cluster import dask_executor

Engine = Annotated[
    Literal["local", "dask"],
    typer.Option(help="Who does the work: this machine, or the workers of a Dask cluster (extra dask)."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Of the Dask cluster, as tcp://host:8786; without it, one is started on this machine for as long.",
        show_default=False,
    ),
]


def check_engine(engine: str, scheduler: str | None) -> None:
    """Refuse an address that nobody would use."""
    if scheduler is not None and engine != "dask":
        raise typer.BadParameter("only a Dask cluster has a scheduler; add --engine dask", param_hint="'--scheduler'")


@contextmanager
def executor_of(engine: str, scheduler: str | None) -> Iterator[tuple[Executor | None, int | None]]:
    """(the executor, how many work for it), or `(None, None)` for this machine."""
    if engine == "local":
        yield None, None
        return
    with dask_executor(scheduler) as found:
        yield found
