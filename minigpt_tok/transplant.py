"""Another tokenizer for a trained model: embeddings for the new ids, made of the old ones.

A checkpoint is bound to its tokenizer, and nothing here loosens that: `transplant` makes a *new* checkpoint that is bound
to the new tokenizer and says where it comes from. All other weights stay as they are. The model has to be trained on:
its embeddings are a guess.

| a new token | its embedding |
| --- | --- |
| the old tokenizer has it (the same bytes; a special, the same text) | that one's, copied |
| it has not | the mean of those of the pieces that the old tokenizer splits it into |
| the old tokenizer cannot split it (a character that it lacks) | the mean of all |
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minigpt_tok._version import __version__
from minigpt_tok.checkpoint import load_model, read_checkpoint, save_checkpoint
from minigpt_tok.checkpoint_binding import DATA_KEY, TRANSPLANT_KEY
from minigpt_tok.errors import ModelError, TokenizerError
from minigpt_tok.files import StrPath, sha256_of
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, eq=False)
class VocabularyChange:
    """Of which old ids each new id is made; `str()` of it is a sentence.

    Attributes:
        old_size, new_size: ids in both.
        copied: new ids that the old tokenizer has.
        averaged: new ids that it splits.
        unknown: new ids that it cannot split.
        dropped: old ids that the new tokenizer does not have.
        pieces: int64, the old ids of new id 0, then those of 1, and so on; none for an unknown one.
        starts: int64 `(new_size,)`, where those of each begin.
    """

    old_size: int
    new_size: int
    copied: int
    averaged: int
    unknown: int
    dropped: int
    pieces: np.ndarray
    starts: np.ndarray

    def embeddings(self, old: torch.Tensor) -> torch.Tensor:
        """Rows for the new ids, `(new_size, width)`, of the old ones, `(at least old_size, width)`; of their dtype."""
        rows = old[: self.old_size].detach().float()
        new = torch.nn.functional.embedding_bag(
            torch.from_numpy(self.pieces), rows, torch.from_numpy(self.starts), mode="mean"
        )
        lengths = np.diff(self.starts, append=len(self.pieces))
        new[torch.from_numpy(lengths == 0)] = rows.mean(dim=0)
        return new.to(old.dtype)

    def __str__(self) -> str:
        text = (
            f"of the {self.new_size:,} ids of the new tokenizer, {self.copied:,} keep their embedding, {self.averaged:,} "
            "would get the mean of the pieces that the old one splits them into"
        )
        text += f", {self.unknown:,} that of all, since the old one lacks their characters" if self.unknown else ""
        return f"{text}; {self.dropped:,} of the {self.old_size:,} old ids would go"


def vocabulary_change(old: Tokenizer, new: Tokenizer) -> VocabularyChange:
    """What becomes of a vocabulary where another tokenizer takes its place."""
    special_of = old.special_tokens
    ordinary_of: dict[bytes, int] = {}
    for id in range(old.vocab_size - 1, -1, -1):  # the first of equal ones wins
        if (raw := _bytes_of(old, id)) is not None:
            ordinary_of[raw] = id
    specials = {id: text for text, id in new.special_tokens.items()}
    pieces: list[Sequence[int]] = [()] * new.vocab_size
    to_split: dict[int, bytes] = {}
    for id in range(new.vocab_size):
        raw = specials[id].encode("utf-8") if id in specials else _bytes_of(new, id)
        known = special_of.get(specials[id]) if id in specials else ordinary_of.get(raw) if raw is not None else None
        if known is not None:
            pieces[id] = (known,)
        elif raw is not None:
            to_split[id] = raw
    copied = [id for id in range(new.vocab_size) if pieces[id]]
    kept = {pieces[id][0] for id in copied}
    for id, split in zip(to_split, _split(old, ordinary_of, list(to_split.values())), strict=True):
        pieces[id] = split
    lengths = np.array([len(part) for part in pieces], dtype=np.int64)
    unknown = int((lengths == 0).sum())
    return VocabularyChange(
        old_size=old.vocab_size,
        new_size=new.vocab_size,
        copied=len(copied),
        averaged=new.vocab_size - len(copied) - unknown,
        unknown=unknown,
        dropped=old.vocab_size - len(kept),
        pieces=np.array([id for part in pieces for id in part], dtype=np.int64),
        starts=np.cumsum(lengths) - lengths,
    )


def _bytes_of(tokenizer: Tokenizer, id: int) -> bytes | None:
    """Of an ordinary token; `None` for specials and holes."""
    if not tokenizer.byte_lengths[id]:
        return None
    return tokenizer.token_bytes(id)


def _split(old: Tokenizer, ordinary_of: dict[bytes, int], tokens: list[bytes]) -> list[Sequence[int]]:
    """The old ids of each token's bytes: encoded as text where they are text, else byte by byte."""
    texts = {number: text for number, raw in enumerate(tokens) if (text := _text(raw)) is not None}
    found: list[Sequence[int]] = [()] * len(tokens)
    try:
        ids, offsets = old.encode_batch_to_numpy(list(texts.values()), disallowed_special=())
        for number, start, end in zip(texts, offsets[:-1], offsets[1:], strict=True):
            found[number] = ids[start:end].tolist()
    except TokenizerError:  # characters that the old one lacks; the others of the token count
        for number, text in texts.items():
            parts = (ordinary_of.get(character.encode("utf-8")) for character in text)
            found[number] = _encoded(old, text) or [id for id in parts if id is not None]
    for number, raw in enumerate(tokens):
        if number not in texts:
            parts = (ordinary_of.get(raw[at : at + 1]) for at in range(len(raw)))
            found[number] = [id for id in parts if id is not None]
    return found


