"""Writing id files: `IdFileWriter` for ids at hand, and what it shares with `shards.Shards`, by which corpora are encoded."""

import contextlib
import copy
import dataclasses
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data.documents import TextHash
from minigpt_tok.data.id_format import IdFileMetadata, header_of, id_dtype, tensors_of
from minigpt_tok.errors import DataError
from minigpt_tok.files import StrPath, lacks_room, writing

_AT_ONCE = 1 << 20  # bytes


class IdFileWriter:
    """Writes an id file of any size in bounded memory: `with IdFileWriter(path, metadata) as file: file.write(...)`.

    For ids at hand; `encode_corpus` writes through `shards.Shards`, which can go on after a kill. The file grows under a
    temporary name in the same folder, its document index beside it in unnamed files; when the block ends well, the index
    is appended and the file renamed. If it does not, nothing is left.
    """

    def __init__(self, path: StrPath, metadata: IdFileMetadata) -> None:
        """`metadata`: what is known beforehand; counts and hashes are filled in at the end."""
        self.path = Path(path)
        self._metadata = metadata
        self._written = Written(metadata.vocab_size)
        self._files = contextlib.ExitStack()

    @property
    def metadata(self) -> IdFileMetadata:
        """With the counts and hashes of what has been written."""
        return self._written.filled_in(self._metadata)

    def __enter__(self) -> "IdFileWriter":
        with self._clear_errors(), contextlib.ExitStack() as files:
            self._ids = files.enter_context(writing(self.path))
            self._ids.seek(len(header_of(self._metadata)))
            self._index = [files.enter_context(tempfile.TemporaryFile(dir=self.path.parent)) for _ in range(2)]
            self._files = files.pop_all()
        return self

    def write(self, ids: np.ndarray, lengths: np.ndarray, texts: Sequence[bytes]) -> None:
        """Add documents.

        Args:
            ids: `(n,)` integers, the documents one after the other, separators included.
            lengths: `(n_documents,)`, how many ids each has, separator included.
            texts: `n_documents` texts in UTF-8.

        Raises:
            DataError: an id outside the vocabulary, or numbers that do not fit together; or the disk is full.
        """
        check_batch(self.path, self._metadata.vocab_size, ids, lengths, texts)
        added = self._written.add(ids, lengths, Texts.of(texts))
        with self._clear_errors():
            for file, raw in zip((self._ids, *self._index), added, strict=True):
                file.write(raw)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            with self._clear_errors(), self._files:
                complete(self._ids, self._index, self.metadata)
        else:
            with contextlib.suppress(OSError):  # a full disk has been said; closing would say it again
                self._files.__exit__(kind, error, trace)

    def _clear_errors(self) -> contextlib.AbstractContextManager[None]:
        return clear_errors(self.path)


