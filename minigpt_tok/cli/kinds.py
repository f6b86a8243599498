"""What a file is, by what is in it: a tokenizer, an id file or a checkpoint."""

import json
from pathlib import Path
from typing import Literal

from minigpt_tok.data.id_format import FORMAT as ID_FILE_FORMAT
from minigpt_tok.data.splits import SPLITS
from minigpt_tok.errors import FormatError

Kind = Literal["tokenizer", "id file", "checkpoint"]

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "encoder.json")
_LONGEST_HEADER = 1 << 26  # bytes of a safetensors header; those of large models have some hundred kilobytes
_TORCH = (b"PK\x03\x04", b"\x80\x02")  # what torch.save writes: an archive; before 1.6 a pickle


def kind_of(path: Path) -> Kind:
    """What a file seems to be. Whether it is whole is for its reader to find out.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with open(path, "rb") as file:
        start = file.read(9)
        if start.startswith(_TORCH):
            return "checkpoint"
        length = int.from_bytes(start[:8], "little")
        if start[8:] != b"{" or length > _LONGEST_HEADER:
            return "tokenizer"
        file.seek(8)
        header = file.read(length)
    try:
        metadata = json.loads(header).get("__metadata__", {})
    except (ValueError, RecursionError, AttributeError):
        metadata = {"format": ID_FILE_FORMAT}  # damaged; the reader of id files says how
    return "id file" if metadata.get("format") == ID_FILE_FORMAT else "checkpoint"


def files_in(path: Path) -> list[Path]:
    """A file itself; of a folder the tokenizer, the id files and the checkpoints in it.

    Raises:
        FormatError: there is nothing of the kind in the folder.
    """
    if not path.is_dir():
        return [path]
    tokenizer = [path / name for name in TOKENIZER_FILES if (path / name).is_file()][:1]
    found = sorted(file for pattern in ("*.safetensors", "*.ckpt", "*.pt") for file in path.glob(pattern))
    found.sort(key=lambda file: SPLITS.index(file.stem) if file.stem in SPLITS else len(SPLITS))
    found = tokenizer + found
    if not found:
        raise FormatError(f"{path}: a folder without a tokenizer, id files or checkpoints; name a file")
    return found
