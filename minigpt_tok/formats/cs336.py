"""The CS336 form: a vocabulary `dict[int, bytes]` and merges `list[tuple[bytes, bytes]]`.

In files, as the course's fixtures have it: the vocabulary as a JSON object of token → id, the merges as lines of two
tokens, both in GPT-2's printable characters; or each as a pickle.
"""

import json
import pickle
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minigpt_tok.bpe.model import BYTE_TO_CHARACTER, AddedToken, BPEModel, bytes_of
from minigpt_tok.bpe.pretokenize import get_pretokenizer, known_pattern_name
from minigpt_tok.bpe.ranks import merge_list
from minigpt_tok.bpe.recipes import END_OF_TEXT
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, write_text, writing
from minigpt_tok.formats import plain_pickle
from minigpt_tok.formats.gpt2 import read_merges
from minigpt_tok.formats.limits import (
    common_reasons,
    refuse,
    refuse_characters,
    refuse_doubles,
    refuse_whole_pieces,
)
from minigpt_tok.formats.loaded import LARGEST_FILE, read_json, tokens_by_id

FORM = "the CS336 form"
PICKLES = (".pkl", ".pickle")

Vocab = dict[int, bytes]
Merges = list[tuple[bytes, bytes]]


def to_model(
    vocab: Mapping[int, bytes], merges: Sequence[tuple[bytes, bytes]], special_tokens: Sequence[str], pattern: str
) -> BPEModel:
    """From the two, and the specials by their text; specials that the vocabulary lacks are added at its end.

    Raises:
        FormatError: ids with a gap, a token twice, or a merge that the vocabulary lacks.
    """
    source = "the vocabulary"
    for id, raw in vocab.items():
        if not isinstance(raw, bytes) or not raw:
            raise FormatError(f"{source}: id {reprlib.repr(id)} is {reprlib.repr(raw)}, not bytes")
    tokens = tokens_by_id(vocab, source)
    specials = {token.encode("utf-8"): token for token in dict.fromkeys(special_tokens)}
    added = []
    id_of: dict[bytes, int] = {}
    for id, token in enumerate(tokens):
        if token is None:
            continue
        if token in id_of:
            raise FormatError(f"{source}: {token!r} has the ids {id_of[token]} and {id}")
        id_of[token] = id
        if token in specials:
            added.append(AddedToken(content=specials.pop(token), id=id))
            tokens[id] = None
    for text in specials.values():
        added.append(AddedToken(content=text, id=len(tokens)))
        tokens.append(None)
    pairs, results = [], []
    joined = 0  # bytes; a pickle can name one long token a million times
    for rank, merge in enumerate(merges):
        if not isinstance(merge, list | tuple) or len(merge) != 2 or not all(isinstance(part, bytes) for part in merge):
            raise FormatError(f"merge {rank} is {reprlib.repr(merge)}, not a pair of bytes")
        left, right = merge
        joined += len(left) + len(right)
        if joined > LARGEST_FILE:
            raise FormatError(f"merge {rank}: the merges up to here join more than {LARGEST_FILE:,} bytes")
        for part in (left, right, left + right):
            if part not in id_of:
                raise FormatError(f"merge {rank} joins {left!r} and {right!r}, but {part!r} is not in the vocabulary")
        pairs.append((id_of[left], id_of[right]))
        results.append(id_of[left + right])
    get_pretokenizer(pattern)  # refuses what is no pattern
    return BPEModel(
        tokens=tuple(tokens),
        merges=tuple(pairs),
        merge_results=tuple(results),
        pattern=known_pattern_name(pattern) or pattern,
        added_tokens=tuple(added),
    )


def from_model(model: BPEModel, source: StrPath = "the tokenizer") -> tuple[Vocab, Merges]:
    """Back to the two; specials stand in the vocabulary as their text. The pattern is for the caller to keep.

    Raises:
        FormatError: what makes the form unable to hold the tokenizer.
    """
    refuse_characters(source, FORM, model)
    refuse(source, FORM, common_reasons(model))
    refuse_doubles(source, FORM, model)
    refuse_whole_pieces(source, FORM, model)
    refuse(source, FORM, [(len(model.tokens) > len(_ids(model)), "holes in the ids")])
    vocab = {id: token for id, token in enumerate(model.tokens) if token is not None}
    vocab |= {token.id: token.content.encode("utf-8") for token in model.added_tokens}
    merges = [(vocab[left], vocab[right]) for left, right, _ in merge_list(model)]
    return dict(sorted(vocab.items())), merges


