"""A Dask cluster, whose workers may come and go, as an executor of `concurrent.futures`."""

import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import Any, TypeVar

from minigpt_tok.bpe.fast import cores
from minigpt_tok.errors import DataError, MissingDependencyError
from minigpt_tok.held_signals import signals_held_back

_CONNECT = 10  # seconds in which a scheduler must answer
_WAIT_FOR_WORKERS = 60  # seconds until a cluster must have one, at first and after the last was lost
_LOOK_AGAIN = 2  # seconds of waiting for a cluster, after which to see whether it is still there

T = TypeVar("T")


@contextlib.contextmanager
def dask_executor(scheduler: str | None = None) -> Iterator[tuple[Executor, int]]:
    """(executor, number of threads) of a Dask cluster; without an address, of one on this machine that ends afterwards.

    Raises:
        MissingDependencyError: Dask is not installed.
        DataError: there is no scheduler at that address, or it has no workers.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise MissingDependencyError(
            "the engine dask needs dask and distributed, which are not installed: pip install 'minigpt-tok[dask]'"
        ) from None
    dask: Any = import_module("dask")
    with (
        # Text goes with the call. That this is much to send is nothing that the user could change.
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "4 GiB"}),
        _local_client(distributed) if scheduler is None else _client_of(distributed, scheduler) as client,
    ):
        yield client.get_executor(pure=False), sum(client.nthreads().values())


@contextlib.contextmanager
def _client_of(distributed: Any, scheduler: str) -> Iterator[Any]:
    client = distributed.Client.__new__(distributed.Client)
    try:
        client.__init__(scheduler, timeout=_CONNECT, set_as_default=False)
    except BaseException as error:
        client.status = "closed"  # else it tries for long to take leave when Python ends
        if not isinstance(error, OSError | ValueError | TypeError | MemoryError):  # the last: anything but Dask answers
            raise
        raise DataError(
            f"{scheduler}: no Dask scheduler answers there ({type(error).__name__}: {error}). Start one with `dask scheduler` "
            "and give the address that it prints, or give none for a cluster on this machine"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_WAIT_FOR_WORKERS)
        except (TimeoutError, OSError) as error:
            raise DataError(
                f"{scheduler}: the Dask cluster has no workers after {_WAIT_FOR_WORKERS} s; start some with `dask worker "
                f"{scheduler}`"
            ) from error
        yield client


@contextlib.contextmanager
def _local_client(distributed: Any) -> Iterator[Any]:
    """A client with a cluster of its own. It is interrupted neither while that starts, nor while it ends: processes would
    be left, or this one would never end.
    """
    with contextlib.ExitStack() as started:
        with signals_held_back():
            try:
                # By itself: a client that fails to start one waits for it for ever when Python ends.
                cluster = distributed.LocalCluster(
                    n_workers=cores(),
                    threads_per_worker=1,
                    processes=True,
                    scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                    silence_logs=logging.ERROR,  # workers that are ended in their work would say so
                )
            except (OSError, RuntimeError, ValueError) as error:
                raise DataError(
                    f"a Dask cluster could not be started on this machine ({type(error).__name__}: {error}). See whether there is "
                    "enough memory for a process on each core; or do the work without a cluster"
                ) from error
            started.callback(_close, cluster)
            client = distributed.Client(cluster, set_as_default=False)
            started.callback(_close, client)
        yield client


def _close(part: Any) -> None:
    with signals_held_back():
        part.close()


def result_of(future: "Future[T]", executor: Executor | None, advice: str) -> T:
    """What a future gives. Where a Dask cluster is gone, its futures are never done, so that is looked for meanwhile.

    Args:
        future, executor: any, of any kind.
        advice: what to say besides where the cluster is gone.

    Raises:
        DataError: the scheduler has ended, or there have been no workers for long.
    """
    client: Any = getattr(executor, "_client", None)
    seen = time.monotonic()
    while client is not None:
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            return future.result(timeout=_LOOK_AGAIN)
        if future.cancelled() or client.status in ("closing", "closed"):  # nobody here has cancelled it
            raise DataError(f"the scheduler of the Dask cluster has ended or cannot be reached; {advice}")
        if future.done():
            break
        with contextlib.suppress(OSError, TimeoutError):  # while it connects again
            if client.nthreads():
                seen = time.monotonic()
        if time.monotonic() - seen > _WAIT_FOR_WORKERS:
            raise DataError(
                f"the Dask cluster has had no workers for {_WAIT_FOR_WORKERS} s; start some with `dask worker`: {advice}"
            )
    return future.result()