def _encoded(old: Tokenizer, text: str) -> list[int]:
    try:
        return old.encode(text, disallowed_special=())
    except TokenizerError:
        return []


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def transplant(
    checkpoint: StrPath,
    tokenizer: Tokenizer,
    out: StrPath,
    *,
    overwrite: bool = False,
    confirm: Callable[[VocabularyChange], None] | None = None,
) -> VocabularyChange:
    """Make a checkpoint of a MiniGPT for another tokenizer.

    The new checkpoint has weights and configuration alone: no optimizer, no place in any data. Under the key `transplant`
    it says of which tokenizer and file it was made and how many embeddings were copied.

    Args:
        checkpoint: that of the model; it must carry its own tokenizer.
        tokenizer: the new one.
        out: the new checkpoint's file.
        overwrite: replace what stands there.
        confirm: called with what will become of the vocabulary before anything is written; raise to stop.

    Raises:
        TokenizerMismatchError: the checkpoint carries no tokenizer, or is damaged or edited.
        ModelError: there is something at `out`, or the checkpoint has this very tokenizer.
        FormatError: the file is no checkpoint of a MiniGPT.
        FileNotFoundError: there is no such file.
    """
    if Path(out).exists() and not overwrite:
        raise ModelError(f"{out} is there already; choose another name, or replace it with overwrite=True")
    model, old = load_model(checkpoint)
    if old.fingerprint == tokenizer.fingerprint:
        raise ModelError(f"{checkpoint} has this very tokenizer, {old.fingerprint}: there is nothing to transplant")
    before = read_checkpoint(checkpoint, mapped=True)
    change = vocabulary_change(old, tokenizer)
    if confirm is not None:
        confirm(change)
    provenance = {
        "from_tokenizer": old.fingerprint,
        "from_checkpoint_sha256": sha256_of(checkpoint),
        "from_data": before.get(DATA_KEY),
        "copied": change.copied,
        "averaged": change.averaged,
        "unknown": change.unknown,
        "package_version": __version__,
        "before": before.get(TRANSPLANT_KEY),
    }
    more: dict[str, Any] = {TRANSPLANT_KEY: provenance}
    save_checkpoint(out, _with_vocabulary(model, change), tokenizer, **more)
    return change


def _with_vocabulary(model: MiniGPT, change: VocabularyChange) -> MiniGPT:
    config = dataclasses.replace(model.config, vocab_size=change.new_size)
    with torch.device("meta"):
        new = MiniGPT(config)
    state = dict(model.state_dict())
    name = "token_embedding.weight"
    rows = state[name].new_zeros(config.embedding_rows, config.embedding_dim)  # padded rows are never read
    rows[: change.new_size] = change.embeddings(state[name])
    new.load_state_dict({**state, name: rows}, assign=True)
    return new.eval()
