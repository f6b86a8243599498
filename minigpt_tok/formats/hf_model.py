"""The added tokens and the model of a `tokenizer.json`, read and written."""

from collections.abc import Iterable, Sequence
from typing import Any

from minigpt_tok.bpe.model import BYTE_TO_CHARACTER, CHARACTER_TO_BYTE, AddedToken, BPEModel, bytes_of
from minigpt_tok.bpe.normalize import Normalizer
from minigpt_tok.bpe.pipeline import Pipeline
from minigpt_tok.bpe.pretokenize import PATTERNS, get_pretokenizer
from minigpt_tok.bpe.ranks import merge_list
from minigpt_tok.errors import FormatError
from minigpt_tok.formats.loaded import field, refusal, tokens_by_id

OWN_BLOCK = "minigpt_tok"
FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


def read_added_tokens(items: list[Any], normalizer: Normalizer | None, source: str) -> list[AddedToken]:
    """The added tokens, by id.

    Raises:
        FormatError: naming the token that is broken, stands twice, or could not be told from another.
    """
    tokens = []
    seen_content: set[str] = set()
    seen_id: set[int] = set()
    looked_for: dict[tuple[bool, str], str] = {}
    for number, item in enumerate(items):
        where = f"{source}: added_tokens[{number}]"
        flags = {flag: field(item, flag, bool, where, default=False) for flag in FLAGS}
        token = AddedToken(content=field(item, "content", str, where), id=field(item, "id", int, where), **flags)
        for key in sorted(set(item) - {"id", "content", *FLAGS}):
            raise FormatError(f"{where}: the field {key!r} is not known, so its effect on the ids is not either")
        if not token.content:
            raise FormatError(f"{where}.content is empty, which would match everywhere")
        if token.content in seen_content or token.id in seen_id:
            raise FormatError(f"{where}: {token.content!r} with id {token.id} stands twice")
        as_found = normalizer(token.content) if normalizer is not None and token.normalized else token.content
        if not as_found:
            raise FormatError(
                f"{where}: {token.content!r} is nothing once it is normalized, which would match everywhere"
            )
        if (other := looked_for.get((token.normalized, as_found))) is not None:
            raise FormatError(f"{where}: {token.content!r} and {other!r} are the same once they are normalized")
        looked_for[token.normalized, as_found] = token.content
        seen_content.add(token.content)
        seen_id.add(token.id)
        tokens.append(token)
    return sorted(tokens, key=lambda token: token.id)


def check_numbering(items: list[Any], vocab: dict[str, Any], source: str) -> None:
    """Refuse ids of added tokens other than those that `tokenizers` gives them, which asks the vocabulary, then counts on.

    Raises:
        FormatError: naming the first such token, and both ids.
    """
    size = len(vocab)
    given: dict[str, int] = {}
    for number, item in enumerate(items):
        content, id = item["content"], item["id"]
        highest = max(given.values(), default=-1)
        counted = highest + 1 if highest >= size else size
        expected = vocab.get(content, counted)
        if expected != id:
            raise FormatError(
                f"{source}: added_tokens[{number}]: {content!r} has the id {id}, but tokenizers gives it {expected!r}: "
                + ("the id in model.vocab" if content in vocab else "the next after the vocabulary's")
            )
        given[content] = id


