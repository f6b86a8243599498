"""Checkpoints that know their tokenizer: what is embedded, and what is checked wherever one is loaded.

A checkpoint is a dict of plain types. These keys bind it to its tokenizer and its data:

| key | value |
| --- | --- |
| `tokenizer_fingerprint` | SHA-256 of the tokenizer, 64 lower-case hex digits |
| `tokenizer_fingerprint_version` | the version of the fingerprint's definition |
| `tokenizer` | the tokenizer itself, the text of `Tokenizer.to_json` |
| `vocab_size` | its ids, special tokens included |
| `data_fingerprint` | optional: SHA-256 of the ids that the model was trained on |
| `embedding_rows` | optional, set by you: declares that the embedding is padded to so many rows |

How the token embedding is found, and how padding is declared: `minigpt_tok.gpt.embedding_rows`.

| at load | result |
| --- | --- |
| same fingerprint | silent |
| other fingerprint | `TokenizerMismatchError`: both, the first thing that differs, how many ids change meaning |
| none | `TokenizerMismatchError`; with `allow_unverified=True` a warning |
| the tokenizer inside does not hash to the fingerprint inside | `TokenizerMismatchError`: damaged or edited |
| embedding rows ≠ vocabulary size | `TokenizerMismatchError` with both numbers |
"""

import dataclasses
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from minigpt_tok.checkpoint_files import read_checkpoint, refuse_other_types, write_checkpoint, write_safetensors
from minigpt_tok.difference import difference
from minigpt_tok.errors import FormatError, MiniGPTTokError, TokenizerMismatchError
from minigpt_tok.files import StrPath
from minigpt_tok.fingerprint import FINGERPRINT_VERSION
from minigpt_tok.gpt.embedding_rows import check_rows, embedding_rows
from minigpt_tok.tokenizer import Tokenizer

__all__ = [
    "embed_fingerprint",
    "embedding_rows",
    "read_checkpoint",
    "save_checkpoint",
    "save_safetensors",
    "tokenizer_of",
    "verify_checkpoint",
    "write_checkpoint",
]

Checkpoint = dict[str, Any]
FINGERPRINT_KEY = "tokenizer_fingerprint"
VERSION_KEY = "tokenizer_fingerprint_version"
TOKENIZER_KEY = "tokenizer"
VOCAB_SIZE_KEY = "vocab_size"
DATA_KEY = "data_fingerprint"


def embed_fingerprint(
    checkpoint: Checkpoint, tokenizer: Tokenizer, *, data_fingerprint: str | None = None
) -> Checkpoint:
    """Put the tokenizer and its fingerprint into a checkpoint, in place.

    Args:
        checkpoint: any dict that will be saved.
        tokenizer: the one whose ids the model was trained on.
        data_fingerprint: of those ids, see `minigpt_tok.data.identity.data_fingerprint`.

    Returns:
        The same dict.

    Raises:
        TokenizerMismatchError: another tokenizer is embedded already.
        FormatError: a key of ours is in use for something else, or the tokenizer has no JSON form.
    """
    return embed_text(checkpoint, tokenizer, tokenizer.to_json(), data_fingerprint)


def embed_text(checkpoint: Checkpoint, tokenizer: Tokenizer, text: str, data_fingerprint: str | None) -> Checkpoint:
    """As `embed_fingerprint`, with the tokenizer's JSON made beforehand, for whoever saves often."""
    present = checkpoint.get(FINGERPRINT_KEY)
    if present is not None and present != tokenizer.fingerprint:
        raise TokenizerMismatchError(
            f"the checkpoint carries the tokenizer {present} already, and {tokenizer.fingerprint} is to be embedded. If its "
            f"model was trained anew on ids of that one, remove the key {FINGERPRINT_KEY!r} and {TOKENIZER_KEY!r} first"
        )
    values = {
        FINGERPRINT_KEY: tokenizer.fingerprint,
        VERSION_KEY: tokenizer.fingerprint_version,
        TOKENIZER_KEY: text,
        VOCAB_SIZE_KEY: tokenizer.vocab_size,
        **({} if data_fingerprint is None else {DATA_KEY: data_fingerprint}),
    }
    if present is None:
        for key in (TOKENIZER_KEY, VOCAB_SIZE_KEY):
            if key in checkpoint and checkpoint[key] != values[key]:
                raise FormatError(
                    f"the checkpoint has a {key!r} of its own ({str(checkpoint[key])[:40]!r}), under the key that binds a "
                    "checkpoint to its tokenizer: rename it"
                )
    checkpoint.update(values)
    return checkpoint


