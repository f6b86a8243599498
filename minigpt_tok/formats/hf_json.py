"""Hugging Face's `tokenizer.json` with a byte-level BPE model.

Every field is honoured or refused by name: a field that is silently skipped is wrong ids with no error anywhere. Our
own block inside `model` (fingerprint, training record) loads in `tokenizers`, which passes over unknown keys there.
Source of the form: the serialisation of `tokenizers` 0.23.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from minigpt_tok.bpe.model import BYTE_TO_CHARACTER, AddedToken, BPEModel, bytes_of
from minigpt_tok.bpe.pretokenize import PATTERNS, get_pretokenizer, known_pattern_name, oniguruma_expression
from minigpt_tok.bpe.ranks import merge_list
from minigpt_tok.bpe.trainer import Training
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.files import StrPath, write_text
from minigpt_tok.formats.loaded import Loaded, field, read_json, tokens_by_id

OWN_BLOCK = "minigpt_tok"
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
        raise _refusal(source, "version", document["version"])
    for key in ("truncation", "padding", "normalizer"):
        if document.get(key) is not None:
            raise _refusal(source, key, document[key])
    added = _added_tokens(field(document, "added_tokens", list, source, default=[]), source)
    pattern = _pattern(field(document, "pre_tokenizer", (dict, Nothing), source, default=None), source)
    _check_decoder(field(document, "decoder", (dict, Nothing), source, default=None), source)
    _check_post_processor(field(document, "post_processor", (dict, Nothing), source, default=None), source)
    block = field(document, "model", dict, source)
    model = parse_model(block, added, pattern, f"{source}: model")
    own = field(block, OWN_BLOCK, dict, f"{source}: model", default={})
    return Loaded(
        model,
        training=_training(own.get("training"), source),
        fingerprint=field(own, "fingerprint", str, f"{source}: model.{OWN_BLOCK}", default=None),
        source=source,
    )


def _refusal(source: str, where: str, value: Any) -> FormatError:
    shown = value.get("type", value) if isinstance(value, dict) else value
    return FormatError(
        f"{source}: {where} is {shown!r}, which is not honoured here; loading without it would give other ids than the file means"
    )


def _training(plain: Any, source: str) -> Training | None:
    if plain is None:
        return None
    try:
        return Training.from_plain(plain)
    except (TypeError, KeyError):
        raise FormatError(f"{source}: model.{OWN_BLOCK}.training is not a training record of this version") from None


def _added_tokens(items: list[Any], source: str) -> list[AddedToken]:
    tokens = []
    seen_content: set[str] = set()
    seen_id: set[int] = set()
    for number, item in enumerate(items):
        where = f"{source}: added_tokens[{number}]"
        flags = {
            flag: field(item, flag, bool, where, default=False)
            for flag in ("special", "lstrip", "rstrip", "single_word", "normalized")
        }
        token = AddedToken(content=field(item, "content", str, where), id=field(item, "id", int, where), **flags)
        if not token.content:
            raise FormatError(f"{where}.content is empty, which would match everywhere")
        if token.content in seen_content or token.id in seen_id:
            raise FormatError(f"{where}: {token.content!r} with id {token.id} stands twice")
        seen_content.add(token.content)
        seen_id.add(token.id)
        tokens.append(token)
    return sorted(tokens, key=lambda token: token.id)


def _pattern(pre: dict[str, Any] | None, source: str) -> str:
    """The pattern that the pre-tokenizer amounts to; it must end in bytes (ByteLevel)."""
    where = f"{source}: pre_tokenizer"
    if pre is None:
        raise FormatError(f"{where} is null, so the model's tokens are not bytes: not a byte-level tokenizer")
    steps = field(pre, "pretokenizers", list, where) if pre.get("type") == "Sequence" else [pre]
    for number, step in enumerate(steps):
        if not isinstance(step, dict):
            raise FormatError(f"{where}.pretokenizers[{number}]: is not an object")
    if not steps or steps[-1].get("type") != "ByteLevel":
        raise FormatError(
            f"{where} does not end in ByteLevel, so the model's tokens are not bytes: not a byte-level tokenizer"
        )
    if field(steps[-1], "add_prefix_space", bool, where, default=True):
        raise _refusal(source, "pre_tokenizer.add_prefix_space", True)
    uses_gpt2 = field(steps[-1], "use_regex", bool, where, default=True)
    if len(steps) == 1:
        return "gpt2" if uses_gpt2 else "none"
    if len(steps) == 2 and not uses_gpt2:
        return _split_pattern(steps[0], source)
    if len(steps) == 2 and steps[0].get("type") == "Digits" and steps[0].get("individual_digits") is True:
        return "smollm"
    raise _refusal(source, "pre_tokenizer", [step.get("type") for step in steps])


def _split_pattern(step: dict[str, Any], source: str) -> str:
    where = f"{source}: pre_tokenizer"
    if step.get("type") != "Split" or step.get("behavior") != "Isolated" or step.get("invert", False):
        raise _refusal(source, "pre_tokenizer", {key: step.get(key) for key in ("type", "behavior", "invert")})
    pattern = field(step, "pattern", dict, where)
    if set(pattern) != {"Regex"}:
        raise _refusal(source, "pre_tokenizer.pattern", pattern)
    expression: str = field(pattern, "Regex", str, where)
    name = known_pattern_name(expression, engine="oniguruma")
    if name is None and known_pattern_name(expression) is not None:
        # `{1,3}+` is a possessive repeat where it was published, and one or more repeats in the engine of this file.
        raise FormatError(
            f"{where}.pattern: this spelling of {known_pattern_name(expression)} means something else in a tokenizer.json "
            "than where it was published, and which of the two is meant cannot be told"
        )
    if name is not None:
        return name
    if re.fullmatch(r"[\w-]+", expression):  # which would be taken for a pattern's name
        expression = f"(?:{expression})"
    try:
        get_pretokenizer(expression)
    except TokenizerError as error:
        raise FormatError(f"{where}.pattern.Regex: {error}") from None
    return expression


def _check_decoder(decoder: dict[str, Any] | None, source: str) -> None:
    if decoder is None or decoder.get("type") != "ByteLevel":
        raise _refusal(source, "decoder", decoder)


def _check_post_processor(processor: Any, source: str) -> None:
    # It acts only where special tokens are asked to be added, which is not done here: ids do not depend on it.
    if processor is not None and not isinstance(processor, dict):
        raise FormatError(f"{source}: post_processor: has a part that is not an object")
    if processor is None or processor.get("type") in ("ByteLevel", "TemplateProcessing"):
        return
    if processor.get("type") == "Sequence":
        for part in field(processor, "processors", list, f"{source}: post_processor"):
            _check_post_processor(part, source)
        return
    raise _refusal(source, "post_processor", processor)


def parse_model(block: dict[str, Any], added: list[AddedToken], pattern: str, where: str) -> BPEModel:
    """From the `model` block alone: GPT-2's two files hold the same."""
    if block.get("type", "BPE") != "BPE":
        raise _refusal(where, "type", block["type"])
    for key, neutral in (
        ("dropout", (None, 0, 0.0)),
        ("unk_token", (None,)),
        ("continuing_subword_prefix", (None, "")),
        ("end_of_word_suffix", (None, "")),
        ("fuse_unk", (None, False)),
        ("byte_fallback", (None, False)),
    ):
        if block.get(key) not in neutral:
            raise _refusal(where, key, block[key])
    known = {
        "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
        "ignore_merges", "vocab", "merges", OWN_BLOCK,
    }  # fmt: skip
    for key in sorted(set(block) - known):
        raise FormatError(f"{where}: the field {key!r} is not known, so its effect on the ids is not either")
    holes = _declared_holes(block, where)
    tokens = _tokens(field(block, "vocab", dict, where), added, where, gaps=bool(holes))
    if holes and holes != holes_in(tokens, added):
        raise FormatError(f"{where}.{OWN_BLOCK}.holes: are not the ids that no token has: damaged or edited")
    id_of = {token: id for id, token in enumerate(tokens) if token is not None}
    pairs, results = [], []
    for rank, merge in enumerate(field(block, "merges", list, where)):
        left, right = (_bytes(part, f"{where}.merges[{rank}]") for part in _halves(merge, f"{where}.merges[{rank}]"))
        for part in (left, right, left + right):
            if part not in id_of:
                raise FormatError(f"{where}.merges[{rank}]: {_printable(part)!r} is not in the vocabulary")
        pairs.append((id_of[left], id_of[right]))
        results.append(id_of[left + right])
    return BPEModel(
        tokens=tuple(tokens),
        merges=tuple(pairs),
        merge_results=tuple(results),
        whole_piece=field(block, "ignore_merges", bool, where, default=False),
        pattern=pattern,
        added_tokens=tuple(added),
    )