def parse_model(
    block: dict[str, Any],
    added: list[AddedToken],
    pattern: str,
    where: str,
    *,
    normalizer: Normalizer | None = None,
    pipeline: Pipeline | None = None,
) -> BPEModel:
    """From the `model` block alone: GPT-2's two files hold the same."""
    if block.get("type", "BPE") != "BPE":
        raise refusal(where, "type", block["type"])
    for key, neutral in (
        ("dropout", (None, 0, 0.0)),
        ("unk_token", (None,)),
        ("continuing_subword_prefix", (None, "")),
        ("end_of_word_suffix", (None, "")),
        ("fuse_unk", (None, False)),
        ("byte_fallback", (None, False)),
    ):
        if block.get(key) not in neutral:
            raise refusal(where, key, block[key])
    known = {
        "type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
        "ignore_merges", "vocab", "merges", OWN_BLOCK,
    }  # fmt: skip
    for key in sorted(set(block) - known):
        raise FormatError(f"{where}: the field {key!r} is not known, so its effect on the ids is not either")
    whole_piece = bool(field(block, "ignore_merges", (bool, type(None)), where, default=False))
    merges = [_halves(merge, f"{where}.merges[{rank}]") for rank, merge in enumerate(_merges(block, where))]
    in_merges = {part for left, right in merges for part in (left, right, left + right)}
    holes = _declared_holes(block, where)
    taken_whole = {token.content for token in added if whole_piece and can_be_a_piece(token.content, pattern, pipeline)}
    by_id = _tokens(field(block, "vocab", dict, where), added, in_merges | taken_whole, where)
    tokens = tokens_by_id(by_id, f"{where}.vocab", gaps=bool(holes))
    if holes and holes != holes_in(tokens, added):
        raise FormatError(f"{where}.{OWN_BLOCK}.holes: are not the ids that no token has: damaged or edited")
    id_of = {token: id for id, token in enumerate(tokens) if token is not None}
    pairs, results = [], []
    for rank, halves in enumerate(merges):
        left, right = (_bytes(part, f"{where}.merges[{rank}]") for part in halves)
        for part in (left, right, left + right):
            if part not in id_of:
                raise FormatError(f"{where}.merges[{rank}]: {printable(part)!r} is not in the vocabulary")
        pairs.append((id_of[left], id_of[right]))
        results.append(id_of[left + right])
    return BPEModel(
        tokens=tuple(tokens),
        merges=tuple(pairs),
        merge_results=tuple(results),
        whole_piece=whole_piece,
        pattern=pattern,
        added_tokens=tuple(added),
        normalizer=normalizer,
        pipeline=pipeline,
    )


def _merges(block: dict[str, Any], where: str) -> list[Any]:
    """The merges; of those spelled as strings, a first line of merges.txt is none."""
    merges: list[Any] = field(block, "merges", list, where)
    return [merge for merge in merges if not (isinstance(merge, str) and merge.startswith("#version"))]


def _tokens(vocab: dict[str, Any], added: list[AddedToken], reached: set[str], where: str) -> dict[Any, bytes | None]:
    by_id: dict[Any, bytes | None] = {token.id: None for token in added}
    contents = {token.content: token.id for token in added}
    for text, id in vocab.items():
        if not isinstance(id, int) or isinstance(id, bool):
            raise FormatError(f"{where}.vocab: {text!r} has the id {id!r}, which is not a whole number")
        if text in contents:
            if contents[text] != id:
                raise FormatError(f"{where}.vocab: {text!r} has the id {id!r}, and as an added token {contents[text]}")
            # Plain text leads to it, too, where it is a byte, is merged, or is looked up whole.
            if (len(text) == 1 or text in reached) and all(character in CHARACTER_TO_BYTE for character in text):
                by_id[id] = _bytes(text, f"{where}.vocab")
            continue
        if id in by_id:
            raise FormatError(f"{where}.vocab: {text!r} has id {id!r}, which another token has too")
        by_id[id] = _bytes(text, f"{where}.vocab")
    return by_id


def can_be_a_piece(text: str, pattern: str, pipeline: Pipeline | None) -> bool:
    """Whether a text can be one piece, to be looked up whole. Of a named pattern it is known; of others it is assumed."""
    if pipeline is not None or pattern not in PATTERNS:
        return True
    return get_pretokenizer(pattern).pieces(text) == [text]


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


def printable(token: bytes) -> str:
    """A token's bytes as the characters that stand for them."""
    return "".join(BYTE_TO_CHARACTER[byte] for byte in token)


def write_added_tokens(model: BPEModel) -> list[dict[str, Any]]:
    """As `tokenizers` spells them, by id."""
    return [
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
    ]


def vocab_and_merges(model: BPEModel, *, holes: bool = False) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges in printable characters; `holes` in the ids are refused unless the form can say that it has them.

    Raises:
        FormatError: the form cannot hold them.
    """
    if model.unit != "byte":
        raise FormatError("this form is byte-level; a character tokenizer is saved as character_bpe")
    contents: dict[int, str] = {token.id: token.content for token in model.added_tokens}
    vocab: dict[str, int] = {}
    text_of: dict[int, str] = {}
    for id, token in enumerate(model.tokens):
        text = contents.get(id) if token is None else printable(token)
        if text is None:
            if holes:
                continue
            raise FormatError(f"this form can have no holes in its ids, and id {id} is one")
        if id in contents and contents[id] != text:
            raise FormatError(f"this form cannot hold id {id} as {text!r} and as the added token {contents[id]!r}")
        if text in vocab:
            raise FormatError(f"this form cannot hold two ids ({vocab[text]} and {id}) written {text!r}")
        vocab[text] = id
        text_of[id] = text
    return vocab, [(text_of[left], text_of[right]) for left, right, _ in merge_list(model)]