def verify_checkpoint(
    checkpoint: Mapping[str, Any] | StrPath, tokenizer: Tokenizer, *, allow_unverified: bool = False
) -> None:
    """Check that a checkpoint belongs to a tokenizer: silent, or an error (the table at the head of this module).

    Args:
        checkpoint: the dict, or its file (whose weights are not read into memory).
        tokenizer: the one that makes the ids the model shall see.
        allow_unverified: accept a checkpoint without a fingerprint, with a warning. Accepts nothing else.

    Raises:
        TokenizerMismatchError: they do not belong together, or it cannot be established.
        FormatError: the file is no checkpoint.
        FileNotFoundError: there is no such file.
    """
    content, where = _opened(checkpoint)
    bound = bound_tokenizer(content, where, like=tokenizer)
    if bound is None:
        if not allow_unverified:
            raise TokenizerMismatchError(
                f"{where} has no tokenizer fingerprint, so nothing says with which tokenizer it was trained. If you know that "
                "it was this one, pass allow_unverified=True, and save it again with embed_fingerprint"
            )
        warnings.warn(
            f"{where} has no tokenizer fingerprint: taken as it is, since allow_unverified=True", stacklevel=2
        )
    elif bound.fingerprint != tokenizer.fingerprint:
        raise _mismatch(where, bound, tokenizer, checkpoint)
    check_rows(content, tokenizer.vocab_size, where)


def tokenizer_of(checkpoint: Mapping[str, Any] | StrPath) -> Tokenizer:
    """The tokenizer that a checkpoint carries, checked against its fingerprint.

    Raises:
        TokenizerMismatchError: it carries none, or one that is damaged or edited.
        FormatError: the file is no checkpoint.
    """
    content, where = _opened(checkpoint)
    bound = bound_tokenizer(content, where)
    if bound is None or bound.tokenizer is None:
        raise TokenizerMismatchError(
            f"{where} {'has no tokenizer fingerprint' if bound is None else 'does not carry its tokenizer'}: give the "
            "tokenizer's own file"
        )
    return bound.tokenizer


@dataclasses.dataclass(frozen=True)
class Bound:
    """What a checkpoint says of its tokenizer, checked; `tokenizer` is `None` if only the fingerprint is in it."""

    fingerprint: str
    tokenizer: Tokenizer | None


def bound_tokenizer(checkpoint: Mapping[str, Any], where: str, like: Tokenizer | None = None) -> Bound | None:
    """What a checkpoint says of its tokenizer; `None` if there is no fingerprint in it.

    `like`: a tokenizer that is probably the same; if it is, byte for byte, nothing is parsed.

    Raises:
        TokenizerMismatchError: damaged or edited, or a version of the fingerprint that is not known here.
    """
    fingerprint = checkpoint.get(FINGERPRINT_KEY)
    if fingerprint is None:
        return None
    if not isinstance(fingerprint, str) or re.fullmatch("[0-9a-f]{64}", fingerprint) is None:
        raise _damaged(where, f"its fingerprint is {str(fingerprint)[:80]!r}, not a SHA-256")
    version = checkpoint.get(VERSION_KEY, FINGERPRINT_VERSION)
    if version != FINGERPRINT_VERSION:
        raise TokenizerMismatchError(
            f"{where} has a fingerprint of version {version}, and version {FINGERPRINT_VERSION} is known here: use the "
            "release of minigpt-tok that wrote it, or a later one"
        )
    tokenizer = _inner_tokenizer(checkpoint, fingerprint, where, like)
    known = tokenizer or (like if like is not None and like.fingerprint == fingerprint else None)
    if VOCAB_SIZE_KEY in checkpoint and known is not None:
        size = checkpoint[VOCAB_SIZE_KEY]
        if type(size) is not int or size != known.vocab_size:
            raise _damaged(where, f"it says vocab_size is {size!r}, and its tokenizer has {known.vocab_size:,} ids")
    return Bound(fingerprint, tokenizer)


def _inner_tokenizer(
    checkpoint: Mapping[str, Any], fingerprint: str, where: str, like: Tokenizer | None
) -> Tokenizer | None:
    if TOKENIZER_KEY not in checkpoint:
        return None
    text = checkpoint[TOKENIZER_KEY]
    if not isinstance(text, str):
        raise _damaged(where, f"its tokenizer is {type(text).__name__}, not JSON text")
    if like is not None and like.fingerprint == fingerprint and text == like.to_json():
        return like
    try:
        tokenizer = Tokenizer.from_json(text)
    except MiniGPTTokError as error:
        raise _damaged(where, f"its tokenizer cannot be read ({error})") from None
    if tokenizer.fingerprint != fingerprint:
        raise _damaged(
            where,
            f"it says its tokenizer is {fingerprint}, and the tokenizer in it gives {tokenizer.fingerprint}",
        )
    return tokenizer