class Written:
    """What an id file holds so far: its counts, and the hashes of all in it.

    Attributes:
        n_tokens, n_documents, n_bytes: as in `IdFileMetadata`.
        ids_hash: of the ids' bytes.
        ends_hash: of the bytes of `document_ends`.
        text_hash: of the documents; that of their sizes is also the hash of the bytes of `document_bytes`.
    """

    def __init__(self, vocab_size: int) -> None:
        self._dtype = id_dtype(vocab_size)
        self.n_tokens = self.n_documents = self.n_bytes = 0
        self.ids_hash, self.ends_hash = hashlib.sha256(), hashlib.sha256()
        self.text_hash = TextHash()

    def add(self, ids: np.ndarray, lengths: np.ndarray, texts: Texts) -> tuple[memoryview, memoryview, memoryview]:
        """Add documents, as `IdFileWriter.write`: what to write of `ids`, `document_ends` and `document_bytes`."""
        raw = np.ascontiguousarray(ids, dtype=self._dtype).data
        ends = np.cumsum(lengths, dtype="<i8")
        ends += self.n_tokens
        self.ids_hash.update(raw)
        self.ends_hash.update(ends.data)
        self.n_tokens += len(ids)
        return raw, ends.data, self.add_texts(texts).data

    def add_texts(self, texts: Texts) -> np.ndarray:
        """Add of documents the texts alone; their sizes, int64 `(n_documents,)`, in bytes."""
        self.text_hash.update(texts)
        self.n_documents += len(texts)
        self.n_bytes += texts.n_bytes
        return texts.little_endian_sizes

    def copy(self) -> "Written":
        """Another that goes its own way from here."""
        other = copy.copy(self)
        other.ids_hash, other.ends_hash = self.ids_hash.copy(), self.ends_hash.copy()
        other.text_hash = self.text_hash.copy()
        return other

    def mark(self) -> "Mark":
        """Where everything stands now."""
        return Mark(
            n_tokens=self.n_tokens,
            n_documents=self.n_documents,
            n_bytes=self.n_bytes,
            ids_sha256=self.ids_hash.hexdigest(),
            ends_sha256=self.ends_hash.hexdigest(),
            bytes_sha256=self.text_hash.of_bytes.hexdigest(),
            sizes_sha256=self.text_hash.of_sizes.hexdigest(),
        )

    def filled_in(self, metadata: IdFileMetadata) -> IdFileMetadata:
        """The metadata of an id file that ends here."""
        return dataclasses.replace(
            metadata,
            n_tokens=self.n_tokens,
            n_documents=self.n_documents,
            n_bytes=self.n_bytes,
            ids_sha256=self.ids_hash.hexdigest(),
            text_sha256=self.text_hash.hexdigest(),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """A place in an id file, between two documents: the counts and hashes of all before it."""

    n_tokens: int
    n_documents: int
    n_bytes: int
    ids_sha256: str
    ends_sha256: str
    bytes_sha256: str
    sizes_sha256: str


def complete(file: IO[bytes], index: Iterable[IO[bytes]], metadata: IdFileMetadata) -> None:
    """Make an id file of one that has its ids in their place: append padding and index, and put the header before all.

    What stood behind the ids before goes. `index`: files that begin with `document_ends` and `document_bytes`.
    """
    header, tensors = header_of(metadata), tensors_of(metadata)
    sizes = {name: length * np.dtype(dtype).itemsize for name, (dtype, length) in tensors.items()}
    file.seek(len(header) + sizes["ids"])
    file.truncate()
    file.write(bytes(sizes["padding"]))
    for part in index:
        part.seek(0)
        for raw in pieces(part, sizes["document_ends"]):
            file.write(raw)
    file.seek(0)
    file.write(header)
    file.flush()


def pieces(file: IO[bytes], length: int) -> Iterator[bytes]:
    """The next `length` bytes of a file."""
    while length > 0:
        raw = file.read(min(length, _AT_ONCE))
        if not raw:
            raise OSError(f"{file.name} is shorter than it was")
        length -= len(raw)
        yield raw


@contextlib.contextmanager
def clear_errors(path: Path, remedy: str = "") -> Iterator[None]:
    """Say of the system's refusals which file they keep from being written, and besides `remedy` what to do.

    Raises:
        DataError: for any `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path}: could not be written ({error.strerror or error}); nothing was left under that name. "
            f"{'Free some space' if lacks_room(error) else 'See to that'}{remedy}, or choose another folder"
        ) from error


def check_batch(path: Path, vocab_size: int, ids: np.ndarray, lengths: np.ndarray, texts: Sequence[bytes]) -> None:
    """Refuse documents that do not belong into an id file; the arguments are those of `IdFileWriter.write`.

    Raises:
        DataError: an id outside the vocabulary, or numbers that do not fit together.
    """
    if len(ids) and not ((ids.dtype.kind == "u" or int(ids.min()) >= 0) and int(ids.max()) < vocab_size):
        wrong = ids[(ids < 0) | (ids >= vocab_size)]
        raise DataError(
            f"{path}: id {int(wrong[0])} is outside the vocabulary of {vocab_size:,} ids; these ids are of another "
            "tokenizer"
        )
    if int(lengths.sum()) != len(ids) or len(texts) != len(lengths):
        raise DataError(
            f"{path}: {len(ids):,} ids, but documents of {int(lengths.sum()):,}; {len(lengths):,} lengths, {len(texts):,} "
            "texts"
        )


def write_id_file(
    path: StrPath,
    documents: Iterator[tuple[str, np.ndarray]] | list[tuple[str, np.ndarray]],
    metadata: IdFileMetadata,
) -> IdFileMetadata:
    """Write (text, ids with the separator) pairs; for a corpus, `encode_corpus` is the way."""
    with IdFileWriter(path, metadata) as file:
        for text, ids in documents:
            file.write(np.asarray(ids), np.array([len(ids)]), [text.encode("utf-8")])
    return file.metadata
