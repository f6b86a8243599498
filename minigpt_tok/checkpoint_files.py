"""Checkpoint files: PyTorch's own form with plain types only, and safetensors; written whole or not at all.

A checkpoint is a dict. In PyTorch's form it is written as it is. In safetensors, which holds named tensors and a
metadata dict of strings, its tensors are the `state_dict`'s, and the other keys are metadata (`TEXT_KEYS` as they are,
all others as JSON). Tensors that are one and the same (tied weights) are written once and named in `SHARED_KEY`.

Nothing here runs a pickle: files with other types than tensors, numbers, strings and containers are refused by name.
"""

import contextlib
import json
import os
import re
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, replacing, writing

TEXT_KEYS = frozenset({"format", "tokenizer_fingerprint", "tokenizer", "data_fingerprint"})
SHARED_KEY = "shared_tensors"  # JSON: name of a tensor that is not in the file → name of the one that it is
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.Size, torch.dtype, torch.device)
_ZIP = b"PK\x03\x04"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the magic number of torch.save before 1.6, pickled


def read_checkpoint(path: StrPath, *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint, of PyTorch's form or safetensors (recognised by content), into the CPU's memory.

    Args:
        path: the file.
        mapped: map the tensors instead of reading them, where the form allows it: to look at a large file cheaply.

    Raises:
        FormatError: no checkpoint, cut short, or with other types than plain ones.
        FileNotFoundError: there is no such file.
    """
    place = Path(path)
    if place.is_dir():
        raise FormatError(f"{place}: a folder; name the checkpoint's file (sharded checkpoints cannot be read)")
    with open(place, "rb") as file:
        start = file.read(64)
        size = os.fstat(file.fileno()).st_size
    if not start:
        raise FormatError(f"{place}: empty, so no checkpoint")
    if start[8:9] == b"{":
        return _read_safetensors(place, int.from_bytes(start[:8], "little"), size)
    if start.startswith(b"version https://git-lfs"):
        raise FormatError(f"{place}: a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'")
    if not start.startswith((_ZIP, _LEGACY)):
        raise FormatError(f"{place}: no checkpoint, neither a file of torch.save nor safetensors")
    if start.startswith(_ZIP) and not _has_its_end(place):
        raise _cut_short(place)
    return _read_torch(place, mapped=mapped and start.startswith(_ZIP))


def _has_its_end(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:
        return False


def _cut_short(path: Path) -> FormatError:
    return FormatError(f"{path}: cut short: its end is missing. Copy it again, or take an earlier checkpoint")


def _read_torch(path: Path, *, mapped: bool) -> dict[str, Any]:
    try:
        checkpoint = torch.load(str(path), map_location="cpu", weights_only=True, mmap=mapped or None)
    except UnpicklingError as error:
        if (other := re.search(r"(?:GLOBAL|global) (\S+) was not", str(error))) is not None:
            raise FormatError(
                f"{path}: holds {other[1]}, and only tensors, numbers, strings, lists and dicts are read: a checkpoint "
                "with other types can run code when it is loaded. If you trust its source, load it with "
                "torch.load(path, weights_only=False) and save its plain parts"
            ) from None
        raise FormatError(f"{path}: no checkpoint that can be read safely: {_first_line(error)}") from None
    except Exception as error:  # whatever a damaged pickle makes torch do: a dozen types, seen by changing bytes
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise FormatError(f"{path}: damaged, or no checkpoint: {_first_line(error)}") from None
    if not isinstance(checkpoint, dict):
        raise FormatError(f"{path}: holds {type(checkpoint).__name__}, not a checkpoint's dict")
    return checkpoint


def _read_safetensors(path: Path, header: int, size: int) -> dict[str, Any]:
    if 8 + header > size:
        raise _cut_short(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata: dict[str, str] = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no dict
    except SafetensorError as error:
        if "not fully covered" in str(error):
            raise _cut_short(path) from None
        raise FormatError(f"{path}: damaged, or no safetensors file: {_first_line(error)}") from None
    checkpoint: dict[str, Any] = {
        key: text if key in TEXT_KEYS else _from_json(text, key, path) for key, text in metadata.items()
    }
    shared = checkpoint.pop(SHARED_KEY, {})
    if not isinstance(shared, dict):
        raise FormatError(f"{path}: damaged: {SHARED_KEY} in its metadata is {str(shared)[:60]!r}, not an object")
    for name, original in shared.items():
        if not isinstance(original, str) or original not in state:
            raise FormatError(f"{path}: damaged: {name} shares the tensor {original!r}, which is not there")
        state[name] = state[original]
    return {**checkpoint, "state_dict": state}


def _from_json(text: str, key: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if key in ("vocab_size", "tokenizer_fingerprint_version", "embedding_rows", "config", SHARED_KEY):
            raise FormatError(f"{path}: damaged: {key} in its metadata is {text[:60]!r}, which is not JSON") from None
        return text  # somebody else's metadata


def _first_line(error: BaseException) -> str:
    """Of a library's message, without colours and advice that does not hold here."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:160] if text else ''}"


def write_checkpoint(path: StrPath, checkpoint: Mapping[str, Any]) -> None:
    """Write a checkpoint in PyTorch's form, whole or not at all; what stood at `path` stays if it fails.

    Raises:
        FormatError: something in it is of another type than `torch.load(weights_only=True)` reads, with its place.
        OSError: it could not be written.
    """
    refuse_other_types(checkpoint)
    write_torch(path, dict(checkpoint))


def write_torch(path: StrPath, value: Any) -> None:
    """As `write_checkpoint`, without looking at what is written.

    Raises:
        OSError: it could not be written.
    """
    with _clear_write_errors(path), writing(path) as file:
        torch.save(value, file)


def write_safetensors(path: StrPath, state: Mapping[str, torch.Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and metadata as safetensors, whole or not at all. Tied tensors are written once.

    Raises:
        FormatError: the state holds something else than tensors.
        OSError: it could not be written.
    """
    tensors, shared = _distinct(state)
    strings = {"format": "pt"}
    for key, value in {**metadata, **({SHARED_KEY: shared} if shared else {})}.items():
        strings[key] = value if key in TEXT_KEYS else json.dumps(value, ensure_ascii=False)
    with _clear_write_errors(path), replacing(path) as temporary:
        save_file(tensors, temporary, metadata=strings)


def _distinct(state: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """(tensors that share no memory, name → name of the very same tensor); safetensors refuses shared memory."""
    tensors: dict[str, torch.Tensor] = {}
    shared: dict[str, str] = {}
    names: dict[object, str] = {}
    storages = set()
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            raise FormatError(
                f"the state has {name!r}, which is {type(tensor).__name__}: safetensors hold tensors only"
            )
        storage = tensor.untyped_storage().data_ptr()
        if tensor.numel():
            same = (tensor.device, storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
            if (first := names.setdefault(same, name)) != name:
                shared[name] = first
                continue
        plain = tensor.detach().cpu().contiguous()
        # Parts of one storage each get memory of their own.
        tensors[name] = plain.clone() if storage in storages else plain
        storages.add(storage)
    return tensors, shared


@contextlib.contextmanager
def _clear_write_errors(path: StrPath) -> Iterator[None]:
    """The operating system's reason with the path, where torch and safetensors say other things or hide it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
    except RuntimeError as error:
        if isinstance(cause := error.__context__, OSError) and cause.errno is not None:
            raise OSError(cause.errno, os.strerror(cause.errno), str(path)) from None
        raise
    except SafetensorError as error:
        if (number := re.search(r"os error (\d+)", str(error))) is not None:
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
        raise


def refuse_other_types(value: Any, where: str = "the checkpoint") -> None:
    """Refuse what `torch.load(weights_only=True)` would not read back.

    Raises:
        FormatError: with the place and the type.
    """
    if isinstance(value, Mapping) and type(value) in (dict, OrderedDict):
        for key, item in value.items():
            refuse_other_types(key, f"{where}: a key {str(key)[:40]!r}")
            refuse_other_types(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for number, item in enumerate(value):
            refuse_other_types(item, f"{where}[{number}]")
    elif not (type(value) in PLAIN or isinstance(value, torch.Tensor)):
        raise FormatError(
            f"{where} is {type(value).__name__}, and a checkpoint holds plain types only (tensors, numbers, strings, "
            "lists, dicts), so that it can be read without running code. Save what it says as such"
        )