def _declared_holes(block: dict[str, Any], where: str) -> list[list[int]]:
    """The holes that our own block declares; undeclared ones are a file cut short."""
    own = field(block, OWN_BLOCK, dict, where, default={})
    return field(own, "holes", list, f"{where}.{OWN_BLOCK}", default=[])  # type: ignore[no-any-return]


def holes_in(tokens: Sequence[bytes | None], added: Iterable[AddedToken]) -> list[list[int]]:
    """The ids that no token has, as [first, last] of each run of them."""
    taken = {token.id for token in added}
    runs: list[list[int]] = []
    for id, token in enumerate(tokens):
        if token is not None or id in taken:
            continue
        if runs and runs[-1][1] == id - 1:
            runs[-1][1] = id
        else:
            runs.append([id, id])
    return runs


def _tokens(vocab: dict[str, Any], added: list[AddedToken], where: str, *, gaps: bool = False) -> list[bytes | None]:
    by_id: dict[Any, bytes | None] = {token.id: None for token in added}
    contents = {token.content: token.id for token in added}
    for text, id in vocab.items():
        if text in contents:
            if contents[text] != id:
                raise FormatError(f"{where}.vocab: {text!r} has the id {id!r}, and as an added token {contents[text]}")
            continue
        if not isinstance(id, int) or isinstance(id, bool):
            raise FormatError(f"{where}.vocab: {text!r} has the id {id!r}, which is not a whole number")
        if id in by_id:
            raise FormatError(f"{where}.vocab: {text!r} has id {id!r}, which another token has too")
        by_id[id] = _bytes(text, f"{where}.vocab")
    return tokens_by_id(by_id, f"{where}.vocab", gaps=gaps)


