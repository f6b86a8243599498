"""An id file in the making: numbered shards in a hidden folder beside it, from which a killed run goes on.

`train.safetensors` is made in `.train.unfinished/`:

| file | holds |
| --- | --- |
| `plan.json` | what is being made: the id file's metadata, and the size of a shard |
| `000000.ids`, … | the ids of the shards, as they will stand in the id file |
| `ends`, `sizes` | `document_ends` and `document_bytes` of all documents so far |
| `journal` | a line for each finished shard, written last |
| `whole` | the id file, while the shards are laid together |
| `lock` | held by the run that writes; the system lets go of it when that run dies |

A shard ends with the document that brings its text to `SHARD_BYTES`, so where shards begin depends on the text alone.
A line of the journal says what the id file would hash to if it ended there: its ids, its documents, its text. Hence one
pass of each hash serves the shards and the file, and whoever goes on verifies all of a finished shard, its text
included.

Laying together copies one shard at a time behind the others (inside the kernel, where it can) and removes it. So the
disk holds the ids once, and one shard twice. A run that is killed here goes on here.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data.documents import TextHash
from minigpt_tok.data.id_file import IdFileMetadata, check_batch, header_of, id_dtype, read_layout
from minigpt_tok.errors import DataError, FormatError
from minigpt_tok.files import StrPath, flush_folder, lacks_room, ordinary_mode, write_text

log = logging.getLogger(__name__)

SHARD_BYTES = 64 << 20  # of text: what is done again after a kill, at most
_FORMAT = "minigpt-tok unfinished ids"
_VERSION = 1
_AT_ONCE = 1 << 24  # bytes
_COUNTED = ("n_tokens", "n_documents", "n_bytes", "ids_sha256", "text_sha256")  # in the metadata, known at the end
_MAY_DIFFER = ("command",)  # from one run to the next; that of the first is kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """A line of the journal: everything up to the end of a shard."""

    n_tokens: int
    n_documents: int
    n_bytes: int
    ids_sha256: str
    text_sha256: str
    ends_sha256: str
    sizes_sha256: str


_NOTHING = Finished(
    n_tokens=0, n_documents=0, n_bytes=0, ids_sha256="", text_sha256="", ends_sha256="", sizes_sha256=""
)


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
        self._dtype = id_dtype(metadata.vocab_size)
        self._files = contextlib.ExitStack()
        self.finished: list[Finished] = []
        self._kept = 0  # of `finished`
        self._done = False
        self._at = _NOTHING  # written so far; its hashes are in the hashers
        self._ids_hash, self._ends_hash, self._sizes_hash = (hashlib.sha256() for _ in range(3))
        self._text_hash = TextHash()
        self._shard: IO[bytes] | None = None
        self._shard_text = 0  # bytes

    @property
    def metadata(self) -> IdFileMetadata:
        """With the counts and hashes of what has been kept and written."""
        return dataclasses.replace(
            self._metadata,
            n_tokens=self._at.n_tokens,
            n_documents=self._at.n_documents,
            n_bytes=self._at.n_bytes,
            ids_sha256=self._ids_hash.hexdigest(),
            text_sha256=self._text_hash.hexdigest(),
        )

    @property
    def n_bytes(self) -> int:
        """Of the text that has been kept and written."""
        return self._at.n_bytes

    def __enter__(self) -> "Shards":
        with self._clear_errors(), contextlib.ExitStack() as files:
            self.folder.mkdir(parents=True, exist_ok=True)
            files.enter_context(_locked(self.folder, self.path))
            try:
                self._resume()
                self._ends, self._sizes, self._journal = (
                    files.enter_context(open(self.folder / name, "r+b" if self.finished else "w+b"))
                    for name in ("ends", "sizes", "journal")
                )
                self._cut_journal()  # without a torn line at its end
            except BaseException:
                self._clear_if_empty()
                raise
            self._files = files.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._files:
            if self._shard is not None:
                with contextlib.suppress(OSError):
                    self._shard.close()
                with contextlib.suppress(OSError):
                    os.unlink(self._shard.name)
            for file in (self._ends, self._sizes, self._journal):
                with contextlib.suppress(OSError):  # the full disk has been said; closing would say it again
                    file.close()
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
            if not all((self.folder / name).exists() for name in ("ends", "sizes")):
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
        known = {key: value for key, value in self._metadata.to_strings().items() if key not in _COUNTED}
        plan = {"format": _FORMAT, "version": _VERSION, "shard_bytes": self.shard_bytes, "metadata": known}
        return {**plan, "sha256": _plan_digest(plan)}

    def _read_journal(self) -> list[Finished]:
        """Its whole lines; the last may be torn."""
        lines = []
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            for line in (self.folder / "journal").read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                lines.append(Finished(**json.loads(line)))
        return lines

    def keep(self, batches: Iterable[Texts]) -> bool:
        """Keep the next finished shard, if it is of this text and whole; else drop it and all that follow.

        `batches` are the texts of the shard, read again, in UTF-8.
        """
        wanted = self.finished[self._kept]
        text_hash = self._text_hash.copy()
        for texts in batches:
            text_hash.update(texts)
        same = text_hash.hexdigest() == wanted.text_sha256
        if not same:
            log.warning("%s: the text is another from shard %d on, which is encoded again", self.path, self._kept)
        with self._clear_errors():
            if same and self._is_whole(wanted):
                self._text_hash = text_hash
                self._at = wanted
                self._kept += 1
                return True
            self._drop()
        return False

    def _is_whole(self, wanted: Finished) -> bool:
        hashes = ids_hash, ends_hash, sizes_hash = (
            self._ids_hash.copy(),
            self._ends_hash.copy(),
            self._sizes_hash.copy(),
        )
        try:
            with self._stored_ids(self._kept) as (file, length):
                for raw in _pieces(file, length):
                    ids_hash.update(raw)
            first, count = 8 * self._at.n_documents, 8 * (wanted.n_documents - self._at.n_documents)
            for file, digest in ((self._ends, ends_hash), (self._sizes, sizes_hash)):
                file.seek(first)
                for raw in _pieces(file, count):
                    digest.update(raw)
        except (OSError, FormatError) as error:
            log.warning("%s: shard %d cannot be read and is encoded again (%s)", self.path, self._kept, error)
            return False
        if [digest.hexdigest() for digest in hashes] != [wanted.ids_sha256, wanted.ends_sha256, wanted.sizes_sha256]:
            log.warning("%s: shard %d is damaged and is encoded again", self.path, self._kept)
            return False
        self._ids_hash, self._ends_hash, self._sizes_hash = hashes
        return True

    @contextlib.contextmanager
    def _stored_ids(self, number: int) -> Iterator[tuple[IO[bytes], int]]:
        """(a file at the ids of a finished shard, their length in bytes): its own, or the whole that it went into."""
        before = self.finished[number - 1].n_tokens if number else 0
        length = (self.finished[number].n_tokens - before) * self._dtype.itemsize
        own = self._ids_path(number)
        if own.exists():
            with open(own, "rb") as file:
                yield file, length
        else:
            start = read_layout(self.folder / "whole")
            with open(self.folder / "whole", "rb") as file:
                file.seek(start + before * self._dtype.itemsize)
                yield file, length

    def drop_rest(self) -> None:
        """Drop the finished shards that have not been kept: the text has ended before them."""
        if self.finished_left:
            with self._clear_errors():
                self._drop()

    def _drop(self) -> None:
        self._take_apart()
        for number in range(self._kept, len(self.finished)):
            self._ids_path(number).unlink(missing_ok=True)
        del self.finished[self._kept :]
        self._cut_journal()

    def _cut_journal(self) -> None:
        self._journal.truncate(sum(len(_line(line)) for line in self.finished))

    def _take_apart(self) -> None:
        """Move the shards that were kept from the whole that was begun into files of their own again, the last first."""
        whole = self.folder / "whole"
        if not whole.exists():
            return
        for number in reversed(range(self._kept)):
            if self._ids_path(number).exists():
                continue
            partial = self.folder / "moving"
            with self._stored_ids(number) as (file, length), open(partial, "wb") as out:
                at = file.tell()
                _copy(file, out, length)
            os.replace(partial, self._ids_path(number))
            os.truncate(whole, at)
        whole.unlink()

    # Writing

    def write(self, ids: np.ndarray, lengths: np.ndarray, texts: Texts) -> None:
        """Add documents, as `IdFileWriter.write`. A shard must not end inside them."""
        check_batch(self.path, self._metadata.vocab_size, ids, lengths, texts)
        raw = np.ascontiguousarray(ids, dtype=self._dtype).data
        ends = (self._at.n_tokens + np.cumsum(lengths, dtype="<i8")).tobytes()
        sizes = texts.sizes.astype("<i8", copy=False)
        n_bytes = int(sizes.sum())
        with self._clear_errors():
            if self._shard is None:
                self._begin_shard()
            assert self._shard is not None
            self._shard.write(raw)
            self._ends.write(ends)
            self._sizes.write(sizes.data)
        self._ids_hash.update(raw)
        self._text_hash.update(texts)
        self._ends_hash.update(ends)
        self._sizes_hash.update(sizes.data)
        self._at = dataclasses.replace(
            self._at,
            n_tokens=self._at.n_tokens + len(ids),
            n_documents=self._at.n_documents + len(lengths),
            n_bytes=self._at.n_bytes + n_bytes,
        )
        self._shard_text += n_bytes
        if self._shard_text >= self.shard_bytes:
            self._end_shard()

    def _begin_shard(self) -> None:
        if self.finished_left:
            raise DataError(f"{self.path}: finished shards must be kept or dropped before new ones are written")
        self._take_apart()
        self._shard = open(self.folder / "writing", "wb")  # noqa: SIM115  # renamed when it is finished
        for file in (self._ends, self._sizes):  # an unfinished shard may have left more
            file.seek(8 * self._at.n_documents)
            file.truncate()
        self._shard_text = 0

    def _end_shard(self) -> None:
        assert self._shard is not None
        with self._clear_errors():
            for file in (self._shard, self._ends, self._sizes):
                file.flush()
            self._shard.close()
            os.replace(self._shard.name, self._ids_path(len(self.finished)))
            self._shard = None
            line = dataclasses.replace(
                self._at,
                ids_sha256=self._ids_hash.hexdigest(),
                text_sha256=self._text_hash.hexdigest(),
                ends_sha256=self._ends_hash.hexdigest(),
                sizes_sha256=self._sizes_hash.hexdigest(),
            )
            self._journal.seek(0, os.SEEK_END)
            self._journal.write(_line(line))
            self._journal.flush()
        # In this order: to whoever reads documents in another thread, this shard is at no time one left from before.
        self._kept += 1
        self.finished.append(line)

    def _ids_path(self, number: int) -> Path:
        return self.folder / f"{number:06}.ids"

    def finish(self) -> None:
        """Lay the shards together under the final name. The shards are gone then.

        Raises:
            DataError: the disk is full; run again, this goes on where it stopped.
        """
        if self._shard is not None:
            self._end_shard()
        whole = self.folder / "whole"
        with self._clear_errors():
            self._clear_torn_whole(whole)
            with open(whole, "r+b" if whole.exists() else "w+b") as out:
                out.write(header_of(self.metadata))
                for part in (self._ends, self._sizes):
                    part.seek(0)
                    _copy(part, out, 8 * self._at.n_documents)
                start = out.tell()
                for number in range(len(self.finished)):
                    before = self.finished[number - 1].n_tokens if number else 0
                    if self._ids_path(number).exists():
                        out.seek(start + before * self._dtype.itemsize)
                        with self._stored_ids(number) as (file, length):
                            _copy(file, out, length)
                        self._ids_path(number).unlink()
                out.truncate(start + self._at.n_tokens * self._dtype.itemsize)
                out.flush()
                os.fsync(out.fileno())
            ordinary_mode(whole)
            os.replace(whole, self.path)
            flush_folder(self.path.parent)
            self._done = True
            shutil.rmtree(self.folder, ignore_errors=True)

    def _clear_torn_whole(self, whole: Path) -> None:
        """A whole that no shard has gone into yet may have half a header."""
        if whole.exists() and all(self._ids_path(number).exists() for number in range(len(self.finished))):
            whole.unlink()

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"{self.path}: could not be written ({error.strerror or error}); nothing was left under that name. "
                f"{'Free some space' if lacks_room(error) else 'See to that'} and run the same command again, which goes "
                "on from the finished shards, or choose another folder"
            ) from error


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


def _line(finished: Finished) -> bytes:
    return json.dumps(dataclasses.asdict(finished)).encode("ascii") + b"\n"


def _pieces(file: IO[bytes], length: int) -> Iterator[bytes]:
    """The next `length` bytes of a file."""
    while length:
        raw = file.read(min(length, _AT_ONCE))
        if not raw:
            raise OSError(f"{file.name} is shorter than it was")
        length -= len(raw)
        yield raw


def _copy(source: IO[bytes], target: IO[bytes], length: int) -> None:
    """The next `length` bytes of `source` to where `target` is: inside the kernel where that is possible."""
    source.flush()
    target.flush()
    done = 0
    if hasattr(os, "copy_file_range"):
        read, write = source.tell(), target.tell()
        with contextlib.suppress(OSError):  # not between these file systems: then as everywhere
            while done < length:
                now = os.copy_file_range(
                    source.fileno(), target.fileno(), min(length - done, _AT_ONCE), read + done, write + done
                )
                if now == 0:
                    break
                done += now
        source.seek(read + done)
        target.seek(write + done)
    for raw in _pieces(source, length - done):
        target.write(raw)
