"""Who encodes: this process, its threads, local processes, or any executor of `concurrent.futures`, as of a Dask cluster.

All give the batches back in the order in which they went in, so nobody can see in a result who made it. Whoever
encodes gets UTF-8 and gives ids; reading, hashing and writing stay in the process that asked.

A local process that dies (or is killed, where memory is short) costs the batches that it and its siblings had: the pool
is started anew and these are done again. Clusters do so themselves; a batch that comes back as an error nevertheless is
given to them again, a few times.
"""

import concurrent.futures
import contextlib
import logging
import multiprocessing
import os
import re
import signal
import threading
import time
import warnings
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from functools import cached_property
from types import TracebackType
from typing import NamedTuple

import numpy as np

from minigpt_tok.bpe.fast import cores
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.cluster import result_of
from minigpt_tok.errors import (
    DataError,
    MiniGPTTokError,
    TokenizerError,
    TokenizerMismatchError,
)
from minigpt_tok.held_signals import signals_held_back
from minigpt_tok.tokenizer import Tokenizer

log = logging.getLogger(__name__)

BATCH_BYTES = 1 << 20  # of text, about; the core gives so much to one thread
_INLINE_SECONDS = 1.0  # about what starting processes takes; so long it is tried here first
_GOES_ON = "what is finished is kept, and the same call goes on from there"
_RESTARTS = 3  # of a pool that has worked, or of a cluster's batch, without a batch done in between


class EncodedBatch(NamedTuple):
    """The documents of a batch as ids."""

    ids: np.ndarray  # (n_tokens,), of the tokenizer's dtype, separators included
    lengths: np.ndarray  # int64 (n_documents,), ids of each document


class Batch(NamedTuple):
    """Documents that are encoded together."""

    split: str
    name: str  # of corpus and split, for messages
    first: int  # the number of the first of them in the split
    texts: Texts


def encode_batch(
    kind: type[Tokenizer], form: bytes, fingerprint: str, separator_id: int | None, texts: Texts
) -> EncodedBatch:
    """What a worker does: encode texts with the tokenizer of this class and JSON form, compressed by zlib.

    The tokenizer is made once in each worker.
    """
    return encode_texts(_rebuilt(kind, form, fingerprint), separator_id, texts)


def encode_texts(tokenizer: Tokenizer, separator_id: int | None, texts: Texts) -> EncodedBatch:
    """The ids of texts, each followed by the separator, if there is one."""
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, separator_id=separator_id)
    return EncodedBatch(ids, np.diff(offsets))


def _in_split(message: str, first: int) -> str:
    """What is wrong with one text of a batch, which numbers its own from 0, with the document's number in the split."""
    if found := re.match(r"texts\[(\d+)\]: ", message):
        return f"document {first + int(found[1])} (counted from 0): {message[found.end() :]}"
    return f"in the documents from {first} on: {message}"


_tokenizers: dict[str, Tokenizer] = {}  # of a worker, by fingerprint


def _rebuilt(kind: type[Tokenizer], form: bytes, fingerprint: str) -> Tokenizer:
    if fingerprint not in _tokenizers:
        tokenizer = kind.from_json(zlib.decompress(form).decode("utf-8"))
        if tokenizer.fingerprint != fingerprint:
            raise TokenizerMismatchError(
                f"the tokenizer {fingerprint} is {tokenizer.fingerprint} in a worker; do all machines have the same "
                "version of this package?"
            )
        _tokenizers.clear()
        _tokenizers[fingerprint] = tokenizer
    return _tokenizers[fingerprint]


