"""Ctrl-C and termination, kept waiting while something is half done that could not be undone."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from importlib import import_module
from types import FrameType

_HELD: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait while processes start: a pool or a cluster left in the middle of that never ends.

    What is started within begins with this thread's signal mask, so Ctrl-C, which a terminal sends to all of them, does not
    reach it: whoever started it ends it. SIGTERM does reach it. Outside the main thread, where Python hands no signal to
    anybody, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _HELD}
    held = [number for number, handler in before.items() if callable(handler)]
    for number in held:
        signal.signal(number, lambda *received: came.append(received))
    mask = None
    if hasattr(signal, "pthread_sigmask"):
        import_module("multiprocessing.resource_tracker").ensure_running()  # which unblocks the signal where it starts
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in held:
            signal.signal(number, before[number])
        for received in came[:1]:
            handler = before[received[0]]
            if callable(handler):
                handler(*received)
