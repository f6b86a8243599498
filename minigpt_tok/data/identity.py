"""Which data: the id files behind whatever a user trains on, and the fingerprint of their ids.

The fingerprint of data is the SHA-256 of the ids of its train split, as their file holds them; of several train files,
the SHA-256 over theirs, sorted, one a line. Where the files lie, and what other splits there are, does not count.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from minigpt_tok.data.id_file import IdFile, read_metadata
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.errors import DataError

# Attributes by which datasets and loaders lead to what they are made of: to one thing, or to several.
_TO_ONE = ("id_file", "dataset")
_TO_SEVERAL = ("datasets", "iterables")


def id_metadata(data: Any) -> dict[str, IdFileMetadata]:
    """Path → metadata of every id file in `data`, as far as can be seen.

    Args:
        data: an id file's path or the folder of an encoded corpus; an `IdFile`, a `TokenDataset`, a data module; a
            PyTorch dataset or loader around them; or a list or dict of these. What leads to no id file gives nothing.

    Raises:
        DataError: a folder without id files.
        FormatError: a file that is none.
        FileNotFoundError: a path to nothing.
    """
    found: dict[str, IdFileMetadata] = {}
    _collect(data, found, depth=0)
    return found


def _collect(data: Any, found: dict[str, IdFileMetadata], depth: int) -> None:
    if isinstance(data, str | os.PathLike):
        for path in _files(Path(data)):
            found[str(path)] = read_metadata(path)
    elif isinstance(data, Mapping):
        for item in data.values():
            _collect(item, found, depth)
    elif isinstance(data, list | tuple):
        for item in data:
            _collect(item, found, depth)
    else:
        _collect_object(data, found, depth)


def _collect_object(data: Any, found: dict[str, IdFileMetadata], depth: int) -> None:
    if data is None or depth > 8:  # datasets in datasets; deeper is a circle
        return
    if isinstance(data, IdFile):
        found[str(data.path)] = data.metadata
        return
    # Only our own data modules' folder is known to hold id files; others' strings and lists mean other things.
    if any(kind.__module__.startswith("minigpt_tok.") for kind in type(data).__mro__):
        _collect(getattr(data, "data_dir", None) or [], found, depth)
    inner = [getattr(data, name, None) for name in _TO_ONE]
    for name in _TO_SEVERAL:
        several = getattr(data, name, None)
        inner += several if isinstance(several, list | tuple) else [several]
    for item in inner:
        if not isinstance(item, str | os.PathLike | list | tuple | Mapping):
            _collect_object(item, found, depth + 1)


def _files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.safetensors"), key=lambda file: (file.stem != "train", file.stem != "validation", file))
    if not files:
        raise DataError(f"{path}: no id files in this folder (no *.safetensors); encode a corpus into it first")
    return files


def data_fingerprint(data: Any) -> str:
    """The fingerprint of the data that a model is trained on, 64 lower-case hex digits.

    Args:
        data: as `id_metadata` takes it. A single file counts whatever its split.

    Raises:
        DataError: there is no id file in it, or several and none of the train split.
    """
    files = id_metadata(data)
    if not files:
        raise DataError(f"there is no id file in {data!r}: give the folder of an encoded corpus, or a TokenDataset")
    train = [metadata for metadata in files.values() if metadata.split == "train"]
    if len(files) == 1:
        train = list(files.values())
    if not train:
        raise DataError(f"none of {', '.join(files)} is of the train split: name the file that the model is trained on")
    if len(train) == 1:
        return train[0].ids_sha256
    lines = "".join(f"{digest}\n" for digest in sorted(metadata.ids_sha256 for metadata in train))
    return hashlib.sha256(lines.encode("ascii")).hexdigest()
