"""Our own file: a `tokenizer.json` for byte-level tokenizers, `character_bpe` for characters; and recognition.

`load` tells formats apart by what is in a file, never by its name.
"""

from pathlib import Path
from typing import Any

from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.trainer import Training
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath
from minigpt_tok.formats import character, gpt2, hf_json
from minigpt_tok.formats.hf_after import Carried
from minigpt_tok.formats.loaded import Loaded, parse_json, read_json


def save(
    path: StrPath, model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None
) -> None:
    """Write the own format, whole or not at all."""
    if model.unit == "character":
        character.save(path, model, fingerprint)
    else:
        hf_json.save(path, model, training, fingerprint, carried)


def to_json(model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None) -> str:
    """The text that `save` writes."""
    if model.unit == "character":
        return character.to_json(model, fingerprint)
    return hf_json.to_json(model, training, fingerprint, carried)


def from_json(text: str, source: str) -> Loaded:
    """Back from `to_json`, or from the text of any JSON form that stands alone."""
    return _recognised(parse_json(text, source), source)


def load(path: StrPath) -> Loaded:
    """Read a tokenizer of any known form: a file, or a folder that holds one.

    Raises:
        FormatError: no known form; the message says what it seems to be.
        FileNotFoundError: there is no such file.
    """
    place = Path(path)
    if place.is_dir():
        place = _in_folder(place)
    if place.name in ("vocab.json", "encoder.json"):
        for merges in ("merges.txt", "vocab.bpe"):
            if (place.parent / merges).is_file():
                return Loaded(gpt2.load(place, place.parent / merges), source=str(place), name=place.parent.name)
    with open(place, "rb") as file:
        start = file.read(4096)
    if (other := _something_else(start)) is not None:
        raise FormatError(f"{place}: {other}")
    return _recognised(read_json(place, "a tokenizer"), str(place))


def _in_folder(folder: Path) -> Path:
    for name in ("tokenizer.json", "vocab.json", "encoder.json"):
        if (folder / name).is_file():
            return folder / name
    raise FormatError(
        f"{folder}: a folder without tokenizer.json, vocab.json or encoder.json; name the tokenizer's file"
    )


def _recognised(document: Any, source: str) -> Loaded:
    if isinstance(document, dict):
        if document.get("type") == character.TYPE or {"base_tokens", "merges"} <= document.keys():
            return character.parse(document, source)
        if isinstance(document.get("model"), dict):
            return hf_json.parse(document, source)
        if document and all(isinstance(id, int) for id in document.values()):
            raise FormatError(
                f"{source}: a vocabulary without its merges; put merges.txt beside it as vocab.json, or use Tokenizer.from_gpt2"
            )
    raise FormatError(
        f"{source}: JSON, but no tokenizer: it has neither a 'model' (tokenizer.json) nor 'base_tokens' and 'merges' "
        "(character_bpe)"
    )


def _something_else(start: bytes) -> str | None:
    """What a file is that cannot be a tokenizer in JSON, by its first bytes; with what to do."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        return "empty, so no tokenizer"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'"
    if text[:1] == b"<":
        return "HTML or XML, perhaps the page of an error: download the file again"
    if start.startswith((b"PK\x03\x04", b"\x80\x02")) or start[8:9] == b"{":
        return "a model's weights or a checkpoint, not a tokenizer: give the tokenizer's file"
    if start.startswith(b"\n") and b"<unk>" in start[:64]:
        return "a SentencePiece model, which is not byte-level BPE: it cannot be read"
    first_line = text.split(b"\n")[0].split(b" ")
    if len(first_line) == 2 and first_line[1].strip().isdigit():
        return "a file of ranks, which does not name its pattern: use Tokenizer.from_tiktoken(path, pattern=…)"
    if text[:1] not in b"{[":
        return "not JSON, and no other form of a tokenizer that is known here"
    return None
