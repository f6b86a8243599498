"""How a command ends: what is said on standard error, and the exit status.

| status | when |
| --- | --- |
| 0 | done |
| 1 | a check failed, or something of the user's is wrong: one message that says what to do |
| 2 | wrong usage |
| 130 | interrupted |
| 141 | whoever read the standard output closed it (`| head`): no error, so nothing is said |

What no user can cause is a bug: one line says so, and how to see where (`MINIGPT_TOK_DEBUG=1` shows the traceback).
"""

import contextlib
import errno
import json
import logging
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TextIO

from typer import Abort
from typer.exceptions import TyperException

from minigpt_tok.cli.remedies import NO_OPTIONS, Options, on_the_command_line
from minigpt_tok.errors import FormatError, MiniGPTTokError, TokenizerMismatchError

FAILED = 1
INTERRUPTED = 130
OUTPUT_CLOSED = 141
DEBUG = "MINIGPT_TOK_DEBUG"

_REMEDIES = {
    errno.ENOENT: "no such file or folder; check the path",
    errno.EISDIR: "a folder, where a file is needed",
    errno.ENOTDIR: "a file stands where a folder is needed; choose another path",
    errno.EEXIST: "exists already; choose another path",
    errno.EACCES: "no permission; change the permissions, or choose another path",
    errno.EPERM: "not permitted; change the permissions, or choose another path",
    errno.EROFS: "the file system is read-only; choose another path",
    errno.ENOSPC: "the disk is full, and nothing half-written was left; make room, or choose another disk",
    errno.EDQUOT: "the disk quota is used up, and nothing half-written was left; make room, or choose another disk",
    errno.EFBIG: "larger than the system lets a file be, and nothing half-written was left; raise the limit (ulimit -f)",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n), or use fewer workers",
    errno.ENOMEM: "out of memory; take less at a time (fewer workers, smaller batches)",
    errno.ENAMETOOLONG: "the path is too long",
    errno.EIO: "the device reported an error; check the disk",
}


class OutputClosedError(Exception):
    """Whoever read the standard output has closed it."""


def status_of(
    command: Callable[[], Any], *, as_json: bool = False, options: Callable[[], Options] = lambda: NO_OPTIONS
) -> int:
    """Run a command and say on standard error what went wrong, if anything did.

    Args:
        command: returns `None`, or an exit status; or raises.
        as_json: also print an error as an object `{"error": …}` on standard output.
        options: gives those of the command, in whose words remedies are said.
    """
    for stream in (sys.stdout, sys.stderr):
        _escape_what_it_lacks(stream)
    with _signals() as received, _warnings_as_lines(options):
        try:
            status = command()
            sys.stdout.flush()
            return status if isinstance(status, int) else 0
        except (OutputClosedError, BrokenPipeError):
            return _output_closed()
        except (KeyboardInterrupt, Abort):
            return INTERRUPTED
        except SystemExit as exit:
            # A training loop that catches an interrupt and exits in its own way was interrupted all the same.
            return INTERRUPTED if received.interrupted else _code_of(exit)
        except Exception as error:
            if received.interrupted:
                return INTERRUPTED
            return _failed(error, as_json, options())


def _failed(error: Exception, as_json: bool, options: Options) -> int:
    if isinstance(error, TyperException) and not isinstance(error, MiniGPTTokError):
        _show_usage_error(error)
        message, status = error.format_message(), error.exit_code
    elif (known := message_of(error, options)) is not None:
        message, status = known, FAILED
        _say(f"error: {message}")
    else:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        what = "".join(traceback.format_exception_only(error)).strip()
        message, status = f"a bug in minigpt-tok: {what}", FAILED
        _say(f"error: {message}\nPlease report it; {DEBUG}=1 in the environment shows where it happened.")
    if as_json:
        with contextlib.suppress(OSError):
            print(json.dumps({"error": message}))
            sys.stdout.flush()
    return status


def message_of(error: Exception, options: Options = NO_OPTIONS) -> str | None:
    """The message for what a user can cause, with the remedy as this command has it; else `None`."""
    if isinstance(error, MiniGPTTokError):
        of_a_file = isinstance(error, FormatError | TokenizerMismatchError)
        return on_the_command_line(str(error), options, names=not of_a_file)
    if isinstance(error, OSError):
        what = _REMEDIES.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
        where = error.filename2 or error.filename
        if isinstance(where, bytes):
            where = os.fsdecode(where)
        return what if where is None or isinstance(where, int) else f"{where}: {what}"
    if isinstance(error, MemoryError):
        return _REMEDIES[errno.ENOMEM]
    return None


def _show_usage_error(error: TyperException) -> None:
    show = getattr(error, "show", None)
    if show is not None:
        show(file=sys.stderr)
    else:
        _say(f"error: {error.format_message()}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _code_of(exit: SystemExit) -> int:
    if exit.code is None or isinstance(exit.code, int):
        return exit.code or 0
    _say(str(exit.code))
    return FAILED


def standard_output_is_closed() -> bool:
    """Whether nobody reads standard output any more: then a broken pipe is this one, else some other."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    if not hasattr(select, "poll"):  # Windows, where this cannot be asked
        return True
    poll = select.poll()
    poll.register(descriptor, 0)  # that the other side has closed is always reported
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _output_closed() -> int:
    """Let the interpreter's own last flush go nowhere instead of failing."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return OUTPUT_CLOSED


class _Received:
    interrupted = False


@contextlib.contextmanager
def _signals() -> Iterator[_Received]:
    """Remember an interrupt whatever is made of it, and let termination unwind, so that temporary files are removed."""
    received = _Received()

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.interrupted = True
        raise KeyboardInterrupt

    def terminate(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    handlers = {signal.SIGINT: (interrupt, signal.default_int_handler), signal.SIGTERM: (terminate, signal.SIG_DFL)}
    before = {}
    try:
        for number, (handler, usual) in handlers.items():
            if signal.getsignal(number) is usual:  # ignored, say under nohup: let it be
                before[number] = signal.signal(number, handler)
    except ValueError:  # not the main thread
        pass
    try:
        yield received
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextlib.contextmanager
def _warnings_as_lines(options: Callable[[], Options]) -> Iterator[None]:
    """Show what this package warns of as `warning: …` lines on standard error, without the place in the code."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, for_developers) or os.environ.get(DEBUG):
            _say(f"warning: {on_the_command_line(str(message), options(), names=False)}")

    for_developers = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning)
    log = logging.getLogger("minigpt_tok")
    handler = _StandardError()
    log.addHandler(handler)
    log_before = log.propagate
    log.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        log.removeHandler(handler)
        log.propagate = log_before


class _StandardError(logging.Handler):
    """Log records as lines, to what is the standard error at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _say(f"{record.levelname.lower()}: {record.getMessage()}")


def _escape_what_it_lacks(stream: TextIO) -> None:
    """Let a stream whose encoding lacks a character (a Windows code page) show its escape instead of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and stream.errors == "strict":
        with contextlib.suppress(OSError, ValueError):
            reconfigure(errors="backslashreplace")
