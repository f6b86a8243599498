"""The CS336 form: a vocabulary `dict[int, bytes]` and merges `list[tuple[bytes, bytes]]`."""

from collections.abc import Mapping, Sequence

from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.pretokenize import get_pretokenizer, known_pattern_name
from minigpt_tok.bpe.ranks import merge_list
from minigpt_tok.errors import FormatError
from minigpt_tok.formats.loaded import tokens_by_id


def to_model(
    vocab: Mapping[int, bytes], merges: Sequence[tuple[bytes, bytes]], special_tokens: Sequence[str], pattern: str
) -> BPEModel:
    """From the two, and the specials by their text; specials that the vocabulary lacks are added at its end.

    Raises:
        FormatError: ids with a gap, a token twice, or a merge that the vocabulary lacks.
    """
    source = "the vocabulary"
    for id, raw in vocab.items():
        if not isinstance(raw, bytes) or not raw:
            raise FormatError(f"{source}: id {id!r} is {raw!r}, not bytes")
    tokens = tokens_by_id(vocab, source)
    specials = {token.encode("utf-8"): token for token in dict.fromkeys(special_tokens)}
    added = []
    id_of: dict[bytes, int] = {}
    for id, token in enumerate(tokens):
        if token is None:
            continue
        if token in id_of:
            raise FormatError(f"{source}: {token!r} has the ids {id_of[token]} and {id}")
        id_of[token] = id
        if token in specials:
            added.append(AddedToken(content=specials.pop(token), id=id))
            tokens[id] = None
    for text in specials.values():
        added.append(AddedToken(content=text, id=len(tokens)))
        tokens.append(None)
    pairs, results = [], []
    for rank, (left, right) in enumerate(merges):
        for part in (left, right, left + right):
            if part not in id_of:
                raise FormatError(f"merge {rank} joins {left!r} and {right!r}, but {part!r} is not in the vocabulary")
        pairs.append((id_of[left], id_of[right]))
        results.append(id_of[left + right])
    get_pretokenizer(pattern)  # refuses what is no pattern
    return BPEModel(
        tokens=tuple(tokens),
        merges=tuple(pairs),
        merge_results=tuple(results),
        pattern=known_pattern_name(pattern) or pattern,
        added_tokens=tuple(added),
    )


def from_model(model: BPEModel) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Back to the two; specials stand in the vocabulary as their text."""
    if model.unit != "byte":
        raise FormatError("the CS336 form is of bytes, and this is a character tokenizer")
    vocab = {id: token for id, token in enumerate(model.tokens) if token is not None}
    vocab |= {token.id: token.content.encode("utf-8") for token in model.added_tokens}
    merges = [(vocab[left], vocab[right]) for left, right, _ in merge_list(model)]
    return dict(sorted(vocab.items())), merges