def load(vocab_path: StrPath, merges_path: StrPath, special_tokens: Sequence[str] = ()) -> tuple[Vocab, Merges]:
    """Read both files, each in JSON and lines or as a pickle, told apart by what is in it.

    Args:
        special_tokens: tokens that may stand in the vocabulary as they are, where they are no printable characters.

    Raises:
        FormatError: naming the file and what is wrong with it.
    """
    if _is_pickle(vocab_path):
        vocab = plain_pickle.load(vocab_path)
        if not isinstance(vocab, dict):
            raise FormatError(f"{vocab_path}: a pickle of {type(vocab).__name__}, not of dict")
    else:
        by_text = read_json(vocab_path, "a vocabulary")
        if not isinstance(by_text, dict):
            raise FormatError(f"{vocab_path}: not an object of tokens and ids")
        vocab = _by_id(by_text, special_tokens, vocab_path)
    if _is_pickle(merges_path):
        merges = plain_pickle.load(merges_path)
        if not isinstance(merges, list):
            raise FormatError(f"{merges_path}: a pickle of {type(merges).__name__}, not of list")
    else:
        pairs = (line.split(" ") for line in read_merges(merges_path))
        merges = [(_bytes(left, merges_path), _bytes(right, merges_path)) for left, right in pairs]
    return vocab, merges


def load_model(
    vocab_path: StrPath, merges_path: StrPath, special_tokens: Sequence[str] = (), pattern: str = "gpt2"
) -> BPEModel:
    """As `load`, to a model; `<|endoftext|>` in the vocabulary becomes a special token, as do those that are named.

    Raises:
        FormatError: naming the file and what is wrong with it.
    """
    vocab, merges = load(vocab_path, merges_path, special_tokens)
    specials = dict.fromkeys([*special_tokens, *([END_OF_TEXT] if END_OF_TEXT.encode() in vocab.values() else [])])
    try:
        return to_model(vocab, merges, tuple(specials), pattern)
    except FormatError as error:
        raise FormatError(f"{vocab_path} with {merges_path}: {error}") from None


def save_model(vocab_path: StrPath, merges_path: StrPath, model: BPEModel) -> None:
    """Write both files: pickles where the names end in `.pkl` or `.pickle`, else JSON and lines.

    Raises:
        FormatError: the form cannot hold the tokenizer, or the course's programs cut text by another pattern.
    """
    refuse_characters(vocab_path, FORM, model)
    refuse(vocab_path, FORM, [(model.pattern != "gpt2", f"the pattern {model.pattern!r}, and its programs use gpt2's")])
    vocab, merges = from_model(model, vocab_path)
    if Path(vocab_path).suffix in PICKLES:
        for path, value in ((vocab_path, vocab), (merges_path, merges)):
            with writing(path) as file:
                pickle.dump(value, file, protocol=4)
    else:
        save(vocab_path, merges_path, vocab, merges)


def save(vocab_path: StrPath, merges_path: StrPath, vocab: Mapping[int, bytes], merges: Merges) -> None:
    """Write both files in JSON and lines."""
    write_text(vocab_path, json.dumps({_printable(token): id for id, token in vocab.items()}, ensure_ascii=False))
    write_text(merges_path, "".join(f"{_printable(left)} {_printable(right)}\n" for left, right in merges))


def _ids(model: BPEModel) -> set[int]:
    return {id for id, token in enumerate(model.tokens) if token is not None} | model.added_ids


def _is_pickle(path: StrPath) -> bool:
    with open(path, "rb") as file:
        return file.read(1) == plain_pickle.FIRST_BYTE


def _by_id(by_text: dict[str, Any], special_tokens: Sequence[str], path: StrPath) -> Vocab:
    vocab: Vocab = {}
    for text, id in by_text.items():
        if not isinstance(id, int) or isinstance(id, bool):
            raise FormatError(f"{path}: the id of {text!r} is {id!r}, not a whole number")
        if id in vocab:
            raise FormatError(f"{path}: {text!r} has the id {id}, which another token has too")
        vocab[id] = text.encode("utf-8") if text in special_tokens else _bytes(text, path)
    return vocab


def _bytes(text: str, path: StrPath) -> bytes:
    try:
        return bytes_of(text)
    except KeyError as error:
        raise FormatError(
            f"{path}: {text!r} has {error.args[0]!r}, which stands for no byte; if it is a special token, name it as one"
        ) from None


def _printable(token: bytes) -> str:
    return "".join(BYTE_TO_CHARACTER[byte] for byte in token)
