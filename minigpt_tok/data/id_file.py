"""Id files: one split of a corpus as token ids, in the safetensors format, bound to its tokenizer by fingerprint.

| tensor | dtype, shape | meaning |
| --- | --- | --- |
| `document_ends` | int64 `(n_documents,)` | end of each document in `ids`, exclusive, its separator included |
| `document_bytes` | int64 `(n_documents,)` | UTF-8 bytes of each document's text, separators not counted |
| `ids` | uint16 (up to 65,536 ids in the vocabulary) or uint32 `(n_tokens,)` | the documents one after the other |

All else is metadata (`IdFileMetadata`). Numbers are little-endian. The int64 tensors come first, so that all are
aligned in a memory map. `safetensors` reads these files; we read them ourselves, since it would copy, not map.

Opening a file checks its header, its length and its document index; `IdFile.verify` also reads and hashes the ids.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from minigpt_tok._version import __version__
from minigpt_tok.amounts import counted
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data.documents import TextHash
from minigpt_tok.errors import DataError, FormatError
from minigpt_tok.files import StrPath, lacks_room, writing

FORMAT = "minigpt-tok ids"
FORMAT_VERSION = 1
_HEADER_LIMIT = 1 << 20  # bytes; ours have about one thousand
_AT_ONCE = 1 << 22  # elements that checks and hashes look at in one step
_DTYPES = {"I64": "<i8", "U16": "<u2", "U32": "<u4"}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def id_dtype(vocab_size: int) -> np.dtype[Any]:
    """What ids are kept in: `uint16` for up to 65,536 ids, else `uint32`, little-endian."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


@dataclasses.dataclass(frozen=True, kw_only=True)
class IdFileMetadata:
    """What an id file says of itself. In the file all values are strings.

    Attributes:
        tokenizer_fingerprint: SHA-256 of the tokenizer that made the ids.
        tokenizer_fingerprint_version: of the fingerprint's definition.
        vocab_size: ids are below it.
        corpus, split: where the text came from.
        separator: the special token after each document, or `""` where there is none.
        separator_id: its id, or `None`.
        n_tokens: ids, separators included.
        n_documents: documents.
        n_bytes: UTF-8 bytes of their texts.
        ids_sha256: of the ids' bytes as they are in the file.
        text_sha256: of the documents' text, so that the same text is known again; see `documents.TextHash`.
        command: what wrote the file.
        package_version: of this package, then.
    """

    tokenizer_fingerprint: str
    tokenizer_fingerprint_version: int
    vocab_size: int
    corpus: str
    split: str
    separator: str = ""
    separator_id: int | None = None
    n_tokens: int = 0
    n_documents: int = 0
    n_bytes: int = 0
    ids_sha256: str = ""
    text_sha256: str = ""
    command: str = ""
    package_version: str = __version__

    def to_strings(self) -> dict[str, str]:
        """As the file's `__metadata__`."""
        values = {key: "" if value is None else str(value) for key, value in dataclasses.asdict(self).items()}
        return {"format": FORMAT, "format_version": str(FORMAT_VERSION), **values}

    @classmethod
    def from_strings(cls, strings: dict[str, str], path: StrPath) -> "IdFileMetadata":
        """Back from `__metadata__`.

        Raises:
            FormatError: not an id file, one of another version, or a value that is missing or no number.
        """
        if strings.get("format") != FORMAT:
            raise FormatError(
                f"{path}: a safetensors file, but no id file of this package (its metadata do not say so)"
            )
        if strings.get("format_version") != str(FORMAT_VERSION):
            raise FormatError(
                f"{path}: id file version {strings.get('format_version')}, and this package ({__version__}) reads "
                f"{FORMAT_VERSION}; encode the corpus again, or use the version that wrote it "
                f"({strings.get('package_version')})"
            )
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = strings.get(field.name)
            if text is None:
                raise FormatError(f"{path}: damaged, its metadata lack {field.name}")
            values[field.name] = text
            if field.type in (int, int | None):
                values[field.name] = _number(text, field.name, path) if text or field.type is int else None
        return cls(**values)


def _number(text: str, name: str, path: StrPath) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"{path}: damaged, its {name} is {text[:40]!r}, not a number")
    return int(text)


