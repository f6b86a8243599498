"""Checkpoints that know their tokenizer: what is embedded, and what is checked wherever one is loaded.

A checkpoint is a dict of plain types. These keys bind it to its tokenizer and its data:

| key | value |
| --- | --- |
| `tokenizer_fingerprint` | SHA-256 of the tokenizer, 64 lower-case hex digits |
| `tokenizer_fingerprint_version` | the version of the fingerprint's definition |
| `tokenizer` | the tokenizer itself, the text of `Tokenizer.to_json` |
| `vocab_size` | its ids, special tokens included |
| `data_fingerprint` | optional: SHA-256 of the ids that the model was trained on, see `minigpt_tok.data.identity` |
| `transplant` | of a model that was given another tokenizer: of which it was made, see `minigpt_tok.transplant` |
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
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from minigpt_tok.checkpoint_binding import (
    DATA_KEY,
    FINGERPRINT_KEY,
    OWN_KEYS,
    TRANSPLANT_KEY,
    Bound,
    bound_tokenizer,
    described_transplant,
    embed,
    mismatch,
    unverified,
)
from minigpt_tok.checkpoint_files import read_checkpoint, refuse_other_types, write_checkpoint, write_safetensors
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.identity import data_fingerprint as fingerprint_of_data
from minigpt_tok.data.identity import id_metadata
from minigpt_tok.errors import FormatError, MiniGPTTokError, ModelError, TokenizerMismatchError
from minigpt_tok.files import StrPath
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.embedding_rows import check_rows, config_of, embedding_rows, state_of
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.tokenizer import Tokenizer

__all__ = [
    "Check",
    "CheckResult",
    "check",
    "embed_fingerprint",
    "load_model",
    "read_checkpoint",
    "save_checkpoint",
    "save_safetensors",
    "tokenizer_of",
    "verify_checkpoint",
    "write_checkpoint",
]

Checkpoint = dict[str, Any]


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
    embed(checkpoint, tokenizer, tokenizer.to_json(), data_fingerprint)
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
    verify_content(content, tokenizer, where, allow_unverified=allow_unverified, stacklevel=3)


def verify_content(
    content: Mapping[str, Any], tokenizer: Tokenizer, where: str, *, allow_unverified: bool, stacklevel: int = 2
) -> None:
    """As `verify_checkpoint`, of a checkpoint that has been read from `where`."""
    bound = bound_tokenizer(content, where, like=tokenizer)
    if bound is None:
        if not allow_unverified:
            raise TokenizerMismatchError(
                f"{unverified(where)}. If you know that it was this one, pass allow_unverified=True, and save it again with "
                "embed_fingerprint"
            )
        warnings.warn(f"{unverified(where)}: taken as it is (allow_unverified=True)", stacklevel=stacklevel)
    elif bound.fingerprint != tokenizer.fingerprint:
        raise mismatch(where, bound, tokenizer, "checkpoint" if where == _A_DICT else repr(where))
    check_rows(content, tokenizer.vocab_size, where)


def tokenizer_of(checkpoint: Mapping[str, Any] | StrPath) -> Tokenizer:
    """The tokenizer that a checkpoint carries, checked against its fingerprint.

    Raises:
        TokenizerMismatchError: it carries none, or one that is damaged or edited.
        FormatError: the file is no checkpoint.
        FileNotFoundError: there is no such file.
    """
    content, where = _opened(checkpoint)
    return _own_tokenizer(content, where)


def _own_tokenizer(content: Mapping[str, Any], where: str) -> Tokenizer:
    bound = bound_tokenizer(content, where)
    if bound is None or bound.tokenizer is None:
        what = unverified(where) if bound is None else f"{where} does not carry its tokenizer, only its fingerprint"
        raise TokenizerMismatchError(f"{what}: give the tokenizer's own file")
    return bound.tokenizer


_A_DICT = "the checkpoint"


def _opened(checkpoint: Mapping[str, Any] | StrPath) -> tuple[Mapping[str, Any], str]:
    """The dict, and what to call it in messages."""
    if isinstance(checkpoint, Mapping):
        return checkpoint, _A_DICT
    if not isinstance(checkpoint, str | os.PathLike):
        raise FormatError(f"a checkpoint is a dict or a path, not {type(checkpoint).__name__}")
    return read_checkpoint(checkpoint, mapped=True), os.fspath(checkpoint)


# Models


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
        FormatError: a key that is ours, or a value of a type that is not plain.
        OSError: it could not be written; an earlier file at `path` is still there.
    """
    write_checkpoint(path, _checkpoint_of(model, tokenizer, data_fingerprint, more))


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
    checkpoint = _checkpoint_of(model, tokenizer, data_fingerprint, more)
    write_safetensors(path, checkpoint.pop("state_dict"), checkpoint)


