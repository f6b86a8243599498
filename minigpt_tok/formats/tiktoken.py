"""`.tiktoken` files: a line per token, its bytes in base64 and its rank, which is its id."""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.patterns import PATTERNS, known_pattern_name
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.ranks import implied_merges, ranks_suffice, unreachable_ids
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, read_text, write_text
from minigpt_tok.formats.known import RANKS
from minigpt_tok.formats.limits import common_reasons, refuse, refuse_characters, refuse_doubles
from minigpt_tok.formats.loaded import tokens_by_id

FORM = "ranks"
MOST_RANKS = 1_500_000
LARGEST_RANKS = 32 << 20  # bytes; the largest published file of ranks has 3.6 MB


def load(path: StrPath, pattern: str, special_tokens: Mapping[str, int]) -> BPEModel:
    """Read ranks; pattern and specials must be named, since the file does not.

    Raises:
        FormatError: naming the line.
    """
    return to_model(read_ranks(path), pattern, special_tokens, path)


def load_known(path: StrPath) -> BPEModel:
    """Read ranks that are those of a published file, see `known.RANKS`: its pattern and special tokens are known.

    Raises:
        FormatError: naming the line; or no known file, with what to do.
    """
    ranks = read_ranks(path)
    known = RANKS.get(hashlib.sha256(_lines(ranks).encode("ascii")).hexdigest())
    if known is None:
        raise FormatError(
            f"{path}: a file of {counted(len(ranks), 'rank')}, which does not name its pattern, and no published one that is known "
            f"here. Name the pattern that its publisher gives ({', '.join(PATTERNS)}, or a regular expression): "
            "Tokenizer.from_tiktoken(path, pattern=…, special_tokens=…)"
        )
    return to_model(ranks, known.pattern, known.special_tokens, path)


def read_ranks(path: StrPath) -> dict[int, bytes]:
    """Rank → token.

    Raises:
        FormatError: naming the line.
    """
    text = read_text(path, limit=LARGEST_RANKS, what="ranks")
    if text.count("\n") > MOST_RANKS:
        raise FormatError(f"{path}: has more than {MOST_RANKS:,} lines, the most that are read as ranks")
    by_id: dict[int, bytes] = {}
    seen: set[bytes] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        parts = line.split()
        try:
            token = base64.b64decode(parts[0], validate=True)
        except (ValueError, binascii.Error):
            token = b""
        if len(parts) != 2 or not token or not re.fullmatch("[0-9]{1,18}", parts[1]):
            raise FormatError(f"{path}: line {number} is {line[:60]!r}, not base64 and a rank")
        rank = int(parts[1])
        if rank in by_id or token in seen:
            raise FormatError(f"{path}: line {number} gives the token {token!r} or the rank {rank} a second time")
        by_id[rank] = token
        seen.add(token)
    return by_id


def to_model(ranks: Mapping[int, bytes], pattern: str, special_tokens: Mapping[str, int], source: StrPath) -> BPEModel:
    """From ranks and what the file does not name.

    Raises:
        FormatError: an id out of bounds, or one that two tokens have.
    """
    by_id: dict[int, bytes | None] = dict(ranks)
    added = []
    for content, id in special_tokens.items():
        if id in by_id:
            raise FormatError(f"{source}: the special token {content!r} has id {id}, which another token has")
        by_id[id] = None
        added.append(AddedToken(content=content, id=id))
    get_pretokenizer(pattern)  # refuses what is no pattern
    return BPEModel(
        tokens=tuple(tokens_by_id(by_id, str(source), gaps=True)),
        rank_rule="bytes",
        whole_piece=True,
        pattern=known_pattern_name(pattern) or pattern,
        added_tokens=tuple(sorted(added, key=lambda token: token.id)),
    )


def save(path: StrPath, model: BPEModel) -> None:
    """Write the ranks.

    Raises:
        FormatError: ranks cannot express the tokenizer: its merges are not those that the order of the tokens implies.
    """
    refuse_characters(path, FORM, model)
    refuse(path, FORM, common_reasons(model))
    refuse_doubles(path, FORM, model)
    if not ranks_suffice(model, implied_merges(model)):
        raise FormatError(f"{path}: ranks cannot express this tokenizer: its merges are not in the order of its ids")
    if len(model.base_ids) < 256:
        raise FormatError(f"{path}: ranks need all 256 bytes, and this tokenizer has {len(model.base_ids)}")
    if not model.whole_piece and (unreachable := unreachable_ids(model)):
        raise FormatError(
            f"{path}: a file of ranks takes a piece that is a token whole, and this tokenizer does not: "
            f"{len(unreachable):,} of its tokens would appear that never do"
        )
    write_text(path, _lines({id: token for id, token in enumerate(model.tokens) if token is not None}))


def _lines(ranks: Mapping[int, bytes]) -> str:
    return "".join(f"{base64.b64encode(ranks[rank]).decode('ascii')} {rank}\n" for rank in sorted(ranks))
