"""Counting pieces by the workers of an executor (processes, a cluster), and learning from them here.

A worker gets some text and the recipe, and gives the distinct pieces of that text with their counts. These are added up in
the order in which the text went out, so nobody can see in a tokenizer who counted. Workers need no common file system, only
the same version of this package.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor, Executor, Future

import numpy as np

from minigpt_tok.bpe.count_documents import chunks
from minigpt_tok.bpe.counting import MergesDone, PieceCounter, Units
from minigpt_tok.bpe.encoder import Batch
from minigpt_tok.bpe.fast import cores, is_utf8, make_counter
from minigpt_tok.bpe.recipes import Recipe
from minigpt_tok.bpe.reference import Learned, Stop
from minigpt_tok.cluster import result_of
from minigpt_tok.errors import CorpusError, MiniGPTTokError

_IN_FLIGHT = 2  # chunks for each worker, so that none waits for the next
_TRIES = 4  # for a chunk that comes back as an error
_ADVICE = "train again once it is there"  # where a cluster is gone

Pieces = tuple[list[str], np.ndarray]  # in the order in which they were first seen, and their counts, int64 (pieces,)


def count_pieces(recipe: Recipe, texts: list[bytes]) -> Pieces:
    """What a worker does: count the pieces of texts in UTF-8."""
    counter = make_counter(recipe, threads=1)
    counter.add([text.decode("utf-8") for text in texts])
    return counter.counted()


def counter_for(
    recipe: Recipe, threads: int | None, memory_limit: int | None, executor: Executor | None, workers: int | None
) -> PieceCounter:
    """A counter by threads of this process or, where there is an executor, by its workers; see `trainer.train_model`."""
    if executor is None:
        return make_counter(recipe, threads, memory_limit)
    return ExecutorPieceCounter(make_counter(recipe, 1, memory_limit), executor, workers or cores())


class ExecutorPieceCounter(PieceCounter):
    """A `PieceCounter` that has others count for it."""

    chunk_bytes = 1 << 23

    def __init__(self, own: PieceCounter, executor: Executor, workers: int) -> None:
        """`own` adds up and learns; `workers` is how many the executor has."""
        super().__init__(own.recipe)
        self.threads = workers
        self._own = own
        self._executor = executor
        self._waiting: deque[tuple[list[bytes], Future[Pieces]]] = deque()

    def add(self, texts: list[str]) -> None:
        """As in `PieceCounter`; the text may be counted later."""
        chunk: list[bytes] = []
        size = 0
        for text in texts:
            for part in self._parts(text.encode("utf-8")):
                chunk.append(part)
                size += len(part)
                if size >= self.chunk_bytes:
                    self._submit(chunk)
                    chunk, size = [], 0
        if chunk:
            self._submit(chunk)

    def add_utf8(self, text: memoryview) -> int | None:
        """As in `PieceCounter`; the text may be counted later."""
        raw = bytes(text)
        if not is_utf8(raw):
            return super().add_utf8(text)  # says where
        self._submit([raw])
        return None

    def add_counted(self, pieces: list[str], counts: np.ndarray) -> None:
        """As in `PieceCounter`."""
        self._finished().add_counted(pieces, counts)

    def distinct(self) -> int:
        """As in `PieceCounter`."""
        return self._finished().distinct()

    def characters(self) -> dict[str, int]:
        """As in `PieceCounter`."""
        return self._finished().characters()

    def counted(self) -> Pieces:
        """As in `PieceCounter`."""
        return self._finished().counted()

    def learn(self, base: list[bytes], stop: Stop, progress: MergesDone | None) -> Learned:
        """As in `PieceCounter`."""
        return self._finished().learn(base, stop, progress)

    def learn_from(
        self, pieces: Batch, counts: np.ndarray, units: Units, stop: Stop, progress: MergesDone | None
    ) -> Learned:
        """As in `PieceCounter`."""
        return self._finished().learn_from(pieces, counts, units, stop, progress)

    def _parts(self, raw: bytes) -> Iterable[bytes]:
        """A text, or, of one that is long, what can be counted apart."""
        if len(raw) <= self.chunk_bytes:
            return (raw,)
        return (
            raw[start:end] for start, end in chunks(memoryview(raw), 0, len(raw), self._pretokenizer, self.chunk_bytes)
        )

    def give_up(self) -> None:
        """As in `PieceCounter`; what waits to be counted is not."""
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def _submit(self, texts: list[bytes]) -> None:
        while len(self._waiting) >= _IN_FLIGHT * self.threads:
            self._add_next()
        self._waiting.append((texts, self._asked(texts)))

    def _finished(self) -> PieceCounter:
        while self._waiting:
            self._add_next()
        return self._own

    def _add_next(self) -> None:
        try:
            pieces, counts = self._result_of(*self._waiting.popleft())
        except BaseException as error:
            self.give_up()
            if isinstance(error, MiniGPTTokError) or not isinstance(error, Exception):
                raise
            raise self._failed(error) from error
        self._own.add_counted(pieces, counts)

    def _result_of(self, texts: list[bytes], future: "Future[Pieces]") -> Pieces:
        """What a worker has counted; asked again where that is an error, which Dask's executor makes of a result whose worker
        dies at that moment.
        """
        for _ in range(_TRIES - 1):
            try:
                return result_of(future, self._executor, _ADVICE)
            except (MiniGPTTokError, BrokenExecutor):
                raise
            except Exception:
                future = self._asked(texts)
        return result_of(future, self._executor, _ADVICE)

    def _asked(self, texts: list[bytes]) -> "Future[Pieces]":
        try:
            return self._executor.submit(count_pieces, self.recipe, texts)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> CorpusError:
        return CorpusError(
            f"the workers could not count the training text ({type(error).__name__}: {error}). Look into their logs, or train "
            "without an executor"
        )