class Engine:
    """Encodes batches with one set of workers, which starts when there is enough to do."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        separator_id: int | None,
        workers: int | None,
        executor: Executor | None,
        size_bytes: int | None,
    ) -> None:
        """Choose who encodes.

        Args:
            tokenizer, separator_id: for all batches.
            workers: local processes, 1 for this process alone; with an executor, how many it has. `None`: threads of
                this process where the compiled encoder does the work, else as many processes as there are cores.
            executor: instead of local workers.
            size_bytes: about how much text there is, if known.
        """
        self._tokenizer = tokenizer
        self._separator_id = separator_id
        self._executor = executor
        self._pool: Executor | None = None  # our own processes
        self._threads: Executor | None = None
        self._threaded = workers is None and executor is None and tokenizer.encodes_in_threads
        self._workers = workers or cores()
        self._restarts = _RESTARTS
        self._has_worked = False
        self._size_bytes = size_bytes
        self._done_bytes = 0
        self._started = time.monotonic()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        if self._pool is not None:
            if kind is not None:
                _end_workers(self._pool)
            self._pool.shutdown()

    def encode(self, batches: Iterator[Batch]) -> Iterator[tuple[Batch, EncodedBatch]]:
        """Each batch with its ids, in order."""
        waiting: deque[tuple[Batch, Future[EncodedBatch]]] = deque()
        try:
            for batch in batches:
                here = self._is_here()
                waiting.append((batch, self._here(batch) if here else self._submit(batch)))
                if here or len(waiting) >= self._in_flight:
                    yield self._next(waiting)
            while waiting:
                yield self._next(waiting)
        finally:
            if self._executor is not None:  # our own workers are ended instead
                for _, future in waiting:
                    future.cancel()

    @property
    def _in_flight(self) -> int:
        return 2 * self._workers + (2 if self._threaded else 0)

    def _next(self, waiting: deque[tuple[Batch, "Future[EncodedBatch]"]]) -> tuple[Batch, EncodedBatch]:
        while True:
            batch, future = waiting[0]
            try:
                encoded = result_of(future, self._executor, _GOES_ON)
            except TokenizerMismatchError:
                raise
            except TokenizerError as error:
                raise TokenizerError(f"{batch.name}, {_in_split(str(error), batch.first)}") from error
            except MiniGPTTokError:
                raise
            except concurrent.futures.BrokenExecutor as error:
                self._start_again(waiting, error)
                continue
            except Exception as error:
                if self._executor is None:
                    raise
                if self._again(waiting, error):
                    continue
                raise DataError(
                    f"{batch.name}: the workers could not encode the documents from {batch.first} on ({type(error).__name__}: "
                    f"{error}). Look into their logs; {_GOES_ON}"
                ) from error
            waiting.popleft()
            self._has_worked, self._restarts = True, _RESTARTS
            self._done_bytes += batch.texts.n_bytes
            return batch, encoded

    def _again(self, waiting: deque[tuple[Batch, "Future[EncodedBatch]"]], error: Exception) -> bool:
        """Submit the first batch once more, if there is hope: encoding is a function of the text, and clusters are not.

        Dask's executor takes a result that is there for an error where the worker that had it dies at that moment.
        """
        if self._restarts == 0:
            return False
        self._restarts -= 1
        batch, _ = waiting[0]
        with contextlib.suppress(Exception):  # what is wrong has been said by the first error
            waiting[0] = batch, self._submit(batch)
            log.info("%s: the documents from %d on are encoded again after %r", batch.name, batch.first, error)
            return True
        return False

    def _start_again(
        self, waiting: deque[tuple[Batch, "Future[EncodedBatch]"]], error: concurrent.futures.BrokenExecutor
    ) -> None:
        """A worker died: do all that is waiting again, if there is hope."""
        if self._pool is None or not self._has_worked or self._restarts == 0:
            raise DataError(
                f"{waiting[0][0].name}: the processes that encode could not run, or one was killed ({error}). In a script, call "
                'encode_corpus under `if __name__ == "__main__":`; if memory ran out, use fewer workers; workers=1 needs '
                "none"
            ) from error
        self._restarts -= 1
        self._pool.shutdown()
        self._pool = None
        batches = [batch for batch, _ in waiting]
        waiting.clear()
        waiting.extend((batch, self._submit(batch)) for batch in batches)

    def _is_here(self) -> bool:
        if self._executor is not None or self._pool is not None or self._threaded:
            return False
        return self._workers == 1 or not self._is_long()

    def _is_long(self) -> bool:
        """Whether, by the pace so far, what is left takes longer than starting processes does."""
        spent = time.monotonic() - self._started
        if spent < _INLINE_SECONDS or self._size_bytes is None or not self._done_bytes:
            return spent >= _INLINE_SECONDS
        return spent / self._done_bytes * (self._size_bytes - self._done_bytes) > 2 * _INLINE_SECONDS

    def _here(self, batch: Batch) -> "Future[EncodedBatch]":
        future: Future[EncodedBatch] = Future()
        try:
            future.set_result(self._encode(batch))
        except Exception as error:
            future.set_exception(error)
        return future

    def _encode(self, batch: Batch) -> EncodedBatch:
        return encode_texts(self._tokenizer, self._separator_id, batch.texts)

    def _submit(self, batch: Batch) -> "Future[EncodedBatch]":
        if self._threaded:
            if self._threads is None:
                self._threads = concurrent.futures.ThreadPoolExecutor(self._workers, "minigpt-tok-encode")
            return self._threads.submit(self._encode, batch)
        arguments = type(self._tokenizer), self._form, self._tokenizer.fingerprint, self._separator_id, batch.texts
        if self._executor is not None:
            return self._executor.submit(encode_batch, *arguments)
        if self._pool is None:
            self._pool = local_processes(self._workers)
        with signals_held_back():  # and processes interrupted before `_start_worker` would say so at length
            try:
                return self._pool.submit(encode_batch, *arguments)
            except concurrent.futures.BrokenExecutor as error:  # found out here, dealt with where results are asked for
                broken: Future[EncodedBatch] = Future()
                broken.set_exception(error)
                return broken

    @cached_property
    def _form(self) -> bytes:
        return zlib.compress(self._tokenizer.to_json().encode("utf-8"))


# Local processes


def local_processes(workers: int) -> Executor:
    """Fresh processes (not forked: the parent may have threads), which end with this one."""
    return concurrent.futures.ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
    )


def _end_workers(executor: Executor) -> None:
    """At once, whatever they are doing; otherwise Python, when it ends, waits for the batches in work.

    Their futures fail then. They must not be cancelled before: the pool's own thread stumbles over that (Python 3.11), and
    what it leaves undone may hold up the end of this process for ever.
    """
    for process in list((getattr(executor, "_processes", None) or {}).values()):
        process.kill()


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends the workers
    warnings.simplefilter("ignore")  # what there is to say of the tokenizer, the parent has said
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed cannot tell its workers to stop, and they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
