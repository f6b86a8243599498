"""What an id file is made of: its metadata, its header and the places of its tensors, in the safetensors format.

| tensor | dtype, shape | meaning |
| --- | --- | --- |
| `ids` | uint16 (up to 65,536 ids in the vocabulary) or uint32 `(n_tokens,)` | the documents one after the other |
| `padding` | uint8 `(0 to 7,)` | zeros, which bring what follows to a multiple of 8 bytes |
| `document_ends` | int64 `(n_documents,)` | end of each document in `ids`, exclusive, its separator included |
| `document_bytes` | int64 `(n_documents,)` | UTF-8 bytes of each document's text, separators not counted |

All else is metadata (`IdFileMetadata`). Numbers are little-endian. A file grows in this order: how long the header is
follows from what is known before the first id, so ids are written where they stay. All tensors are aligned in a memory map.

Read is any order of these tensors, with `padding` or without.
"""

import dataclasses
import json
from pathlib import Path
from typing import IO, Any

import numpy as np

from minigpt_tok._version import __version__
from minigpt_tok.amounts import counted
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath

FORMAT = "minigpt-tok ids"
FORMAT_VERSION = 1
COUNTED = ("n_tokens", "n_documents", "n_bytes", "ids_sha256", "text_sha256")  # in the metadata, known at the end
_HEADER_LIMIT = 1 << 20  # bytes; ours have about one thousand
_NAMES = {"<i8": "I64", "<u2": "U16", "<u4": "U32", "|u1": "U8"}
_ALIGNED = 8  # bytes; each tensor begins at a multiple of it
_ROOM = 64  # bytes; the header with its length takes a multiple of it
_LARGEST = 10**19 - 1  # no count has more digits


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


# The safetensors format: 8 bytes with the header's length, the header in JSON, the tensors' bytes without gaps.


def tensors_of(metadata: IdFileMetadata) -> dict[str, tuple[str, int]]:
    """Name → (dtype, length) of the tensors, in the order in which we write them."""
    ids = id_dtype(metadata.vocab_size)
    return {
        "ids": (ids.str, metadata.n_tokens),
        "padding": ("|u1", -metadata.n_tokens * ids.itemsize % _ALIGNED),
        "document_ends": ("<i8", metadata.n_documents),
        "document_bytes": ("<i8", metadata.n_documents),
    }


def header_of(metadata: IdFileMetadata) -> bytes:
    """What stands before the ids. Counts and hashes, which are known at the end, do not change its length."""
    hashed = "0" * 64
    widest = dataclasses.replace(
        metadata, n_tokens=_LARGEST, n_documents=_LARGEST, n_bytes=_LARGEST, ids_sha256=hashed, text_sha256=hashed
    )
    length = len(_header_text(widest))
    length += -(8 + length) % _ROOM
    return length.to_bytes(8, "little") + _header_text(metadata).ljust(length)


def _header_text(metadata: IdFileMetadata) -> bytes:
    tensors: dict[str, Any] = {}
    offset = 0
    for name, (dtype, length) in tensors_of(metadata).items():
        end = offset + length * np.dtype(dtype).itemsize
        tensors[name] = {**_announced(dtype, length), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps({"__metadata__": metadata.to_strings(), **tensors}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8")


def read_header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """(the header of a file of so many bytes, where the data begin).

    Raises:
        FormatError: it has none.
    """
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


def metadata_of(header: dict[str, Any], path: Path) -> IdFileMetadata:
    """What a header says of its file.

    Raises:
        FormatError: it is no id file's.
    """
    strings = header.get("__metadata__", {})
    if not isinstance(strings, dict) or not all(isinstance(value, str) for value in strings.values()):
        raise FormatError(f"{path}: no id file (its metadata are not strings)")
    return IdFileMetadata.from_strings(strings, path)


def find_tensors(
    header: dict[str, Any], metadata: IdFileMetadata, data_size: int, path: Path
) -> dict[str, tuple[int, str, int]]:
    """Name → (place in the data, dtype, length) of the tensors, in any order, `padding` only if the file has it.

    Raises:
        FormatError: they are not as the metadata announce them, or do not fill the data without gap or overlap.
    """
    wanted = tensors_of(metadata)
    names = set(header) - {"__metadata__"}
    if names | {"padding"} != set(wanted):
        raise FormatError(f"{path}: no id file, or damaged (its tensors are {', '.join(sorted(names)) or 'none'})")
    dtype, ours = wanted.pop("padding")
    if "padding" in names:  # as long as whoever wrote the file liked
        length = next((n for n in range(_ALIGNED) if _is_announced(header, "padding", dtype, n)), ours)
        wanted["padding"] = dtype, length
    spans = {}
    for name, (dtype, length) in wanted.items():
        if not _is_announced(header, name, dtype, length):
            raise FormatError(
                f"{path}: damaged, {name} is announced as {json.dumps(header[name])[:200]}, not as "
                f"{_announced(dtype, length)}"
            )
        span, size = header[name].get("data_offsets"), length * np.dtype(dtype).itemsize
        if not (
            isinstance(span, list)
            and len(span) == 2
            and all(type(at) is int for at in span)
            and span[1] - span[0] == size
        ):
            raise FormatError(f"{path}: damaged, {name} has the offsets {str(span)[:80]} for {size:,} bytes")
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
    return {name: (spans[name][0], dtype, length) for name, (dtype, length) in wanted.items()}


def _announced(dtype: str, length: int) -> dict[str, Any]:
    return {"dtype": _NAMES[dtype], "shape": [length]}


def _is_announced(header: dict[str, Any], name: str, dtype: str, length: int) -> bool:
    entry = header[name]
    expected = _announced(dtype, length)
    return isinstance(entry, dict) and {key: entry.get(key) for key in expected} == expected