def read_metadata(path: StrPath) -> IdFileMetadata:
    """What a file says of itself, though the rest of it may be damaged or cut short.

    Raises:
        FormatError: it is no id file.
    """
    return _metadata_of(_read_header(Path(path), os.path.getsize(path))[0], Path(path))


class IdFile:
    """An id file, memory-mapped: nothing is loaded until it is looked at. Pickles by its path (spawned workers reopen it).

    Attributes:
        path: where it is.
        metadata: what it says of itself.
        ids: uint16 or uint32 `(n_tokens,)`, read-only.
        document_ends: int64 `(n_documents,)`, read-only; document n is `ids[document_ends[n - 1]:document_ends[n]]`.
        document_bytes: int64 `(n_documents,)`, read-only, in bytes.
    """

    def __init__(self, path: StrPath) -> None:
        """Open and check a file.

        Raises:
            FormatError: it is not a whole id file; the message says what is wrong.
            FileNotFoundError: there is no such file.
        """
        self.path = Path(path).absolute()
        self._open()
        self._check_documents()

    def _open(self) -> None:
        size = os.path.getsize(self.path)
        header, start = _read_header(self.path, size)
        self.metadata = _metadata_of(header, self.path)
        shapes = {
            "ids": (id_dtype(self.metadata.vocab_size).str, self.metadata.n_tokens),
            "document_ends": ("<i8", self.metadata.n_documents),
            "document_bytes": ("<i8", self.metadata.n_documents),
        }
        offsets = _check_tensors(header, shapes, size - start, self.path)
        raw = np.memmap(self.path, dtype=np.uint8, mode="r") if size > start else np.empty(0, dtype=np.uint8)
        arrays = {
            name: np.asarray(
                raw[start + offsets[name] : start + offsets[name] + length * np.dtype(dtype).itemsize]
            ).view(dtype)
            for name, (dtype, length) in shapes.items()
        }
        self.ids, self.document_ends, self.document_bytes = (
            arrays["ids"],
            arrays["document_ends"],
            arrays["document_bytes"],
        )

    def _check_documents(self) -> None:
        last = total = 0
        for part in _parts(len(self.document_ends)):
            ends, sizes = self.document_ends[part], self.document_bytes[part]
            if ends[0] < last or (np.diff(ends) < 0).any():
                raise FormatError(f"{self.path}: damaged, its document ends are not in order; encode the corpus again")
            if (sizes < 0).any():
                raise FormatError(f"{self.path}: damaged, a document has a negative size; encode the corpus again")
            last, total = int(ends[-1]), total + int(sizes.sum())
        if last != self.metadata.n_tokens:
            raise FormatError(
                f"{self.path}: damaged, its documents end at {last:,} of {self.metadata.n_tokens:,} ids; encode the "
                "corpus again"
            )
        if total != self.metadata.n_bytes:
            raise FormatError(
                f"{self.path}: damaged, its documents have {total:,} bytes and its metadata say "
                f"{self.metadata.n_bytes:,}; encode the corpus again"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "ids_sha256": self.metadata.ids_sha256}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        self._open()
        if self.metadata.ids_sha256 != state["ids_sha256"]:
            raise DataError(f"{self.path} was replaced while it was in use; start again with the new file")

    def __repr__(self) -> str:
        return (
            f"<IdFile {self.metadata.corpus}, {self.metadata.split}: {self.metadata.n_tokens:,} ids, "
            f"{self.metadata.n_documents:,} documents, tokenizer {self.metadata.tokenizer_fingerprint[:12]}…>"
        )

    def document(self, n: int, *, with_separator: bool = True) -> np.ndarray:
        """The ids of document n, `(n_ids,)`, a view; its separator is the last, where the file has any.

        Raises:
            DataError: there is no such document.
        """
        count = self.metadata.n_documents
        if not 0 <= n < count:
            raise DataError(f"{self.path}: there is no document {n}; it has {count:,}, counted from 0")
        start = int(self.document_ends[n - 1]) if n else 0
        end = int(self.document_ends[n])
        if not with_separator and self.metadata.separator_id is not None:
            end -= 1
        return self.ids[start:end]

    def verify(self) -> None:
        """Read all ids: they hash to what the metadata say, and are below the vocabulary's size.

        Raises:
            FormatError: they do not, or are not.
        """
        digest = hashlib.sha256()
        for part in _parts(len(self.ids)):
            ids = self.ids[part]
            digest.update(ids.data)
            if int(ids.max()) >= self.metadata.vocab_size:
                raise FormatError(
                    f"{self.path}: damaged, it has the id {int(ids.max())} and a vocabulary of "
                    f"{self.metadata.vocab_size:,} ids; encode the corpus again"
                )
        if digest.hexdigest() != self.metadata.ids_sha256:
            raise FormatError(
                f"{self.path}: damaged, its ids hash to {digest.hexdigest()} and not to {self.metadata.ids_sha256}; "
                "encode the corpus again"
            )