def _halves(merge: Any, where: str) -> tuple[str, str]:
    halves = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(halves, list) or len(halves) != 2 or not all(isinstance(half, str) and half for half in halves):
        raise FormatError(f"{where}: is {merge!r}, not two tokens")
    return halves[0], halves[1]


def _bytes(text: str, where: str) -> bytes:
    try:
        return bytes_of(text)
    except KeyError as error:
        raise FormatError(
            f"{where}: {text!r} has {error.args[0]!r}, which stands for no byte: not a byte-level vocabulary"
        ) from None


def _printable(token: bytes) -> str:
    return "".join(BYTE_TO_CHARACTER[byte] for byte in token)


# Writing


def to_json(model: BPEModel, training: Training | None, fingerprint: str) -> str:
    """The text of the file.

    Raises:
        FormatError: the form cannot hold this tokenizer with the same ids.
    """
    vocab, merges = vocab_and_merges(model, holes=True)
    holes = holes_in(model.tokens, model.added_tokens)
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token.id,
                "content": token.content,
                "single_word": token.single_word,
                "lstrip": token.lstrip,
                "rstrip": token.rstrip,
                "normalized": token.normalized,
                "special": token.special,
            }
            for token in sorted(model.added_tokens, key=lambda token: token.id)
        ],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer_of(model.pattern),
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": model.whole_piece,
            OWN_BLOCK: {
                "version": OWN_VERSION,
                "fingerprint": fingerprint,
                **({"holes": holes} if holes else {}),
                "training": None if training is None else training.to_plain(),
            },
            "vocab": vocab,
            "merges": merges,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def vocab_and_merges(model: BPEModel, *, holes: bool = False) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges in printable characters; `holes` in the ids are refused unless the form can say that it has them.

    Raises:
        FormatError: the form cannot hold them.
    """
    if model.unit != "byte":
        raise FormatError("this form is byte-level; a character tokenizer is saved as character_bpe")
    text_of: dict[int, str] = {token.id: token.content for token in model.added_tokens}
    vocab: dict[str, int] = {}
    for id, token in enumerate(model.tokens):
        if token is not None:
            text_of[id] = _printable(token)
        elif id not in text_of:
            if holes:
                continue
            raise FormatError(f"this form can have no holes in its ids, and id {id} is one")
        if text_of[id] in vocab:
            raise FormatError(f"this form cannot hold two ids ({vocab[text_of[id]]} and {id}) written {text_of[id]!r}")
        vocab[text_of[id]] = id
    return vocab, [(text_of[left], text_of[right]) for left, right, _ in merge_list(model)]


def save(path: StrPath, model: BPEModel, training: Training | None, fingerprint: str) -> None:
    """Write the file, whole or not at all."""
    write_text(path, to_json(model, training, fingerprint))


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


def pre_tokenizer_of(pattern: str) -> dict[str, Any]:
    """The `pre_tokenizer` that cuts as a pattern does, and ends in bytes."""
    if pattern == "gpt2":
        return _byte_level(True)
    if pattern == "none":
        return _byte_level(False)
    if pattern == "smollm":
        steps = [{"type": "Digits", "individual_digits": True}, _byte_level(True)]
    else:
        expression = oniguruma_expression(pattern) if pattern in PATTERNS else pattern
        split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        steps = [split, _byte_level(False)]
    return {"type": "Sequence", "pretokenizers": steps}