def _damaged(where: str, why: str) -> TokenizerMismatchError:
    return TokenizerMismatchError(f"{where}: damaged or edited: {why}. Take an earlier or original checkpoint")


def _mismatch(where: str, bound: Bound, given: Tokenizer, checkpoint: object) -> TokenizerMismatchError:
    lines = [
        f"{where}: made with another tokenizer than the one given",
        f"  the checkpoint's  {bound.fingerprint}",
        f"  the one given     {given.fingerprint}",
    ]
    if bound.tokenizer is None:
        lines.append(
            "It does not carry its tokenizer, so what differs cannot be said. Give the tokenizer it was trained with"
        )
        return TokenizerMismatchError("\n".join(lines))
    found = difference(bound.tokenizer, given, names=("the checkpoint's tokenizer", "the one given"))
    first, *others = found.reasons
    lines.append(f"First difference: {first}")
    lines += [f"  also {reason}" for reason in others[:2]]
    lines.append(f"{found.ids_sentence}.")
    source = repr(os.fspath(checkpoint)) if isinstance(checkpoint, str | os.PathLike) else "checkpoint"
    lines.append(f"To use this checkpoint, take its own tokenizer: minigpt_tok.checkpoint.tokenizer_of({source}).")
    lines.append("To use the tokenizer given, train a model on ids that it made.")
    return TokenizerMismatchError("\n".join(lines))


def _opened(checkpoint: Mapping[str, Any] | StrPath) -> tuple[Mapping[str, Any], str]:
    """The dict, and what to call it in messages."""
    if isinstance(checkpoint, Mapping):
        return checkpoint, "the checkpoint"
    if not isinstance(checkpoint, str | os.PathLike):
        raise FormatError(f"a checkpoint is a dict or a path, not {type(checkpoint).__name__}")
    return read_checkpoint(checkpoint, mapped=True), os.fspath(checkpoint)


# Plain PyTorch and safetensors


def save_checkpoint(
    path: StrPath,
    model: torch.nn.Module,
    tokenizer: Tokenizer,
    *,
    data_fingerprint: str | None = None,
    **more: Any,
) -> None:
    """Save a model bound to its tokenizer, for training loops in plain PyTorch; whole or not at all.

    Args:
        path: where; missing folders are made.
        model: its `state_dict` is saved, and its `config` if that is a dataclass.
        tokenizer: the one whose ids it was trained on.
        data_fingerprint: of those ids.
        more: further keys of plain types, such as `optimizer=optimizer.state_dict()` and `step=step`.

    Raises:
        TokenizerMismatchError: the model's embedding does not fit the tokenizer.
        FormatError: a key that is ours, or of a type that is not plain.
        OSError: it could not be written; an earlier file at `path` is still there.
    """
    checkpoint = _model_checkpoint(model, tokenizer, data_fingerprint, more)
    write_checkpoint(path, checkpoint)


def save_safetensors(
    path: StrPath,
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    tokenizer: Tokenizer,
    *,
    data_fingerprint: str | None = None,
    **more: Any,
) -> None:
    """Export the weights as safetensors, with the tokenizer, its fingerprint and the configuration as its metadata.

    `read_checkpoint` gives them back as a checkpoint. Arguments and errors as `save_checkpoint`; the model may be a
    state dict, and `more` is what JSON can hold.
    """
    checkpoint = _model_checkpoint(model, tokenizer, data_fingerprint, more)
    state = checkpoint.pop("state_dict")
    write_safetensors(path, state, checkpoint)


def _model_checkpoint(
    model: torch.nn.Module | Mapping[str, torch.Tensor],
    tokenizer: Tokenizer,
    data_fingerprint: str | None,
    more: Mapping[str, Any],
) -> Checkpoint:
    if isinstance(model, torch.nn.Module):
        checkpoint: Checkpoint = {"state_dict": model.state_dict()}
        config = getattr(model, "config", None)
        if dataclasses.is_dataclass(config) and not isinstance(config, type):
            checkpoint["config"] = dataclasses.asdict(config)
    else:
        checkpoint = {"state_dict": dict(model)}
    for key in more:
        if key in checkpoint or key in (FINGERPRINT_KEY, VERSION_KEY, TOKENIZER_KEY, VOCAB_SIZE_KEY):
            raise FormatError(f"the key {key!r} is written by this function itself: choose another name")
    checkpoint.update(more)
    check_rows(checkpoint, tokenizer.vocab_size, "the model")
    refuse_other_types(checkpoint)
    return embed_fingerprint(checkpoint, tokenizer, data_fingerprint=data_fingerprint)
