"""`.tiktoken` files: a line per token, its bytes in base64 and its rank, which is its id."""

import base64
import binascii
import re
from collections.abc import Mapping

from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.pretokenize import get_pretokenizer, known_pattern_name
from minigpt_tok.bpe.ranks import implied_merges, ranks_suffice, unreachable_ids
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath, read_text, write_text
from minigpt_tok.formats.loaded import LARGEST_FILE, tokens_by_id


def load(path: StrPath, pattern: str, special_tokens: Mapping[str, int]) -> BPEModel:
    """Read ranks; pattern and specials must be named, since the file does not.

    Raises:
        FormatError: naming the line.
    """
    by_id: dict[int, bytes | None] = {}
    seen: set[bytes] = set()
    for number, line in enumerate(read_text(path, limit=LARGEST_FILE, what="ranks").split("\n"), start=1):
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
    added = []
    for content, id in special_tokens.items():
        if id in by_id:
            raise FormatError(f"{path}: the special token {content!r} has id {id}, which another token has")
        by_id[id] = None
        added.append(AddedToken(content=content, id=id))
    get_pretokenizer(pattern)  # refuses what is no pattern
    return BPEModel(
        tokens=tuple(tokens_by_id(by_id, str(path), gaps=True)),
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
    if model.unit != "byte":
        raise FormatError(f"{path}: ranks are of bytes; a character tokenizer is saved as character_bpe")
    if not ranks_suffice(model, implied_merges(model)):
        raise FormatError(f"{path}: ranks cannot express this tokenizer: its merges are not in the order of its ids")
    if len(model.base_ids) < 256:
        raise FormatError(f"{path}: ranks need all 256 bytes, and this tokenizer has {len(model.base_ids)}")
    if not model.whole_piece and (unreachable := unreachable_ids(model)):
        raise FormatError(
            f"{path}: a file of ranks takes a piece that is a token whole, and this tokenizer does not: "
            f"{len(unreachable):,} of its tokens would appear that never do"
        )
    lines = (
        f"{base64.b64encode(token).decode('ascii')} {id}\n"
        for id, token in enumerate(model.tokens)
        if token is not None
    )
    write_text(path, "".join(lines))
