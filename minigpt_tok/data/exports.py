"""Ids in the forms that other programs read, each with a `.json` beside it that still names the tokenizer.

These forms hold ids and nothing else: neither documents nor a fingerprint. Hence the second file, and an id file
remains the form to keep.
"""

import json
from pathlib import Path

import numpy as np

from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import DataError
from minigpt_tok.files import StrPath, replacing, write_text, writing

_AT_ONCE = 1 << 22  # ids


def export_bin(file: IdFile, path: StrPath) -> None:
    """nanoGPT's `.bin`: the ids as uint16, little-endian, and nothing else.

    Raises:
        DataError: the vocabulary has more than 65,536 ids, which nanoGPT would read wrongly.
    """
    if file.metadata.vocab_size > 1 << 16:
        raise DataError(
            f"{file.path}: a .bin holds 16-bit ids, and the vocabulary has {file.metadata.vocab_size:,}; export .npy, or "
            "use a tokenizer with at most 65,536 ids"
        )
    with writing(path) as out:
        for start in range(0, len(file.ids), _AT_ONCE):
            out.write(file.ids[start : start + _AT_ONCE].data)
    _describe(file, path)


def export_npy(file: IdFile, path: StrPath) -> None:
    """A NumPy array `(n_tokens,)` of the file's own dtype, for `np.load(path, mmap_mode="r")`."""
    with writing(path) as out:
        header = {"descr": file.ids.dtype.str, "fortran_order": False, "shape": file.ids.shape}
        np.lib.format.write_array_header_1_0(out, header)
        for start in range(0, len(file.ids), _AT_ONCE):
            out.write(file.ids[start : start + _AT_ONCE].data)
    _describe(file, path)


def export_pt(file: IdFile, path: StrPath) -> None:
    """A `torch.long` tensor `(n_tokens,)`, for `torch.load(path, weights_only=True)`. Needs 8 bytes of memory per id."""
    import torch

    tensor = torch.from_numpy(file.ids.astype(np.int64))
    with replacing(path) as temporary:
        torch.save(tensor, temporary)
    _describe(file, path)


def _describe(file: IdFile, path: StrPath) -> None:
    target = Path(path)
    text = json.dumps(file.metadata.to_strings(), indent=2, ensure_ascii=False)
    write_text(target.with_name(target.name + ".json"), text + "\n")