class IdFileWriter:
    """Writes an id file of any size in bounded memory: `with IdFileWriter(path, metadata) as file: file.write(...)`.

    For ids at hand; `encode_corpus` writes through `shards.Shards`, which can go on after a kill. The ids and the
    document index go into unnamed temporary files in the same folder; when the block ends well, they are laid together
    under a temporary name and that is renamed. So for a moment twice the file's size is needed, and whatever happens, a
    file under the final name is whole.
    """

    def __init__(self, path: StrPath, metadata: IdFileMetadata) -> None:
        """`metadata`: what is known beforehand; counts and hashes are filled in at the end."""
        self.path = Path(path)
        self._metadata = metadata
        self._dtype = id_dtype(metadata.vocab_size)
        self._ids_sha256 = hashlib.sha256()
        self._text_hash = TextHash()
        self._n_tokens = self._n_documents = self._n_bytes = 0
        self._files = contextlib.ExitStack()

    @property
    def metadata(self) -> IdFileMetadata:
        """With the counts and hashes of what has been written."""
        return dataclasses.replace(
            self._metadata,
            n_tokens=self._n_tokens,
            n_documents=self._n_documents,
            n_bytes=self._n_bytes,
            ids_sha256=self._ids_sha256.hexdigest(),
            text_sha256=self._text_hash.hexdigest(),
        )

    def __enter__(self) -> "IdFileWriter":
        with self._clear_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._ids, self._ends, self._bytes = (
                self._files.enter_context(tempfile.TemporaryFile(dir=self.path.parent))  # noqa: SIM115
                for _ in range(3)
            )
        return self

    def write(self, ids: np.ndarray, lengths: np.ndarray, texts: Texts) -> None:
        """Add documents.

        Args:
            ids: `(n,)` integers, the documents one after the other, separators included.
            lengths: `(n_documents,)`, how many ids each has, separator included.
            texts: `n_documents` texts in UTF-8.

        Raises:
            DataError: an id outside the vocabulary, or numbers that do not fit together; or the disk is full.
        """
        check_batch(self.path, self._metadata.vocab_size, ids, lengths, texts)
        raw = np.ascontiguousarray(ids, dtype=self._dtype).data
        ends = self._n_tokens + np.cumsum(lengths, dtype="<i8")
        sizes = texts.sizes.astype("<i8", copy=False)
        with self._clear_errors():
            self._ids.write(raw)
            self._ends.write(ends.tobytes())
            self._bytes.write(sizes.tobytes())
        self._ids_sha256.update(raw)
        self._text_hash.update(texts)
        self._n_tokens += len(ids)
        self._n_documents += len(lengths)
        self._n_bytes += int(sizes.sum())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._files:
            if kind is None:
                with self._clear_errors(), writing(self.path) as file:
                    file.write(header_of(self.metadata))
                    for part in (self._ends, self._bytes, self._ids):
                        part.seek(0)
                        shutil.copyfileobj(part, file, 1 << 24)

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"{self.path}: could not be written ({error.strerror or error}); nothing was left under that name. "
                f"{'Free some space' if lacks_room(error) else 'See to that'}, or choose another folder"
            ) from error


def check_batch(path: Path, vocab_size: int, ids: np.ndarray, lengths: np.ndarray, texts: Texts) -> None:
    """Refuse documents that do not belong into an id file; the arguments are those of `IdFileWriter.write`.

    Raises:
        DataError: an id outside the vocabulary, or numbers that do not fit together.
    """
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
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
            file.write(np.asarray(ids), np.array([len(ids)]), Texts.of([text.encode("utf-8")]))
    return file.metadata


