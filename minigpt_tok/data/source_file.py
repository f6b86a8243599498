"""A file that is read, unpacked on the way where its name ends in `.gz` or `.zst`, and watched meanwhile.

A corpus may be read several times (once for each split, to verify, to go on after a kill), and its splits by hash hold
only if the text is the same each time. So a file that vanishes, or is another than at the first reading, is an error.
"""

import contextlib
import gzip
import io
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from minigpt_tok.errors import CorpusError, MissingDependencyError
from minigpt_tok.files import StrPath

COMPRESSED_SUFFIXES = (".gz", ".zst")
_CHUNK = 1 << 16  # bytes that are unpacked at a time
_BUFFER = 1 << 20  # bytes, unpacked
_SPOOLED = 1 << 24  # bytes that are kept in memory, not in a temporary file, where a reader must jump


class _Stamp(NamedTuple):
    """What tells that a file is another: its number, size and time of change."""

    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> "_Stamp":
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class SourceFile:
    """One file of a corpus."""

    def __init__(self, path: StrPath) -> None:
        self.mark_said = False  # that it begins with a byte order mark, which is said once
        self.path = Path(path)
        self._first: _Stamp | None = None

    @property
    def compression(self) -> str | None:
        """`.gz`, `.zst` or `None`, by the name."""
        suffix = self.path.suffix.lower()
        return suffix if suffix in COMPRESSED_SUFFIXES else None

    @property
    def kind(self) -> str:
        """The suffix that says what is inside: `.txt`, `.jsonl`, …; in lower case, that of compression apart."""
        return Path(self.path.stem).suffix.lower() if self.compression else self.path.suffix.lower()

    @property
    def stem(self) -> str:
        """The name without these suffixes."""
        stem = self.path.stem
        return Path(stem).stem if self.compression else stem

    @property
    def size_bytes(self) -> int | None:
        """Of what is inside; `None` where that is packed."""
        return None if self.compression else self.path.stat().st_size

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """What is inside, from its beginning, for reading once.

        Raises:
            CorpusError: the file is gone, was changed since it was first read or meanwhile, or is a damaged archive.
            MissingDependencyError: it needs a library that is not installed.
        """
        with self._open() as file, self._clear_errors(), self._unpacked(file) as unpacked:
            yield unpacked

    @contextlib.contextmanager
    def open_to_jump(self) -> Iterator[IO[bytes]]:
        """As `open`, for readers that jump about: what is packed is unpacked into a temporary file first."""
        with self.open() as file:
            if self.compression is None:
                yield file
                return
            with tempfile.SpooledTemporaryFile(_SPOOLED) as unpacked:
                while chunk := file.read(_BUFFER):
                    unpacked.write(chunk)
                unpacked.seek(0)
                yield unpacked

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        try:
            file = open(self.path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            raise CorpusError(f"{self.path}: no such file; was it moved while it was read?") from None
        with file:
            self._check(_Stamp.of(os.fstat(file.fileno())))
            yield file
            try:
                self._check(_Stamp.of(os.stat(self.path)))
            except FileNotFoundError:
                raise CorpusError(f"{self.path}: vanished while it was read; put it back, and start again") from None

    def _check(self, stamp: _Stamp) -> None:
        self._first = self._first or stamp
        if stamp != self._first:
            raise CorpusError(
                f"{self.path}: changed while it was in use ({self._first.size:,} bytes at first, {stamp.size:,} now). Splits "
                "and counts hold for one text only: leave the file alone, and start again"
            )

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        damaged: tuple[type[BaseException], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
        if self.compression == ".zst":
            damaged = (EOFError, _zstandard(self.path).ZstdError)
        try:
            yield
        except damaged as error:
            if self.compression is None:
                raise
            raise CorpusError(
                f"{self.path}: damaged or cut short, it cannot be unpacked to its end ({error}); fetch or pack it again"
            ) from None

    @contextlib.contextmanager
    def _unpacked(self, file: IO[bytes]) -> Iterator[IO[bytes]]:
        if self.compression == ".gz":
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked  # type: ignore[misc]
        elif self.compression == ".zst":
            with io.BufferedReader(_Unzstd(file, self.path), _BUFFER) as buffered:
                yield buffered
        else:
            yield file

    def __repr__(self) -> str:
        return f"<SourceFile {self.path}>"


class _Unzstd(io.RawIOBase):
    """The bytes in a `.zst` file, frame after frame; says where it was cut short, which `zstandard`'s reader does not."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._context = _zstandard(path).ZstdDecompressor(max_window_size=1 << 31)
        self._frame: Any = None
        self._packed = b""
        self._out = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._out:
            self._packed = self._packed or self._file.read(_CHUNK)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("it ends within a frame")
                return 0
            self._frame = self._frame or self._context.decompressobj()
            self._out = memoryview(self._frame.decompress(self._packed))
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._out))
        buffer[:count] = self._out[:count]
        self._out = self._out[count:]
        return count


def _zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingDependencyError(
            f"{path} is read with zstandard, which is not installed: pip install zstandard, or unpack it: zstd -d {path}"
        ) from None
    return zstandard