def _checkpoint_of(
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
        if key in checkpoint or key in OWN_KEYS:
            raise FormatError(f"the key {key!r} is written by this function itself: choose another name")
    checkpoint.update(more)
    check_rows(checkpoint, tokenizer.vocab_size, "the model")
    refuse_other_types(checkpoint)
    return embed_fingerprint(checkpoint, tokenizer, data_fingerprint=data_fingerprint)


def load_model(
    path: StrPath, tokenizer: Tokenizer | None = None, *, allow_unverified: bool = False
) -> tuple[MiniGPT, Tokenizer]:
    """Load a MiniGPT and its tokenizer from a checkpoint of Lightning, of `save_checkpoint` or of `save_safetensors`.

    Args:
        path: the checkpoint.
        tokenizer: the one that will be used; checked. `None`: the one that the checkpoint carries.
        allow_unverified: accept a checkpoint without a fingerprint for the tokenizer given, with a warning.

    Returns:
        The model, on the CPU and in evaluation mode, and the tokenizer. PyTorch's random state is as it was.

    Raises:
        TokenizerMismatchError: they do not belong together, or there is no tokenizer in it and none given.
        FormatError: the file is no checkpoint of a MiniGPT.
        ModelError: a configuration that this version does not know.
        FileNotFoundError: there is no such file.
    """
    checkpoint, where = read_checkpoint(path), os.fspath(path)
    if tokenizer is None:
        tokenizer = _own_tokenizer(checkpoint, where)
    verify_content(checkpoint, tokenizer, where, allow_unverified=allow_unverified, stacklevel=3)
    if (plain := config_of(checkpoint)) is None:
        raise FormatError(f"{where}: there is no configuration of a MiniGPT in it, so its model is another one")
    try:
        config = MiniGPTConfig.from_plain(plain)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    with torch.device("meta"):  # no memory, and no random numbers drawn, for weights that are replaced at once
        model = MiniGPT(config)
    try:
        model.load_state_dict(_weights_of(checkpoint, where), assign=True)
    except RuntimeError as error:
        raise FormatError(f"{where}: its weights do not fit its configuration: {str(error)[:300]}") from None
    return model.eval(), tokenizer


def _weights_of(checkpoint: Mapping[str, Any], where: str) -> dict[str, torch.Tensor]:
    """The MiniGPT's own weights, by its own names: without the prefix that a module around it gave them."""
    state = state_of(checkpoint)
    prefixes = [name.removesuffix("token_embedding.weight") for name in embedding_rows(state)]
    if not prefixes:
        raise FormatError(f"{where}: there is no token embedding among its weights, so its model is another one")
    return {name[len(prefixes[0]) :]: value for name, value in state.items() if name.startswith(prefixes[0])}


# Everything at once


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at: `ok` is `None` where there was nothing to compare."""

    name: str
    ok: bool | None
    message: str


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What `check` found; `str()` of it is a page to read.

    Attributes:
        path: of the checkpoint.
        fingerprint: that it carries, or `None`.
        checks: in the order in which they were made.
    """

    path: str
    fingerprint: str | None
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against their belonging together."""
        return all(item.ok is not False for item in self.checks)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"ok": self.ok, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        words = {True: "ok", False: "FAILED", None: "–"}
        width = max(len(item.name) for item in self.checks)
        lines = [self.path]
        for item in self.checks:
            first, *others = item.message.splitlines()
            lines.append(f"  {words[item.ok]:<6}  {item.name:<{width}}  {first}")
            lines += [f"  {'':<6}  {'':<{width}}  {line}" for line in others]
        return "\n".join(lines)


def check(path: StrPath, tokenizer: Tokenizer | StrPath | None = None, data: Any = None) -> CheckResult:
    """Look at everything that binds a checkpoint to a tokenizer and to data, and list it.

    Args:
        path: the checkpoint.
        tokenizer: one, or its file.
        data: an id file, the folder of an encoded corpus, or whatever else `data.identity.id_metadata` takes.

    Raises:
        FileNotFoundError: there is no such file.
        FormatError: the tokenizer's file is none.
        DataError: there are no id files where `data` says.
    """
    where = os.fspath(path)
    given = tokenizer if isinstance(tokenizer, Tokenizer | None) else Tokenizer.load(tokenizer)
    files = {} if data is None else id_metadata(data)
    try:
        checkpoint = read_checkpoint(path, mapped=True)
    except FormatError as error:
        return CheckResult(where, None, (Check("file", False, str(error)),))
    looked = _Looked(checkpoint, where, given)
    found = [Check("file", True, "whole, of plain types only"), looked.fingerprint(), looked.tokenizer_inside()]
    found.append(looked.rows())
    if TRANSPLANT_KEY in checkpoint:
        found.append(Check("transplanted", None, described_transplant(checkpoint[TRANSPLANT_KEY])))
    if given is not None:
        found.append(looked.tokenizer_given(given))
        found += looked.what_is_kept(given)
    trained_on = None if data is None else checkpoint.get(DATA_KEY)
    for name, metadata in files.items():
        is_train = metadata.split == "train" or len(files) == 1
        same = trained_on == fingerprint_of_data(data) if is_train and trained_on is not None else None
        found.append(looked.data(name, metadata.split, same))
    return CheckResult(where, None if looked.bound is None else looked.bound.fingerprint, tuple(found))


class _Looked:
    """A checkpoint that is being checked; each method is one check."""

    def __init__(self, checkpoint: Mapping[str, Any], where: str, given: Tokenizer | None) -> None:
        self.checkpoint = checkpoint
        self.where = where
        self.bound: Bound | None = None
        self.damage: str | None = None
        try:
            self.bound = bound_tokenizer(checkpoint, where, like=given)
        except TokenizerMismatchError as error:
            self.damage = str(error)
        self.known = given if self.bound is None or self.bound.tokenizer is None else self.bound.tokenizer

    def fingerprint(self) -> Check:
        value = self.checkpoint.get(FINGERPRINT_KEY)
        return Check("fingerprint", value is not None, unverified(self.where) if value is None else str(value)[:80])

    def tokenizer_inside(self) -> Check:
        name = "tokenizer inside"
        if self.damage is not None:
            return Check(name, False, self.damage)
        if self.bound is None or self.bound.tokenizer is None:
            return Check(name, None, "none to compare with its fingerprint")
        return Check(name, True, f"hashes to its fingerprint: {self.bound.tokenizer!r}")

    def rows(self) -> Check:
        name = "embedding rows"
        rows = embedding_rows(state_of(self.checkpoint))
        shown = ", ".join(f"{count:,} in {key}" for key, count in rows.items())
        if not rows or self.known is None:
            what = f"{shown}, and no tokenizer to compare with" if rows else "no token embedding found by its name"
            return Check(name, None, what)
        try:
            check_rows(self.checkpoint, self.known.vocab_size, self.where)
        except MiniGPTTokError as error:
            return Check(name, False, str(error))
        return Check(name, True, f"{shown}, for {self.known.vocab_size:,} ids")

    def tokenizer_given(self, given: Tokenizer) -> Check:
        name = "tokenizer given"
        if self.bound is None:
            return Check(name, False, self._unknown())
        if self.bound.fingerprint != given.fingerprint:
            return Check(name, False, str(mismatch(self.where, self.bound, given, repr(self.where))))
        return Check(name, True, "the one that the checkpoint was trained with")

    def what_is_kept(self, given: Tokenizer) -> list[Check]:
        """Of another tokenizer, what a transplant would keep; nothing where there is none to speak of."""
        from minigpt_tok.transplant import vocabulary_change  # it is made of what is in this module

        inside = None if self.bound is None else self.bound.tokenizer
        if inside is None or inside.fingerprint == given.fingerprint or not config_of(self.checkpoint):
            return []
        change = vocabulary_change(inside, given)
        advice = f"To make such a checkpoint: minigpt_tok.transplant.transplant({self.where!r}, tokenizer, …)"
        return [Check("what could be kept", None, f"{change}.\n{advice}")]

    def data(self, path: str, split: str, trained_on: bool | None) -> Check:
        name = f"data {split}"
        try:
            made_by = IdFile(path).metadata.tokenizer_fingerprint
        except FormatError as error:
            return Check(name, False, str(error))
        if self.bound is None:
            return Check(name, False, self._unknown())
        if made_by != self.bound.fingerprint:
            return Check(
                name,
                False,
                f"{path}: encoded with another tokenizer than the checkpoint's\n"
                f"  the checkpoint's  {self.bound.fingerprint}\n"
                f"  the ids'          {made_by}\n"
                "Encode the corpus with the checkpoint's tokenizer, or name the data that belongs to it.",
            )
        words = {True: "; what it was trained on", False: "; not what it was trained on", None: ""}
        return Check(name, True, f"{path}: encoded with the checkpoint's tokenizer{words[trained_on]}")

    def _unknown(self) -> str:
        return f"not established: {unverified(self.where) if self.damage is None else 'the checkpoint is damaged or edited'}"