def _parts(length: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, length, _AT_ONCE))


# The safetensors format: 8 bytes with the header's length, the header in JSON, the tensors' bytes without gaps.


def header_of(metadata: IdFileMetadata) -> bytes:
    """What stands before the tensors' bytes."""
    tensors: dict[str, Any] = {}
    offset = 0
    for name, dtype, length in (
        ("document_ends", "<i8", metadata.n_documents),
        ("document_bytes", "<i8", metadata.n_documents),
        ("ids", id_dtype(metadata.vocab_size).str, metadata.n_tokens),
    ):
        end = offset + length * np.dtype(dtype).itemsize
        tensors[name] = {"dtype": _NAMES[dtype], "shape": [length], "data_offsets": [offset, end]}
        offset = end
    text = json.dumps({"__metadata__": metadata.to_strings(), **tensors}, ensure_ascii=False, separators=(",", ":"))
    raw = text.encode("utf-8")
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def read_layout(path: StrPath) -> int:
    """Where in a file the ids begin, in bytes, though the rest of it may be missing.

    Raises:
        FormatError: it has no header of an id file.
    """
    header, start = _read_header(Path(path), os.path.getsize(path))
    try:
        return start + int(header["ids"]["data_offsets"][0])
    except (KeyError, TypeError, IndexError, ValueError):
        raise FormatError(f"{path}: no id file, or damaged (its header has no place for ids)") from None


def _read_header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    with open(path, "rb") as file:
        length = int.from_bytes(_exactly(file, 8, path), "little")
        if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
            raise FormatError(
                f"{path}: no id file, or cut short (its first bytes give a header of {length:,} bytes, and it has {size:,})"
            )
        raw = _exactly(file, length, path)
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise FormatError(f"{path}: no id file (its header is not JSON)") from None
    if not isinstance(header, dict):
        raise FormatError(f"{path}: no id file (its header is no JSON object)")
    return header, 8 + length


def _exactly(file: IO[bytes], count: int, path: Path) -> bytes:
    raw = file.read(count)
    if len(raw) < count:
        raise FormatError(f"{path}: no id file, or cut short (it ends in the header)")
    return raw


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _metadata_of(header: dict[str, Any], path: Path) -> IdFileMetadata:
    strings = header.get("__metadata__", {})
    if not isinstance(strings, dict) or not all(isinstance(value, str) for value in strings.values()):
        raise FormatError(f"{path}: no id file (its metadata are not strings)")
    return IdFileMetadata.from_strings(strings, path)


def _check_tensors(
    header: dict[str, Any], shapes: dict[str, tuple[str, int]], data_size: int, path: Path
) -> dict[str, int]:
    """The offset of each tensor in the data, after checking that all are there, as announced, without gap or overlap."""
    names = set(header) - {"__metadata__"}
    if names != set(shapes):
        raise FormatError(f"{path}: no id file, or damaged (its tensors are {', '.join(sorted(names)) or 'none'})")
    spans = {}
    for name, (dtype, length) in shapes.items():
        end = length * np.dtype(dtype).itemsize
        entry = header[name]
        expected = {"dtype": _NAMES[dtype], "shape": [length]}
        if not isinstance(entry, dict) or {key: entry.get(key) for key in expected} != expected:
            raise FormatError(f"{path}: damaged, {name} is announced as {json.dumps(entry)[:200]}, not as {expected}")
        span = entry.get("data_offsets")
        if not (
            isinstance(span, list)
            and len(span) == 2
            and all(type(at) is int for at in span)
            and span[1] - span[0] == end
        ):
            raise FormatError(f"{path}: damaged, {name} has the offsets {str(span)[:80]} for {end:,} bytes")
        spans[name] = span
    at = 0
    for name, (start, end) in sorted(spans.items(), key=lambda item: item[1]):
        if start != at:
            raise FormatError(f"{path}: damaged, {name} begins at byte {start:,} of the data, not at {at:,}")
        at = end
    if at != data_size:
        raise FormatError(
            f"{path}: {'cut short' if data_size < at else 'damaged'}, it has {counted(data_size, 'byte')} of data and announces "
            f"{at:,}; encode the corpus again"
        )
    return {name: start for name, (start, _) in spans.items()}
