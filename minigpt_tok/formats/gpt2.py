"""GPT-2's two files: `vocab.json` (or `encoder.json`) and `merges.txt` (or `vocab.bpe`)."""

import json
from collections.abc import Iterable
from pathlib import Path

from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.recipes import END_OF_TEXT
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, read_text, write_text
from minigpt_tok.formats import hf_json
from minigpt_tok.formats.limits import (
    common_reasons,
    refuse,
    refuse_characters,
    refuse_doubles,
    refuse_whole_pieces,
)
from minigpt_tok.formats.loaded import MOST_VALUES, read_json

FORM = "GPT-2's files"
LARGEST_MERGES = 64 << 20  # bytes; 450,000 merges, the most of a published list, have some 8 MB


def load(vocab_json: StrPath, merges_txt: StrPath, special_tokens: Iterable[str] = ()) -> BPEModel:
    """Read both. `<|endoftext|>` in the vocabulary becomes a special token, as do those that are named.

    Raises:
        FormatError: naming the file, the line or key, and what is wrong with it.
    """
    vocab = read_json(vocab_json, "a GPT-2 vocabulary")
    if not isinstance(vocab, dict):
        raise FormatError(f"{vocab_json}: not an object of tokens and ids")
    added = []
    for content in dict.fromkeys([*special_tokens, *({END_OF_TEXT} & vocab.keys())]):
        if content not in vocab:
            raise FormatError(f"{vocab_json}: {content!r}, named as a special token, is not in the vocabulary")
        if not isinstance(vocab[content], int) or isinstance(vocab[content], bool):
            raise FormatError(f"{vocab_json}: the id of {content!r} is {vocab[content]!r}, not a whole number")
        added.append(AddedToken(content=content, id=vocab[content]))
    block = {"type": "BPE", "vocab": vocab, "merges": read_merges(merges_txt)}
    added.sort(key=lambda token: token.id)
    return hf_json.parse_model(block, added, "gpt2", f"{vocab_json} with {merges_txt}")


def read_merges(path: StrPath) -> list[str]:
    """The lines of a file of merges, each two tokens with a space between them; empty lines are passed over.

    Raises:
        FormatError: naming the line.
    """
    # Not splitlines(): tokens may hold characters that it takes for line ends.
    text = read_text(path, limit=LARGEST_MERGES, what="GPT-2 merges")
    if text.count("\n") > MOST_VALUES:
        raise FormatError(f"{path}: has more lines than the largest tokenizer has merges")
    lines = text.split("\n")
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
    others = [token.content for token in model.added_tokens if token.content != END_OF_TEXT]
    refuse_characters(folder, FORM, model)
    refuse(
        folder,
        FORM,
        [
            (model.pattern != "gpt2", f"the pattern {model.pattern!r}"),
            (bool(others), f"added tokens ({', '.join(map(repr, others[:5]))})"),
            *common_reasons(model),
        ],
    )
    refuse_doubles(folder, FORM, model)
    refuse_whole_pieces(folder, FORM, model)
    vocab, merges = hf_json.vocab_and_merges(model)
    write_text(Path(folder) / "vocab.json", json.dumps(vocab, ensure_ascii=False))
    write_text(
        Path(folder) / "merges.txt", "".join(["#version: 0.2\n", *(f"{left} {right}\n" for left, right in merges)])
    )
