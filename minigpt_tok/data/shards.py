"""An id file in the making: it grows shard by shard in a hidden folder beside it, from which a killed run goes on.

`train.safetensors` is made in `.train.unfinished/`:

| file | holds |
| --- | --- |
| `plan.json` | what is being made: the id file's metadata, and the size of a shard |
| `ids` | the id file as it grows: room for the header, then the ids of one shard after the other |
| `ends`, `sizes` | `document_ends` and `document_bytes` of all documents so far |
| `journal` | a line for each finished shard, written last: where everything stands at its end |
| `lock` | held by the run that writes; the system lets go of it when that run dies |

A shard ends with the document that brings its text to `SHARD_BYTES`, so where shards begin depends on the text alone.
A line of the journal says what the id file would hash to if it ended there: its ids, its documents, its text. Hence one
pass of each hash serves the shards and the file, and whoever goes on verifies all of a finished shard, its text
included. What stands in `ids`, `ends` and `sizes` behind the last finished shard is nobody's and goes.

At the end the index is appended to `ids`, the header put before it, and the file renamed. A run that is killed here finds
its shards as they were.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data.id_format import COUNTED, IdFileMetadata, header_of, id_dtype
from minigpt_tok.data.id_writer import Mark, Written, check_batch, clear_errors, complete, pieces
from minigpt_tok.errors import DataError
from minigpt_tok.files import StrPath, flush_folder, ordinary_mode, write_text

log = logging.getLogger(__name__)

SHARD_BYTES = 64 << 20  # of text: what is done again after a kill, at most
_FLUSHED_AT_ONCE = 16 << 20  # of text: what the disk is given then
_FORMAT = "minigpt-tok unfinished ids"
_VERSION = 2
_GROWING = ("ids", "ends", "sizes")
_MAY_DIFFER = ("command",)  # from one run to the next; that of the first is kept
_to_disk = getattr(os, "fdatasync", os.fsync)  # what is written of a file, by its descriptor


def unfinished_folder(path: StrPath) -> Path:
    """Where the id file `path` is made."""
    path = Path(path)
    return path.with_name(f".{path.stem}.unfinished")


def unfinished_tokenizer(path: StrPath) -> str | None:
    """The fingerprint of the tokenizer by which an id file was begun and not finished; `None` if there is none."""
    plan = _read_plan(unfinished_folder(path))
    return None if plan is None else plan["metadata"].get("tokenizer_fingerprint")


class Shards:
    """Makes one id file: `with Shards(path, metadata) as shards:`, then `keep` and `write`, then `finish`.

    What an earlier run finished is in `finished`. Each of these shards must first be kept or, from some shard on, all
    dropped; then new ones are written. If the block ends without `finish`, finished shards stay for the next run.
    """

    def __init__(self, path: StrPath, metadata: IdFileMetadata, *, shard_bytes: int | None = None) -> None:
        """`metadata`: what is known beforehand."""
        self.path = Path(path)
        self.folder = unfinished_folder(path)
        self.shard_bytes = shard_bytes or SHARD_BYTES
        self._metadata = metadata
        self._files = contextlib.ExitStack()
        self._flusher = ThreadPoolExecutor(1, "minigpt-tok-flush")
        self._flushing: Future[None] | None = None
        self.finished: list[Mark] = []
        self._kept = 0  # of `finished`
        self._done = False
        self._written = Written(metadata.vocab_size)  # and kept
        self._in_shard = False
        self._shard_text = 0  # bytes

    @property
    def metadata(self) -> IdFileMetadata:
        """With the counts and hashes of what has been kept and written."""
        return self._written.filled_in(self._metadata)

    @property
    def n_bytes(self) -> int:
        """Of the text that has been kept and written."""
        return self._written.n_bytes

    def __enter__(self) -> "Shards":
        with self._clear_errors(), contextlib.ExitStack() as files:
            self.folder.mkdir(parents=True, exist_ok=True)
            files.enter_context(_locked(self.folder, self.path))
            try:
                self._resume()
                *self._growing, self._journal = (
                    files.enter_context(open(self.folder / name, "r+b" if self.finished else "w+b"))
                    for name in (*_GROWING, "journal")
                )
                self._cut_journal()  # without a torn line at its end
            except BaseException:
                self._clear_if_empty()
                raise
            self._files = files.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._files:
            self._flusher.shutdown()
            for file in (*self._growing, self._journal):
                with contextlib.suppress(OSError):  # the full disk has been said; closing would say it again
                    file.close()
            if not self._done and self.finished and not self.finished_left:
                with contextlib.suppress(OSError):  # makes room; whoever goes on cuts them in any case
                    for name, end in zip(_GROWING, self._ends_at(self.finished[-1]), strict=True):
                        os.truncate(self.folder / name, end)
            self._clear_if_empty()
        if kind is not None and self.finished and not self._done:
            log.warning(
                "%s: %s in %s, and kept; the same command goes on from there, or remove that folder",
                self.path, counted(len(self.finished), "finished shard"), self.folder,
            )  # fmt: skip

    # What an earlier run left

    @property
    def finished_left(self) -> bool:
        """Whether there are finished shards that have been neither kept nor dropped."""
        return self._kept < len(self.finished)

    def _clear_if_empty(self) -> None:
        if not self.finished:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _resume(self) -> None:
        plan = _read_plan(self.folder)
        wanted = self._plan()
        if plan is not None and _comparable(plan) == _comparable(wanted):
            self._metadata = dataclasses.replace(
                self._metadata, **{key: plan["metadata"].get(key, "") for key in _MAY_DIFFER}
            )
            self.finished = self._read_journal()
            if not all((self.folder / name).exists() for name in _GROWING):
                self.finished = []
        elif plan is not None:
            log.warning("%s was begun from something else or in another way, and is begun anew", self.path)
        if not self.finished:
            for left in self.folder.iterdir():
                if left.name != "lock":
                    left.unlink()
            write_text(self.folder / "plan.json", json.dumps(wanted, indent=1, ensure_ascii=False) + "\n")
        else:
            log.info("%s: going on after %s", self.path, counted(len(self.finished), "finished shard"))

    def _plan(self) -> dict[str, Any]:
        known = {key: value for key, value in self._metadata.to_strings().items() if key not in COUNTED}
        plan = {"format": _FORMAT, "version": _VERSION, "shard_bytes": self.shard_bytes, "metadata": known}
        return {**plan, "sha256": _plan_digest(plan)}

    def _read_journal(self) -> list[Mark]:
        """Its whole lines; the last may be torn."""
        lines = []
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            for line in (self.folder / "journal").read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                lines.append(Mark(**json.loads(line)))
        return lines

    def keep(self, batches: Iterable[Texts]) -> bool:
        """Keep the next finished shard, if it is of this text and whole; else drop it and all that follow.

        `batches` are the texts of the shard, read again.
        """
        wanted = self.finished[self._kept]
        later = self._written.copy()
        for texts in batches:
            later.add_texts(texts)
        found = later.mark()
        same = (found.bytes_sha256, found.sizes_sha256) == (wanted.bytes_sha256, wanted.sizes_sha256)
        if not same:
            log.warning("%s: the text is another from shard %d on, which is encoded again", self.path, self._kept)
        with self._clear_errors():
            if same and self._is_whole(later, wanted):
                self._written = later
                self._kept += 1
                return True
            self._drop()
        return False

    def _is_whole(self, later: Written, wanted: Mark) -> bool:
        """Whether the next shard is in the files as the journal says. `later` has its texts, and gets the rest."""
        sizes_hash = self._written.text_hash.of_sizes.copy()
        later.n_tokens = wanted.n_tokens
        places = zip(
            self._growing,
            (later.ids_hash, later.ends_hash, sizes_hash),
            self._ends_at(self._written),
            self._ends_at(later),
            strict=True,
        )
        try:
            for file, digest, start, end in places:
                file.seek(start)
                for raw in pieces(file, end - start):
                    digest.update(raw)
        except OSError as error:
            log.warning("%s: shard %d cannot be read and is encoded again (%s)", self.path, self._kept, error)
            return False
        if later.mark() != wanted or sizes_hash.hexdigest() != wanted.sizes_sha256:
            log.warning("%s: shard %d is damaged and is encoded again", self.path, self._kept)
            return False
        return True

    def drop_rest(self) -> None:
        """Drop the finished shards that have not been kept: the text has ended before them."""
        if self.finished_left:
            with self._clear_errors():
                self._drop()

    def _drop(self) -> None:
        del self.finished[self._kept :]
        self._cut_journal()

    def _cut_journal(self) -> None:
        self._journal.truncate(sum(len(_line(line)) for line in self.finished))

    # Writing

    def write(self, ids: np.ndarray, lengths: np.ndarray, texts: Texts) -> None:
        """Add documents, as `IdFileWriter.write`. A shard must not end inside them."""
        check_batch(self.path, self._metadata.vocab_size, ids, lengths, texts)
        before = self.n_bytes
        with self._clear_errors():
            if not self._in_shard:
                self._begin_shard()
            parts = self._written.add(ids, lengths, texts)
            for file, raw in zip(self._growing, parts, strict=True):
                file.write(raw)
        self._shard_text += self.n_bytes - before
        if self._shard_text >= self.shard_bytes:
            self._end_shard()
        elif self.n_bytes // _FLUSHED_AT_ONCE > before // _FLUSHED_AT_ONCE:
            self._flush_meanwhile()

    def _begin_shard(self) -> None:
        if self.finished_left:
            raise DataError(f"{self.path}: finished shards must be kept or dropped before new ones are written")
        for file, end in zip(self._growing, self._ends_at(self._written), strict=True):
            file.seek(end)
            file.truncate()  # an unfinished shard may have left more
        self._in_shard = True
        self._shard_text = 0

    def _end_shard(self) -> None:
        with self._clear_errors():
            for file in self._growing:
                file.flush()
            line = self._written.mark()
            self._journal.seek(0, os.SEEK_END)
            self._journal.write(_line(line))
            self._journal.flush()
        self._in_shard = False
        # In this order: to whoever reads documents in another thread, this shard is at no time one left from before.
        self._kept += 1
        self.finished.append(line)
        self._flush_meanwhile()

    def _flush_meanwhile(self) -> None:
        """Have the disk take what there is, so that it is not waited for at the end alone."""
        if self._flushing is None or self._flushing.done():
            with self._clear_errors():
                self._wait_for_flush()
                self._growing[0].flush()
                self._flushing = self._flusher.submit(_to_disk, self._growing[0].fileno())

    def _wait_for_flush(self) -> None:
        """The system tells a failure once, so it must not be lost."""
        if self._flushing is not None:
            self._flushing.result()

    def _ends_at(self, place: Written | Mark) -> tuple[int, int, int]:
        """Where `ids`, `ends` and `sizes` end there, in bytes."""
        ids = len(header_of(self._metadata)) + place.n_tokens * id_dtype(self._metadata.vocab_size).itemsize
        return ids, 8 * place.n_documents, 8 * place.n_documents

    def finish(self) -> None:
        """Complete the file and give it its final name.

        Raises:
            DataError: the disk is full; run again, this goes on where it stopped.
        """
        if self._in_shard:
            self._end_shard()
        ids, *index = self._growing
        with self._clear_errors():
            complete(ids, index, self.metadata)
            self._wait_for_flush()
            os.fsync(ids.fileno())
            ids.close()
            ordinary_mode(self.folder / "ids")
            os.replace(self.folder / "ids", self.path)
            flush_folder(self.path.parent)
            self._done = True
            shutil.rmtree(self.folder, ignore_errors=True)

    def _clear_errors(self) -> contextlib.AbstractContextManager[None]:
        return clear_errors(self.path, " and run the same command again, which goes on from the finished shards")


def discard_unfinished(path: StrPath) -> None:
    """Remove what an unfinished making of an id file has left, if no run is at it.

    Raises:
        DataError: another run is writing that file.
    """
    folder = unfinished_folder(path)
    if folder.is_dir():
        with _locked(folder, Path(path)):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, path: Path) -> Iterator[None]:
    """Hold a folder against other runs; a run that is killed lets go."""
    with open(folder / "lock", "ab") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not a Unix: two runs at once are the user's to avoid
            pass
        except BlockingIOError:
            raise DataError(
                f"{path} is being written by another run; wait for it or end it, or choose another folder"
            ) from None
        yield


def _read_plan(folder: Path) -> dict[str, Any] | None:
    try:
        plan = json.loads((folder / "plan.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(plan, dict) or plan.pop("sha256", None) != _plan_digest(plan):
        return None
    return plan if plan.get("format") == _FORMAT else None


def _plan_digest(plan: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode("utf-8")).hexdigest()


def _comparable(plan: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in plan["metadata"].items() if key not in _MAY_DIFFER}
    return {**plan, "metadata": metadata, "sha256": ""}


def _line(finished: Mark) -> bytes:
    return json.dumps(dataclasses.asdict(finished)).encode("ascii") + b"\n"
