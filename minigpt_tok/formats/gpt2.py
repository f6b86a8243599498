"""GPT-2's two files: `vocab.json` (or `encoder.json`) and `merges.txt` (or `vocab.bpe`)."""

import json
from pathlib import Path

from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.recipes import END_OF_TEXT
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, read_text, write_text
from minigpt_tok.formats import hf_json
from minigpt_tok.formats.loaded import LARGEST_FILE, read_json


def load(vocab_json: StrPath, merges_txt: StrPath) -> BPEModel:
    """Read both. `<|endoftext|>` in the vocabulary becomes a special token.

    Raises:
        FormatError: naming the file, the line or key, and what is wrong with it.
    """
    vocab = read_json(vocab_json, "a GPT-2 vocabulary")
    if not isinstance(vocab, dict):
        raise FormatError(f"{vocab_json}: not an object of tokens and ids")
    added = []
    if END_OF_TEXT in vocab:
        if not isinstance(vocab[END_OF_TEXT], int) or isinstance(vocab[END_OF_TEXT], bool):
            raise FormatError(f"{vocab_json}: the id of {END_OF_TEXT!r} is {vocab[END_OF_TEXT]!r}, not a whole number")
        added = [AddedToken(content=END_OF_TEXT, id=vocab[END_OF_TEXT])]
    block = {"type": "BPE", "vocab": vocab, "merges": read_merges(merges_txt)}
    return hf_json.parse_model(block, added, "gpt2", f"{vocab_json} with {merges_txt}")


def read_merges(path: StrPath) -> list[str]:
    """The lines of a file of merges, each two tokens with a space between them; empty lines are passed over.

    Raises:
        FormatError: naming the line.
    """
    # Not splitlines(): tokens may hold characters that it takes for line ends.
    lines = read_text(path, limit=LARGEST_FILE, what="GPT-2 merges").split("\n")
    if lines and lines[0].startswith("#version"):
        del lines[0]
    lines = [line for line in (line.removesuffix("\r") for line in lines) if line]
    for number, line in enumerate(lines, start=1):
        if len(line.split(" ")) != 2:
            raise FormatError(f"{path}: merge {number} is {line!r}, not two tokens with a space between them")
    return lines


def save(folder: StrPath, model: BPEModel) -> None:
    """Write `vocab.json` and `merges.txt`.

    Raises:
        FormatError: the form cannot hold the tokenizer: another pattern, added tokens but `<|endoftext|>`, characters.
    """
    others = [token.content for token in model.added_tokens if token.content != END_OF_TEXT or not token.special]
    for wrong, what in (
        (model.unit != "byte", "characters for base tokens"),
        (model.pattern != "gpt2", f"the pattern {model.pattern!r}"),
        (model.whole_piece, "whole-piece lookup"),
        (bool(others), f"added tokens ({', '.join(map(repr, others[:5]))})"),
    ):
        if wrong:
            raise FormatError(f"{folder}: GPT-2's files cannot hold {what}; save it as tokenizer.json")
    vocab, merges = hf_json.vocab_and_merges(model)
    write_text(Path(folder) / "vocab.json", json.dumps(vocab, ensure_ascii=False))
    write_text(
        Path(folder) / "merges.txt", "".join(["#version: 0.2\n", *(f"{left} {right}\n" for left, right in merges)])
    )
