"""Hugging Face's `tokenizer.json` with a byte-level BPE model.

Every field is honoured or refused by name: a field that is silently skipped is wrong ids with no error anywhere. Our
own block inside `model` (fingerprint, training record) loads in `tokenizers`, which passes over unknown keys there.
Source of the form: the serialisation of `tokenizers` 0.23.

| module | part of the file |
| --- | --- |
| `hf_steps` | `normalizer`, `pre_tokenizer` |
| `hf_model` | `added_tokens`, `model` |
| `hf_after` | `post_processor`, `decoder` |
"""

import json
from typing import Any

from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.patterns import known_pattern_name
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.ranks import unreachable_ids
from minigpt_tok.bpe.trainer import Training
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.files import StrPath, write_text
from minigpt_tok.formats.hf_after import Carried, read_decoder, read_post_processor
from minigpt_tok.formats.hf_model import (
    OWN_BLOCK,
    can_be_a_piece,
    check_numbering,
    holes_in,
    parse_model,
    printable,
    read_added_tokens,
    vocab_and_merges,
    write_added_tokens,
)
from minigpt_tok.formats.hf_steps import (
    pre_tokenizer_of,
    read_normalizer,
    read_pre_tokenizer,
    write_normalizer,
    write_pre_tokenizer,
)
from minigpt_tok.formats.loaded import Loaded, field, read_json, refusal

__all__ = [
    "OWN_BLOCK",
    "load",
    "parse",
    "parse_model",
    "pre_tokenizer_of",
    "printable",
    "save",
    "to_json",
    "vocab_and_merges",
    "write_pre_tokenizer",
]

OWN_VERSION = 1
Nothing = type(None)


def load(path: StrPath) -> Loaded:
    """Read a file.

    Raises:
        FormatError: naming the field, its value and the place of what is broken or cannot be honoured.
    """
    return parse(read_json(path, "a tokenizer.json"), str(path))


def parse(document: Any, source: str) -> Loaded:
    """From the parsed JSON."""
    if not isinstance(document, dict):
        raise FormatError(f"{source}: a {type(document).__name__} in JSON, not the object that a tokenizer.json is")
    known = {
        "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model",
    }  # fmt: skip
    for key in sorted(set(document) - known):
        raise FormatError(f"{source}: the field {key!r} is not known, so its effect on the ids is not either")
    if field(document, "version", str, source, default="1.0") != "1.0":
        raise refusal(source, "version", document["version"])
    for key in ("truncation", "padding"):
        if document.get(key) is not None:
            raise FormatError(
                f"{source}: {key} is set, by which tokenizers would change the ids of a text for a program's sake; set it to "
                "null in the file"
            )

    def part(key: str) -> Any:
        return field(document, key, (dict, Nothing), source, default=None), f"{source}: {key}"

    block = field(document, "model", dict, source)
    where = f"{source}: model"
    own = field(block, OWN_BLOCK, dict, where, default={})
    items = field(document, "added_tokens", list, source, default=[])
    normalizer = read_normalizer(*part("normalizer"))
    added = read_added_tokens(items, normalizer, source)
    pre_tokenizer, place = part("pre_tokenizer")
    if "pattern" in own:  # an expression that was ours first, and is not read alike by everyone
        pattern, pipeline = _own_pattern(field(own, "pattern", str, f"{where}.{OWN_BLOCK}"), place), None
    else:
        pattern, pipeline = read_pre_tokenizer(pre_tokenizer, normalizer, place)
    model = parse_model(block, added, pattern, where, normalizer=normalizer, pipeline=pipeline)
    check_numbering(items, block["vocab"], source)
    carried = read_post_processor(*_with_model(part("post_processor"), model))
    decoder, place = part("decoder")
    return Loaded(
        model,
        training=_training(own.get("training"), source),
        fingerprint=field(own, "fingerprint", str, f"{where}.{OWN_BLOCK}", default=None),
        source=source,
        carried=Carried(carried.before, carried.after, carried.post_processor, read_decoder(decoder, place)),
    )


def _own_pattern(pattern: str, where: str) -> str:
    try:
        get_pretokenizer(pattern)
    except TokenizerError as error:
        raise FormatError(f"{where}: {error}") from None
    return pattern


def _read_back(model: BPEModel, pre_tokenizer: dict[str, Any] | None) -> str | None:
    """The pattern that this file's readers will take the pre-tokenizer for."""
    try:
        return read_pre_tokenizer(pre_tokenizer, model.normalizer, "pre_tokenizer")[0]
    except FormatError:
        return None


def _with_model(part: tuple[Any, str], model: BPEModel) -> tuple[Any, BPEModel, str]:
    return part[0], model, part[1]


def _training(plain: Any, source: str) -> Training | None:
    if plain is None:
        return None
    try:
        return Training.from_plain(plain)
    except (TypeError, KeyError):
        raise FormatError(f"{source}: model.{OWN_BLOCK}.training is not a training record of this version") from None


def to_json(model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None) -> str:
    """The text of the file.

    Raises:
        FormatError: the form cannot hold this tokenizer with the same ids.
    """
    carried = carried or Carried()
    vocab, merges = vocab_and_merges(model, holes=True)
    own: dict[str, Any] = {
        "version": OWN_VERSION,
        "fingerprint": fingerprint,
        "training": None if training is None else training.to_plain(),
    }
    whole_piece = model.whole_piece and bool(unreachable_ids(model))  # else it has no effect
    for token in model.added_tokens if whole_piece else ():
        # Their ids stand in the vocabulary, where the lookup would find them.
        if model.tokens[token.id] is None and can_be_a_piece(token.content, model.pattern, model.pipeline):
            raise FormatError(
                f"this form cannot hold whole-piece lookup and the added token {token.content!r}, which can be a piece of text"
            )
    if holes := holes_in(model.tokens, model.added_tokens):
        own["holes"] = holes
    pre_tokenizer = write_pre_tokenizer(model.pattern, model.pipeline, model.normalizer)
    if model.pipeline is None and _read_back(model, pre_tokenizer) not in (
        model.pattern,
        known_pattern_name(model.pattern),
    ):
        own["pattern"] = model.pattern
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": write_added_tokens(model),
        "normalizer": write_normalizer(model.normalizer),
        "pre_tokenizer": pre_tokenizer,
        "post_processor": carried.post_processor,
        "decoder": carried.decoder
        or {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": whole_piece,
            OWN_BLOCK: own,
            "vocab": vocab,
            "merges": merges,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def save(
    path: StrPath, model: BPEModel, training: Training | None, fingerprint: str, carried: Carried | None = None
) -> None:
    """Write the file, whole or not at all."""
    write_text(path, to_json(model, training, fingerprint, carried))
