"""Files that appear under their final name only when they are whole, and reads that are bounded."""

import contextlib
import errno
import hashlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from minigpt_tok.errors import CorpusError, FormatError

StrPath = str | os.PathLike[str]


@contextlib.contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """Give a temporary path in the same folder; when the block ends well, flush that file and rename it to `path`.

    Missing folders are made. A device or a pipe is never replaced. If the block raises (a full disk, Ctrl-C), the
    temporary file is removed and whatever stood at `path` before still stands there. The file's name ends as `path`
    does, for writers that look at it.

    Raises:
        FileExistsError: `path` is a device or a pipe.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():  # of a folder, the system says so
        raise FileExistsError(errno.EEXIST, "a device or a pipe, which a file must not replace", str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=f".partial{target.suffix}", dir=target.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        ordinary_mode(temporary)  # mkstemp makes files that only their owner can read
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(target.parent)


@contextlib.contextmanager
def writing(path: StrPath) -> Iterator[IO[bytes]]:
    """Open `path` for binary writing through `replacing`: whole or not there at all."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        yield file


def write_text(path: StrPath, text: str) -> None:
    """Write `text` as UTF-8 with newlines as they are, whole or not at all."""
    with writing(path) as file:
        file.write(text.encode("utf-8"))


def read_text(path: StrPath, *, limit: int, what: str) -> str:
    """Read a UTF-8 file of at most `limit` bytes; `what` names it in the errors.

    Raises:
        FormatError: the file is larger than `limit` or not UTF-8 (with the byte offset).
    """
    raw = read_bytes(path, limit=limit, what=what)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 at byte {error.start:,}, so not {what}") from None


def read_bytes(path: StrPath, *, limit: int, what: str) -> bytes:
    """Read a file of at most `limit` bytes; `what` names it in the error. A larger one is not read at all.

    Raises:
        FormatError: the file is larger than `limit`.
    """
    with open(path, "rb") as file:
        raw = file.read(limit + 1) if (size := os.fstat(file.fileno()).st_size) <= limit else b""
    if max(size, len(raw)) > limit:
        raise FormatError(f"{path}: larger than {limit:,} bytes, the most that is read as {what}")
    return raw


class MappedText:
    """A UTF-8 file that is one text: mapped into memory, not read, for those who can work on its bytes."""

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)

    @property
    def size(self) -> int:
        """In bytes."""
        return self.path.stat().st_size

    @contextlib.contextmanager
    def view(self) -> Iterator[memoryview]:
        """The file's bytes, as they lie in the file."""
        with open(self.path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:  # of which no map can be made
                yield memoryview(b"")
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                yield view

    def read(self) -> str:
        """The text.

        Raises:
            CorpusError: it is not UTF-8.
        """
        try:
            return self.path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.not_utf8(error.start) from None

    def not_utf8(self, offset: int) -> CorpusError:
        """What to raise where the byte at `offset` is none of UTF-8."""
        return CorpusError(
            f"{self.path}: not UTF-8 at byte {offset:,}; convert the file, or read it with errors='replace' or "
            "errors='ignore', which count such places"
        )


def lacks_room(error: OSError) -> bool:
    """Whether the disk is full, a quota used up, or a file larger than the system lets it be."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sha256_of(path: StrPath) -> str:
    """SHA-256 of a file's bytes, in lower-case hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ordinary_mode(path: Path) -> None:
    """Give a file the mode that files get by default."""
    path.chmod(0o666 & ~_umask())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def flush_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened (not on Windows)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
