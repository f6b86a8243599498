"""Ranks and merges: what the order of the tokens implies, and which tokens no merge reaches.

A rank file (tiktoken) has no merges: two neighbours merge if their joined bytes are a token. A merge list has more to
say, unless it is the one that the order of the tokens implies.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from minigpt_tok.bpe.encoder import Encoder
from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.native import core
from minigpt_tok.bpe.reference import merge_by_rank


def implied_merges(model: BPEModel) -> dict[int, tuple[int, int]]:
    """Id → the (left id, right id) that merging its bytes with lower ranks only leaves, ids in rank order.

    Ids that are left with more than two tokens have none: they can be reached only whole, or not at all.
    """
    if core is not None:
        return {id: (left, right) for id, left, right in core.implied_merges(list(model.tokens))}
    tokens, id_of = model.tokens, model.id_of
    base = {token[0]: id for token, id in model.base_ids.items()}
    implied: dict[int, tuple[int, int]] = {}
    for id in model.ids_by_rank:
        token = tokens[id]
        if token is None or any(byte not in base for byte in token):
            continue

        def lower(left: int, right: int, below: int = id) -> tuple[int, int] | None:
            merged = id_of.get((tokens[left] or b"") + (tokens[right] or b""))
            return None if merged is None or merged >= below else (merged, merged)

        parts = merge_by_rank([base[byte] for byte in token], lower)
        if len(parts) == 2:
            implied[id] = (parts[0], parts[1])
    return implied


def all_splits(model: BPEModel) -> Iterator[tuple[int, int]]:
    """Every way to join two tokens into a third: by the third's id, then left id, then right id."""
    id_of = model.id_of
    for id in model.ids_by_rank:
        token = model.tokens[id] or b""
        cuts = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        yield from sorted((id_of[left], id_of[right]) for left, right in cuts if left in id_of and right in id_of)


def live_merges(model: BPEModel) -> tuple[tuple[int, int], ...]:
    """The merges by rank, without those whose pair stands again later: its last rank counts."""
    return tuple(dict.fromkeys(reversed(model.merges)))[::-1]


def made_alone(model: BPEModel) -> set[int]:
    """The learned tokens that merging their own bytes gives, whole-piece lookup left aside."""
    if core is not None:
        lefts, rights = [left for left, _ in model.merges], [right for _, right in model.merges]
        by_bytes = model.rank_rule == "bytes"
        return set(core.made_alone(list(model.tokens), lefts, rights, list(model.merge_results), by_bytes))
    by_merging = Encoder(replace(model, whole_piece=False, pattern="none"))
    return {id for id in model.ids_by_rank if by_merging.merge(model.tokens[id] or b"") == [id]}


def reached_out_of_order(model: BPEModel, implied: dict[int, tuple[int, int]]) -> bool:
    """Whether merging by bytes makes some token that has no implied merge: by way of a token of higher rank.

    Llama 3 has 678 tokens without an implied merge. 90 of them are made all the same, such as one whose second half
    comes later in the file than itself; the others can be reached only whole.
    """
    return not made_alone(replace(model, rank_rule="bytes")) <= implied.keys()


def ranks_suffice(model: BPEModel, implied: dict[int, tuple[int, int]]) -> bool:
    """Whether the model's merges say no more than the order of its tokens does.

    All splits always do what the rank rule by bytes does. The implied merges do, unless that rule makes some token out
    of order: whatever is made in a longer piece is made of the same parts as alone.
    """
    if model.rank_rule == "bytes":
        return True
    merges = live_merges(model)
    if merges == tuple(implied.values()):
        return not reached_out_of_order(model, implied)
    return merges == tuple(islice(all_splits(model), len(merges) + 1))


def unreachable_ids(model: BPEModel) -> list[int]:
    """The learned tokens that merging their own bytes does not give, whole-piece lookup left aside."""
    made = made_alone(model)
    return [id for id in model.ids_by_rank if id not in made]


def merge_list(model: BPEModel) -> list[tuple[int, int, int]]:
    """(left id, right id, merged id) by rank; under the rank rule `bytes` a list that gives the same ids.

    That is the implied merges, one for each token, or all splits where these do not do.
    """
    if model.rank_rule == "pair":
        return [(*pair, merged) for pair, merged in zip(model.merges, model.merge_results, strict=True)]
    implied = implied_merges(model)
    if not reached_out_of_order(model, implied):
        return [(*pair, merged) for merged, pair in implied.items()]
    tokens, id_of = model.tokens, model.id_of
    return [(left, right, id_of[(tokens[left] or b"") + (tokens[right] or b"")]) for left, right in all_splits(model)]
