"""Mistral's `tekken.json`: ranks in base64 with their pattern, special tokens first.

The vocabulary lists more tokens than are used: the first `default_vocab_size - default_num_special_tokens` ranks count,
and a token's id is its rank plus the number of special tokens. Source of the form: `tekken.py` of mistral-common 1.13.
"""

import base64
import binascii
from typing import Any

from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.pretokenize import get_pretokenizer, known_pattern_name
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.formats.loaded import MOST_IDS, Loaded, field

# Of files up to version 7 that list none; they are `SpecialTokens` of mistral-common.
UNLISTED_SPECIALS = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
_UNLISTED_IN = ("v1", "v2", "v3", "v7")


def is_tekken(document: dict[str, Any]) -> bool:
    """Whether parsed JSON has this form."""
    config = document.get("config")
    return isinstance(config, dict) and "default_num_special_tokens" in config and "vocab" in document


def parse(document: dict[str, Any], source: str) -> Loaded:
    """From the parsed JSON.

    Raises:
        FormatError: naming the field and what is wrong with it.
    """
    config = field(document, "config", dict, source)
    where = f"{source}: config"
    size = field(config, "default_vocab_size", int, where)
    specials = field(config, "default_num_special_tokens", int, where)
    if not 0 <= specials < size <= MOST_IDS:
        raise FormatError(f"{where}: {specials:,} special tokens in a vocabulary of {size:,} ids cannot be")
    items = field(document, "vocab", list, source)
    if len(items) < size - specials:
        raise FormatError(
            f"{source}: vocab has {len(items):,} tokens, and {size - specials:,} are needed: the file is cut short"
        )
    tokens: list[bytes | None] = [None] * specials
    seen: set[bytes] = set()
    for rank, item in enumerate(items[: size - specials]):
        token = _token(item, rank, f"{source}: vocab[{rank}]")
        if token in seen:
            raise FormatError(f"{source}: vocab[{rank}] is {token!r}, which an earlier token is too")
        seen.add(token)
        tokens.append(token)
    pattern: str = field(config, "pattern", str, where)
    try:
        get_pretokenizer(pattern)
    except TokenizerError as error:
        raise FormatError(f"{where}.pattern: {error}") from None
    model = BPEModel(
        tokens=tuple(tokens),
        rank_rule="bytes",
        whole_piece=True,
        pattern=known_pattern_name(pattern) or pattern,
        added_tokens=tuple(_specials(document, config, specials, source)),
    )
    return Loaded(model, source=source)


def _token(item: Any, rank: int, where: str) -> bytes:
    if field(item, "rank", int, where) != rank:
        raise FormatError(f"{where}.rank is {item['rank']}, not {rank}: ranks count from 0 without gaps")
    try:
        token = base64.b64decode(field(item, "token_bytes", str, where), validate=True)
    except (ValueError, binascii.Error) as error:
        if isinstance(error, FormatError):
            raise
        token = b""
    if not token:
        raise FormatError(f"{where}.token_bytes is {item['token_bytes'][:40]!r}, not the base64 of a token")
    return token


def _specials(document: dict[str, Any], config: dict[str, Any], number: int, source: str) -> list[AddedToken]:
    listed = field(document, "special_tokens", (list, type(None)), source, default=None)
    if listed is None:
        version = field(config, "version", str, f"{source}: config", default="v1")
        if version not in _UNLISTED_IN:
            raise FormatError(f"{source}: has no 'special_tokens', which a file of version {version!r} must list")
        contents = dict(enumerate(UNLISTED_SPECIALS[:number]))
    else:
        contents = {}
        for place, item in enumerate(listed):
            where = f"{source}: special_tokens[{place}]"
            id, content = field(item, "rank", int, where), field(item, "token_str", str, where)
            if id in contents or not 0 <= id < number or not content:
                raise FormatError(
                    f"{where}: {content!r} with the rank {id} is empty, twice there, or beyond {number:,}"
                )
            contents[id] = content
    filled = [contents.get(id, f"<SPECIAL_{id}>") for id in range(number)]
    if len(set(filled)) < number:
        raise FormatError(f"{source}: special_tokens has one token twice")
    return [AddedToken(content=content, id=id) for id, content in enumerate(filled)]
