"""`encode_corpus`: every split of a corpus to an id file, in bounded memory, on all cores, the same bytes however many.

The corpus is read here, in order, and cut between documents into batches; batches are encoded here or by the workers
of an executor, and their ids are written in the order of the batches. So neither the number of workers nor who
finishes first shows in the result. Memory holds a few batches and the longest document.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import logging
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

from minigpt_tok.data.corpora import Source, open_corpus
from minigpt_tok.data.documents import Documents, utf8_size
from minigpt_tok.data.id_file import IdFile, IdFileMetadata, IdFileWriter, read_metadata
from minigpt_tok.data.processed import folder_name
from minigpt_tok.data.splits import SPLITS
from minigpt_tok.data.text_files import END_OF_TEXT
from minigpt_tok.errors import CorpusError, DataError, FormatError, TokenizerError, TokenizerMismatchError
from minigpt_tok.files import StrPath
from minigpt_tok.tokenizer import Tokenizer

log = logging.getLogger(__name__)

BATCH_BYTES = 1 << 20  # of text; a batch ends with the document that reaches it
_INLINE_SECONDS = 1.0  # about what starting processes takes; so long it is tried here first


# Called after each batch with the split, the bytes of text done in all splits, and about how many there are if known.
Progress = Callable[[str, int, int | None], None]


class EncodedBatch(NamedTuple):
    """The documents of a batch as ids, and what the index says of them."""

    ids: np.ndarray  # (n_tokens,), of the tokenizer's dtype, separators included
    lengths: np.ndarray  # int64 (n_documents,), ids of each document
    document_bytes: np.ndarray  # int64 (n_documents,), UTF-8 bytes of each text
    text_digests: bytes  # SHA-256 of each text, joined


def encode_corpus(
    corpus: Source,
    tokenizer: Tokenizer,
    out_dir: StrPath,
    *,
    separator: str | None = "auto",
    workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    command: str = "minigpt_tok.encode_corpus",
) -> dict[str, Path]:
    """Encode every split of a corpus to `out_dir/<split>.safetensors`.

    A split that `out_dir` has already, from the same text by the same tokenizer with the same separator, is verified
    and kept. Special tokens in the text are text.

    Args:
        corpus: a `Corpus`, or anything that `open_corpus` takes.
        tokenizer: one for all splits.
        out_dir: a folder for this corpus and this tokenizer, see `default_encoding_dir`.
        separator: what follows each document: `"auto"` the tokenizer's `<|endoftext|>` if it has one, else nothing
            (logged); a special token of the tokenizer; or `None` for nothing.
        workers: processes; `None` for as many as there are cores, 1 for none beside this one. They start when some
            time of encoding here shows that there is enough to do.
        executor: encodes the batches instead of local processes: any of `concurrent.futures`' kind, on a cluster say.
        overwrite: replace what another tokenizer made in `out_dir`.
        progress: called after each batch with the split, the bytes of text done in all splits, and of about how many.
        command: what to name in the files as their maker.

    Returns:
        split → id file, for the splits that have documents.

    Raises:
        TokenizerMismatchError: `out_dir` has ids of another tokenizer, and `overwrite` is not set.
        CorpusError: the corpus has no documents, or cannot be read.
        TokenizerError: the separator is no special token, or the tokenizer cannot encode the text.
        DataError: `out_dir` has a file that is no id file; the disk is full; or workers could not run.
    """
    corpus = open_corpus(corpus)
    separator_id = _separator_id(tokenizer, separator)
    if workers is not None and workers < 1:
        raise DataError(f"workers is {workers}; give at least 1, or None for all cores")
    out = Path(out_dir)
    _check_folder(out, tokenizer, overwrite)
    result: dict[str, Path] = {}
    done = 0
    with _Encoding(tokenizer, separator_id, workers, executor, corpus.size_bytes) as encoding:
        for split, documents in corpus.splits.items():
            path = out / f"{split}.safetensors"
            metadata = IdFileMetadata(
                tokenizer_fingerprint=tokenizer.fingerprint,
                tokenizer_fingerprint_version=tokenizer.fingerprint_version,
                vocab_size=tokenizer.vocab_size,
                corpus=corpus.name,
                split=split,
                separator=_text_of(tokenizer, separator_id),
                separator_id=separator_id,
                command=command,
            )
            on_bytes = None if progress is None else _Reporter(progress, done, corpus.size_bytes, split)
            if (finished := _finished(path, metadata, documents)) is None:
                finished = encoding.split(path, metadata, documents, on_bytes)
            if finished is None:
                log.warning("%s has no documents, and no id file", documents.name)
                continue
            if on_bytes is not None:
                on_bytes(finished.n_bytes)
            done += finished.n_bytes
            result[split] = path
    if not result:
        raise CorpusError(f"{corpus.name}: there are no documents to encode")
    _clear_stale(out, result, tokenizer, corpus.name)
    return result


def default_encoding_dir(root: StrPath, corpus_name: str, tokenizer: Tokenizer, name: str | None = None) -> Path:
    """Where ids of a corpus belong: `root/encoded/<corpus>/char`, or `…/<tokenizer name>` for all but a character one.

    Args:
        root: for example `data`.
        corpus_name: as `Corpus.name`.
        tokenizer: a character tokenizer without merges is the character baseline, whatever its name.
        name: the tokenizer's, by default `bpe-<vocabulary size>-<beginning of the fingerprint>`.
    """
    is_baseline = tokenizer.unit == "character" and not tokenizer.merges
    default = f"bpe-{tokenizer.vocab_size}-{tokenizer.fingerprint[:8]}"
    return Path(root) / "encoded" / folder_name(corpus_name) / ("char" if is_baseline else folder_name(name or default))


# What was there before


def _check_folder(out: Path, tokenizer: Tokenizer, overwrite: bool) -> None:
    """Refuse to mix or overwrite, before anything is read."""
    if overwrite:
        return
    for split in SPLITS:
        path = out / f"{split}.safetensors"
        if not path.exists():
            continue
        try:
            found = read_metadata(path).tokenizer_fingerprint
        except FormatError as error:
            raise DataError(
                f"{path} is in the way: {error}. Choose another folder, or pass overwrite=True (--overwrite) to replace it"
            ) from None
        if found != tokenizer.fingerprint:
            raise TokenizerMismatchError(
                f"{path} was encoded with the tokenizer {found}, and this one is {tokenizer.fingerprint}. Choose another "
                "folder for this tokenizer, or pass overwrite=True (--overwrite) to replace the other's ids"
            )


def _finished(path: Path, wanted: IdFileMetadata, documents: Documents) -> IdFileMetadata | None:
    """The metadata of a finished encoding of the same text, verified; `None` if there is none or it is damaged."""
    try:
        file = IdFile(path)
        have = file.metadata
        same = (
            "tokenizer_fingerprint",
            "tokenizer_fingerprint_version",
            "corpus",
            "split",
            "separator",
            "separator_id",
        )
        if any(getattr(have, key) != getattr(wanted, key) for key in same):
            return None
        file.verify()
    except FileNotFoundError:
        return None
    except FormatError as error:
        log.warning("%s; it is encoded again", error)
        return None
    digest = hashlib.sha256()
    n_documents = 0
    for text in documents:  # reading and hashing costs a small part of encoding
        digest.update(hashlib.sha256(text.encode("utf-8")).digest())
        n_documents += 1
    if (digest.hexdigest(), n_documents) != (have.text_sha256, have.n_documents):
        return None
    log.info("%s is whole and of the same text; it is kept", path)
    return have


def _clear_stale(out: Path, result: dict[str, Path], tokenizer: Tokenizer, corpus: str) -> None:
    """Splits that are there and were not encoded now: of another tokenizer they may not stay beside these."""
    for split in SPLITS:
        path = out / f"{split}.safetensors"
        if split in result or not path.exists():
            continue
        try:
            left = read_metadata(path)
        except FormatError:
            left = None
        if left is None or left.tokenizer_fingerprint != tokenizer.fingerprint:
            log.warning("%s was made with another tokenizer, and is removed", path)
            path.unlink()
        elif left.corpus != corpus:
            log.warning("%s is of another corpus, %s, and is left from an earlier encoding", path, left.corpus)


# Separators


def _separator_id(tokenizer: Tokenizer, separator: str | None) -> int | None:
    specials = tokenizer.special_tokens
    if separator is None:
        return None
    if separator == "auto":
        if END_OF_TEXT in specials:
            log.info("each document is followed by %s (id %d)", END_OF_TEXT, specials[END_OF_TEXT])
        else:
            log.info("the tokenizer has no %s; documents follow one another without a separator", END_OF_TEXT)
        return specials.get(END_OF_TEXT)
    if separator not in specials:
        raise TokenizerError(
            f"the separator {separator!r} is no special token of this tokenizer ({', '.join(specials) or 'it has none'}); "
            "add it with tokenizer.with_special_tokens([...]), or pass separator=None"
        )
    return specials[separator]


def _text_of(tokenizer: Tokenizer, separator_id: int | None) -> str:
    return next((token for token, id in tokenizer.special_tokens.items() if id == separator_id), "")


class _Reporter:
    """Adds what earlier splits have done."""

    def __init__(self, progress: Progress, before: int, total: int | None, split: str) -> None:
        self._progress, self._before, self._total, self._split = progress, before, total, split

    def __call__(self, bytes_in_split: int) -> None:
        self._progress(self._split, self._before + bytes_in_split, self._total)


# Batches and workers


def encode_batch(
    kind: type[Tokenizer], form: str, fingerprint: str, separator_id: int | None, texts: list[str]
) -> EncodedBatch:
    """What a worker does: encode texts with the tokenizer of this class and JSON form (made once per worker)."""
    return _encode(_rebuilt(kind, form, fingerprint), separator_id, texts)


_tokenizers: dict[str, Tokenizer] = {}  # of a worker, by fingerprint


def _rebuilt(kind: type[Tokenizer], form: str, fingerprint: str) -> Tokenizer:
    if fingerprint not in _tokenizers:
        tokenizer = kind.from_json(form)
        if tokenizer.fingerprint != fingerprint:
            raise TokenizerMismatchError(
                f"the tokenizer {fingerprint} is {tokenizer.fingerprint} in a worker; do all machines have the same "
                "version of this package?"
            )
        _tokenizers.clear()
        _tokenizers[fingerprint] = tokenizer
    return _tokenizers[fingerprint]


def _encode(tokenizer: Tokenizer, separator_id: int | None, texts: list[str]) -> EncodedBatch:
    ids, offsets = tokenizer.encode_batch_to_numpy(texts)
    lengths = np.diff(offsets)
    if separator_id is not None:
        ids = np.insert(ids, offsets[1:], separator_id)
        lengths = lengths + 1
    raw = [text.encode("utf-8") for text in texts]
    sizes = np.array([len(text) for text in raw], dtype=np.int64)
    return EncodedBatch(ids, lengths, sizes, b"".join(hashlib.sha256(text).digest() for text in raw))


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in documents:
        batch.append(text)
        size += utf8_size(text)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Encoding:
    """Encodes splits one after the other with one set of workers, which starts when there is enough to do."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        separator_id: int | None,
        workers: int | None,
        executor: Executor | None,
        size_bytes: int | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._separator_id = separator_id
        self._workers = workers or _cores()
        self._executor = executor
        self._own: Executor | None = None
        self._in_flight = 2 * self._workers
        self._size_bytes = size_bytes
        self._done_bytes = 0
        self._started = time.monotonic()

    def __enter__(self) -> "_Encoding":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._own is not None:
            if kind is not None:
                _end_workers(self._own)
            self._own.shutdown()

    def split(
        self, path: Path, metadata: IdFileMetadata, documents: Documents, on_bytes: Callable[[int], None] | None
    ) -> IdFileMetadata | None:
        """Write one id file; `None`, and no file, where there are no documents."""
        batches = _batches(documents)
        first = next(batches, None)
        if first is None:
            return None
        with IdFileWriter(path, metadata) as file:
            for batch in self._encoded(chain([first], batches), documents.name):
                file.write(*batch)
                self._done_bytes += int(batch.document_bytes.sum())
                if on_bytes is not None:
                    on_bytes(file.metadata.n_bytes)
        return file.metadata

    def _encoded(self, batches: Iterator[list[str]], name: str) -> Iterator[EncodedBatch]:
        waiting: deque[tuple[int, Future[EncodedBatch]]] = deque()
        number = 0
        try:
            for batch in batches:
                here = self._executor is None and not self._own and (self._workers == 1 or not self._is_long())
                waiting.append((number, self._here(batch) if here else self._submit(batch)))
                number += len(batch)
                if here or len(waiting) >= self._in_flight:
                    yield _result(*waiting.popleft(), name)
            while waiting:
                yield _result(*waiting.popleft(), name)
        finally:
            if self._executor is not None:  # our own workers are ended instead
                for _, future in waiting:
                    future.cancel()

    def _is_long(self) -> bool:
        """Whether, by the pace so far, what is left takes longer than starting processes does."""
        spent = time.monotonic() - self._started
        if spent < _INLINE_SECONDS or self._size_bytes is None or not self._done_bytes:
            return spent >= _INLINE_SECONDS
        return spent / self._done_bytes * (self._size_bytes - self._done_bytes) > 2 * _INLINE_SECONDS

    def _here(self, batch: list[str]) -> "Future[EncodedBatch]":
        future: Future[EncodedBatch] = Future()
        try:
            future.set_result(_encode(self._tokenizer, self._separator_id, batch))
        except Exception as error:
            future.set_exception(error)
        return future

    def _submit(self, batch: list[str]) -> "Future[EncodedBatch]":
        kind, form = type(self._tokenizer), self._form
        executor = self._executor or self._own
        if executor is None:
            executor = self._own = local_processes(self._workers)
        with _interrupts_held_back():
            return executor.submit(encode_batch, kind, form, self._tokenizer.fingerprint, self._separator_id, batch)

    @functools.cached_property
    def _form(self) -> str:
        return self._tokenizer.to_json()


def _result(first: int, future: "Future[EncodedBatch]", name: str) -> EncodedBatch:
    try:
        return future.result()
    except TokenizerMismatchError:
        raise
    except TokenizerError as error:
        raise TokenizerError(f"{name}, in the documents from {first} on: {error}") from error
    except concurrent.futures.BrokenExecutor as error:
        raise DataError(
            f"{name}: the processes that encode could not run, or one was killed ({error}). In a script, call "
            'encode_corpus under `if __name__ == "__main__":`; if memory ran out, use fewer workers; workers=1 needs none'
        ) from error


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


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let Ctrl-C wait while processes start: a pool left in the middle of that never ends, and processes that are
    interrupted before `_start_worker` say so at length. These begin with the signal mask of this thread.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield  # Ctrl-C ends up elsewhere
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *received: came.append(received))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
