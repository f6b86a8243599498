"""`IdFile`: an id file, opened. `id_format` says what is in it, `id_writer` writes it.

Opening a file checks its header, its length and its document index; `IdFile.verify` also reads and hashes the ids.
`safetensors` reads these files; we read them ourselves, since it would copy, not map.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minigpt_tok.data.id_format import IdFileMetadata, find_tensors, metadata_of, read_header
from minigpt_tok.errors import DataError, FormatError
from minigpt_tok.files import StrPath

_AT_ONCE = 1 << 22  # elements that checks and hashes look at in one step


def read_metadata(path: StrPath) -> IdFileMetadata:
    """What a file says of itself, though the rest of it may be damaged or cut short.

    Raises:
        FormatError: it is no id file.
    """
    return metadata_of(read_header(Path(path), os.path.getsize(path))[0], Path(path))


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
        header, start = read_header(self.path, size)
        self.metadata = metadata_of(header, self.path)
        places = find_tensors(header, self.metadata, size - start, self.path)
        raw = np.memmap(self.path, dtype=np.uint8, mode="r") if size > start else np.empty(0, dtype=np.uint8)
        self.ids, self.document_ends, self.document_bytes = (
            np.asarray(raw[start + at : start + at + length * np.dtype(dtype).itemsize]).view(dtype)
            for at, dtype, length in (places[name] for name in ("ids", "document_ends", "document_bytes"))
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


def _parts(length: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, length, _AT_ONCE))
