"""Reading a tokenizer of any known form, told apart by what is in the file, never by its name.

What is no tokenizer, or one of another kind, is called by its name: a SentencePiece model, a model's weights, the page of
an error. Names of files matter in two places only: a folder is searched for the usual ones, and a form of two files finds
the other one beside the one that was given.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.files import StrPath
from minigpt_tok.formats import character, cs336, hf_json, hub, plain_pickle, tekken, tiktoken
from minigpt_tok.formats.foreign import foreign_file, foreign_json
from minigpt_tok.formats.loaded import Loaded, parse_json, read_json

START = 1 << 14  # bytes that tell what a file is
VOCABULARIES = ("vocab.json", "encoder.json")
MERGES = ("merges.txt", "vocab.bpe")
_SETTINGS = ("tokenizer_config.json", "config.json", "special_tokens_map.json")  # which lie beside tokenizers
_RANKS_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?")
_MERGES_LINE = re.compile(r"[!-~¡-¬®-ń]+ [!-~¡-¬®-ń]+\r?")

SpecialIds = Mapping[str, int | None]  # token → id, or None where the file has it


def from_json(text: str, source: str) -> Loaded:
    """From the text of any JSON form that stands alone.

    Raises:
        FormatError: no known form; the message says what it seems to be.
    """
    return _from_document(parse_json(text, source), source)


def load(path: StrPath, *, pattern: str | None = None, special_tokens: SpecialIds | None = None) -> Loaded:
    """Read a tokenizer of any known form: a file, or a folder that holds one.

    Args:
        path: the file or folder; of a form of two files either of them; or `hf:NAME@REVISION`, see `hub`.
        pattern: the pre-tokenizer, for forms that do not name theirs (ranks, vocabulary with merges).
        special_tokens: likewise token → id; the id may be `None` where the file has the token.

    Raises:
        FormatError: no known form, with what it seems to be.
        TokenizerError: pattern or special tokens for a form that names its own; or a repository that cannot be fetched.
        FileNotFoundError: there is no such file.
    """
    if hub.is_hub_name(path):
        folder, name = hub.fetch(str(path))
        try:
            return replace(load(folder, pattern=pattern, special_tokens=special_tokens), name=name)
        except FormatError as error:
            raise FormatError(f"{name}: {error}") from None
    place = Path(path)
    if place.is_dir():
        place = _in_folder(place)
    with open(place, "rb") as file:
        start = file.read(START)
    named = _Named(pattern, dict(special_tokens or {}), place)
    if start[:1] == plain_pickle.FIRST_BYTE and (pair := _pair_of(place, start)) is not None:
        return named.two_files(*pair)
    if (other := foreign_file(start, place)) is not None:
        raise FormatError(f"{place}: {other}")
    if is_ranks(start):
        return named.ranks()
    text = start.lstrip()
    if text[:1] in (b"{", b"["):
        document = read_json(place, "a tokenizer")
        if not is_vocabulary(document):
            named.refuse()
            return _from_document(document, str(place))
        if (pair := _pair_of(place, start)) is not None:
            return named.two_files(*pair)
        return _from_document(document, str(place))
    if is_merges(start):
        if (pair := _pair_of(place, start)) is not None:
            return named.two_files(*pair)
        raise FormatError(
            f"{place}: merges without their vocabulary; put vocab.json beside them as merges.txt, or use Tokenizer.from_gpt2"
        )
    raise FormatError(f"{place}: not JSON, and no other form of a tokenizer that is known here; is it the right file?")


class _Named:
    """What the caller names beside a file: needed by some forms, refused by others."""

    def __init__(self, pattern: str | None, special_tokens: dict[str, int | None], place: Path) -> None:
        self.pattern, self.special_tokens, self.place = pattern, special_tokens, place

    def refuse(self) -> None:
        for what, given in (("pattern", self.pattern), ("special tokens", self.special_tokens)):
            if given:
                raise TokenizerError(
                    f"{self.place}: names its own {what}; leave out what you gave beside it ({given!r})"
                )

    def ranks(self) -> Loaded:
        if self.pattern is None:
            if self.special_tokens:
                raise TokenizerError(
                    f"{self.place}: special tokens are given, but not the pattern that the ranks go with"
                )
            return Loaded(tiktoken.load_known(self.place), source=str(self.place), name=self.place.stem)
        ids = {token: id for token, id in self.special_tokens.items() if id is not None}
        for token in self.special_tokens.keys() - ids.keys():
            raise TokenizerError(f"{self.place}: a file of ranks has no special tokens: give {token!r} with its id")
        return Loaded(tiktoken.load(self.place, self.pattern, ids), source=str(self.place), name=self.place.stem)

    def two_files(self, vocab: Path, merges: Path) -> Loaded:
        model = cs336.load_model(vocab, merges, tuple(self.special_tokens), self.pattern or "gpt2")
        ids = {token.content: token.id for token in model.added_tokens}
        for token, id in self.special_tokens.items():
            if id is not None and ids[token] != id:
                raise TokenizerError(f"{vocab}: the special token {token!r} has the id {ids[token]} there, not {id}")
        return Loaded(model, source=str(vocab), name=vocab.parent.name)


def _from_document(document: Any, source: str) -> Loaded:
    """From parsed JSON that stands alone."""
    if isinstance(document, dict):
        if document.get("type") == character.TYPE or {"base_tokens", "merges"} <= document.keys():
            return character.parse(document, source)
        if tekken.is_tekken(document):
            return tekken.parse(document, source)
    if (other := foreign_json(document)) is not None:
        raise FormatError(f"{source}: {other}")
    if isinstance(document, dict) and isinstance(document.get("model"), dict):
        return hf_json.parse(document, source)
    if is_vocabulary(document):
        raise FormatError(
            f"{source}: a vocabulary without its merges; put merges.txt beside it as vocab.json, or use Tokenizer.from_gpt2"
        )
    raise FormatError(
        f"{source}: JSON, but no tokenizer: it has neither a 'model' (tokenizer.json) nor 'base_tokens' and 'merges' "
        "(character_bpe)"
    )


# What is what


def is_vocabulary(document: Any) -> bool:
    """Whether parsed JSON is an object of tokens and ids."""
    return (
        isinstance(document, dict)
        and bool(document)
        and all(isinstance(id, int) and not isinstance(id, bool) for id in document.values())
    )


def is_ranks(start: bytes) -> bool:
    """Whether a file that starts like this is one of ranks: lines of base64 and a number."""
    lines = [line for line in start.split(b"\n")[:8] if line.strip()]
    return bool(lines) and _RANKS_LINE.fullmatch(lines[0]) is not None


def is_merges(start: bytes) -> bool:
    """Whether a file that starts like this is one of merges: lines of two tokens in printable characters."""
    if start.startswith(b"#version"):
        return True
    lines = start.decode("utf-8", "ignore").split("\n")[:8]
    return bool(lines[0]) and all(_MERGES_LINE.fullmatch(line) for line in lines[:-1] or lines if line)


# Which file


def _in_folder(folder: Path) -> Path:
    """The file of the tokenizer in a folder.

    Raises:
        FormatError: there is none, or several that could be meant.
    """
    if (folder / "tokenizer.json").is_file():
        return folder / "tokenizer.json"
    for vocabulary in VOCABULARIES:
        if (folder / vocabulary).is_file() and any((folder / merges).is_file() for merges in MERGES):
            return folder / vocabulary
    found = _candidates(folder)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found[:8])
        raise FormatError(f"{folder}: a folder with {len(found)} files that may be the tokenizer; name one of {names}")
    raise FormatError(
        f"{folder}: a folder without tokenizer.json, vocab.json with merges.txt, ranks or another tokenizer; name its file"
    )


def _candidates(folder: Path) -> list[Path]:
    """The files in a folder that are tokenizers, or look it until their reader says why they are none."""
    found = []
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.name in _SETTINGS:
            continue
        with open(file, "rb") as opened:
            start = opened.read(START)
        by_name = file.name in (*VOCABULARIES, "tokenizer.model", "vocab.txt")
        is_json = file.suffix == ".json" and (
            "tokenizer" in file.stem or b'"character_bpe"' in start or b'"default_num_special_tokens"' in start
        )
        if by_name or is_json or is_ranks(start) or ("vocab" in file.name and file.suffix in cs336.PICKLES):
            found.append(file)
    return found


def _pair_of(place: Path, start: bytes) -> tuple[Path, Path] | None:
    """(vocabulary, merges) of a form of two files, from either of them, where the other one lies beside it."""
    if start[:1] == plain_pickle.FIRST_BYTE:
        kind = plain_pickle.kind_of(start)
        if kind is None:
            return None
        is_merges_file = kind == "list"
    else:
        is_merges_file = start.lstrip()[:1] not in (b"{", b"[")
    for name in _partners(place.name, of_merges=is_merges_file):
        other = place.parent / name
        if other != place and other.is_file():
            return (other, place) if is_merges_file else (place, other)
    return None


def _partners(name: str, *, of_merges: bool) -> list[str]:
    """The names that the other file may have, the likeliest first."""
    usual = {"vocab.bpe": ["encoder.json", "vocab.json"], "encoder.json": ["vocab.bpe", "merges.txt"]}
    stem, dot, suffix = name.rpartition(".")
    names = list(usual.get(name, VOCABULARIES if of_merges else MERGES))
    if f".{suffix}" in cs336.PICKLES:
        names = [f"{'vocab' if of_merges else 'merges'}.{suffix}"]
    suffixes = {"txt": "json", "bpe": "json"} if of_merges else {"json": "txt"}
    old, new = ("merges", "vocab") if of_merges else ("vocab", "merges")
    if old in stem:
        names.insert(0, f"{new.join(stem.rsplit(old, 1))}{dot}{suffixes.get(suffix, suffix)}")
    elif not dot and old in name:
        names.insert(0, new.join(name.rsplit(old, 1)))
    return names


def partner_for_merges(vocabulary: Path) -> Path:
    """Where the merges go that belong to a file of a vocabulary: beside it, found again by `load`."""
    if vocabulary.name in VOCABULARIES:
        return vocabulary.with_name("merges.txt")
    suffix = vocabulary.suffix if vocabulary.suffix in cs336.PICKLES else ".txt"
    if "vocab" in vocabulary.stem:
        return vocabulary.with_name("merges".join(vocabulary.stem.rsplit("vocab", 1)) + suffix)
    return vocabulary.with_name(f"merges{suffix}")
