"""What a file is that is no tokenizer of a form known here: called by its name, with what to do.

Signatures are those of the formats' own specifications; each function looks at content alone.
"""

import re
import zipfile
from pathlib import Path
from typing import Any

_WEIGHTS = "a model's weights or a checkpoint, not a tokenizer: give the tokenizer's file"
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'"),
    (b"GGUF", f"a GGUF file: {_WEIGHTS}"),
    (b"\x89HDF\r\n\x1a\n", f"an HDF5 file: {_WEIGHTS}"),
    (b"\x93NUMPY", "a NumPy array, not a tokenizer"),
    (b"\x1f\x8b", "a gzip archive: unpack it first ('gunzip', or 'tar xzf')"),
    (b"BZh", "a bzip2 archive: unpack it first ('bunzip2')"),
    (b"\xfd7zXZ\x00", "an xz archive: unpack it first ('unxz')"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first ('zstd -d')"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
    (b"\xff\xfe\x00\x00", "text in UTF-32: save it as UTF-8"),
    (b"\x00\x00\xfe\xff", "text in UTF-32: save it as UTF-8"),
    (b"\xff\xfe", "text in UTF-16: save it as UTF-8"),
    (b"\xfe\xff", "text in UTF-16: save it as UTF-8"),
    (b"%PDF", "a PDF document, not a tokenizer"),
    (
        b"\x80",
        "a pickle: of a model's weights or a checkpoint, or a vocabulary or merges without the other file beside it",
    ),
)
_WORDPIECE_MARKS = frozenset({b"[UNK]", b"[PAD]", b"[CLS]", b"[SEP]", b"[MASK]"})
_MODELS = {
    "Unigram": "as of SentencePiece",
    "WordPiece": "as of BERT",
    "WordLevel": "whole words",
}


def foreign_file(start: bytes, path: Path) -> str | None:
    """What a file is that starts like this, if that is no form of a tokenizer known here; else `None`."""
    without_mark = start.removeprefix(b"\xef\xbb\xbf")
    text = without_mark.lstrip(b" \t\r\n\x0b\x0c")
    if not text:
        return "empty, so no tokenizer"
    if start.startswith(b"PK\x03\x04"):
        return _archive(path)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 40:
        return f"a safetensors file: {_WEIGHTS}"
    if start[257:262] == b"ustar":
        return "a tar archive: unpack it first ('tar xf')"
    if _is_sentencepiece(start):
        return "a SentencePiece model, which is not byte-level BPE: it cannot be read"
    for signature, what in _SIGNATURES:
        if start.startswith(signature):
            return what
    if len(without_mark) < len(start):
        return "begins with a byte order mark: save it as UTF-8 without one"
    if text[:1] == b"<":
        return "HTML or XML, perhaps the page of an error: download the file again"
    if b"\x00" in start:
        return "binary, and of no form of a tokenizer that is known here"
    if _is_wordpiece(start):
        return "a WordPiece vocabulary (vocab.txt, as of BERT), which is not byte-level BPE: it cannot be read"
    return None


def foreign_json(document: Any) -> str | None:
    """What parsed JSON is that is no tokenizer known here, if that can be told; else `None`."""
    if not isinstance(document, dict):
        return None
    model = document.get("model")
    if isinstance(model, dict):
        kind = model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else None)
        if isinstance(kind, str) and kind in _MODELS:
            return f"a tokenizer.json whose model.type is {kind!r} ({_MODELS[kind]}), not byte-level BPE: it cannot be read"
        return None
    if "error" in document and len(document) <= 3:
        return f"a server's answer, not the file: {str(document['error'])[:80]!r}; download the file again"
    if "tokenizer_class" in document or "added_tokens_decoder" in document:
        return (
            "a tokenizer_config.json, which has settings and no vocabulary: give the tokenizer.json that belongs to it"
        )
    if "weight_map" in document:
        return "the index of a model's weights, not a tokenizer: give the tokenizer's file"
    if "model_type" in document or "architectures" in document:
        return "a model's config.json, not a tokenizer: give the tokenizer's file"
    if document.keys() & {"bos_token", "eos_token", "unk_token", "pad_token"}:
        return "a special_tokens_map.json, which has no vocabulary: give the tokenizer.json that belongs to it"
    if {"nbformat", "cells"} <= document.keys():
        return "a notebook, not a tokenizer"
    return None


def _archive(path: Path) -> str:
    """Of a zip file: PyTorch's checkpoints are such, and NumPy's archives."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()[:10_000]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        return f"a zip archive that is cut short, perhaps a checkpoint: {_WEIGHTS}"
    if any(name.endswith("data.pkl") for name in names):
        return f"a checkpoint of PyTorch: {_WEIGHTS}"
    return "a zip archive: unpack it first ('unzip')"


def _is_sentencepiece(start: bytes) -> bool:
    """Whether this is SentencePiece's protobuf: field 1 is a piece, whose field 1 is text and whose field 2 is a float."""
    if start[:1] != b"\n" or len(start) < 12:
        return False
    size, at = _varint(start, 1)
    if start[at : at + 1] != b"\n":
        return False
    length, inner = _varint(start, at + 1)
    end = inner + length
    return length < size <= 1 << 16 and start[end : end + 1] == b"\x15" and end + 5 <= at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, place after it); stops at 5 bytes or at the end."""
    value = shift = 0
    while at < len(data) and shift < 35:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
        shift += 7
    return value, at


def _is_wordpiece(start: bytes) -> bool:
    lines = re.split(rb"\r?\n", start)[:-1]
    if len(lines) < 3 or any(b" " in line for line in lines):
        return False
    return bool(_WORDPIECE_MARKS.intersection(lines)) or sum(line.startswith(b"##") for line in lines) > 2
