"""Other models from a model: fewer merges, other ids, more special tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import get_args

from minigpt_tok.bpe.model import ALL_BYTES, BYTES_BY_CHARACTER, AddedToken, BPEModel
from minigpt_tok.bpe.recipes import IdOrder, Recipe, check_special_tokens
from minigpt_tok.errors import TokenizerError


def truncated(model: BPEModel, vocab_size: int) -> BPEModel:
    """The model with only its first merges, so many that it has `vocab_size` ids; later ids move up."""
    # Tokens that no merge makes, which loaded tokenizers may have, come last; under the rule `bytes` ids are ranks.
    by_rank = model.merge_results if model.rank_rule == "pair" else ()
    always = {*model.base_ids.values(), *model.added_ids}  # an added token may be a base token or a merged one, too
    made = [id for id in dict.fromkeys([*by_rank, *model.ids_by_rank]) if id not in always]
    fixed = len(always)
    if not fixed <= vocab_size <= fixed + len(made):
        raise TokenizerError(
            f"vocab_size is {vocab_size:,}, but this tokenizer can be truncated to {fixed:,} ids (base and added tokens, "
            f"no merges) up to {fixed + len(made):,} (all merges)"
        )
    kept = {*always, *made[: vocab_size - fixed]}
    return _renumbered(model, sorted(kept))


def with_id_order(model: BPEModel, order: IdOrder) -> BPEModel:
    """The same pieces under the ids that a recipe with this `id_order` gives."""
    if order not in get_args(IdOrder):
        raise TokenizerError(f"order is {order!r}; choose one of {', '.join(get_args(IdOrder))}")
    if (model.unit == "character") != (order == "characters"):
        raise TokenizerError(f"order is {order!r}, which a tokenizer of {model.unit}s cannot have")
    if order == "characters":
        bases = [model.base_ids[token] for token in sorted(model.base_ids)]
        return _renumbered(model, [*bases, *(id for id in model.ids_by_rank)])
    base_order = BYTES_BY_CHARACTER if order == "specials_first" else ALL_BYTES
    bases = [model.base_ids[byte] for byte in base_order if byte in model.base_ids]
    specials = sorted(model.added_ids)
    parts = {
        "specials_first": (specials, bases, model.ids_by_rank),
        "bytes_first": (bases, specials, model.ids_by_rank),
        "specials_last": (bases, model.ids_by_rank, specials),
    }[order]
    return _renumbered(model, list(dict.fromkeys(id for part in parts for id in part)))


def with_special_tokens(model: BPEModel, special_tokens: tuple[str, ...]) -> BPEModel:
    """The same with more special tokens, at the end."""
    recipe = Recipe(name="more", unit=model.unit, id_order="characters" if model.unit == "character" else "bytes_first")
    check_special_tokens(recipe, special_tokens)
    present = {token.content for token in model.added_tokens}
    for token in special_tokens:
        if token in present:
            raise TokenizerError(f"special_tokens has {token!r}, which this tokenizer has already")
    added = [AddedToken(content=token, id=model.vocab_size + n) for n, token in enumerate(special_tokens)]
    return replace(
        model,
        tokens=model.tokens + (None,) * len(added),
        added_tokens=model.added_tokens + tuple(added),
    )


def _renumbered(model: BPEModel, old_ids: Sequence[int]) -> BPEModel:
    """The model in which id n is what `old_ids[n]` was; what is not in `old_ids` is dropped, its merges too."""
    new_id = {old: new for new, old in enumerate(old_ids)}

    def kept(merge: Iterable[int]) -> bool:
        return all(id in new_id for id in merge)

    merges = [merge for merge in zip(model.merges, model.merge_results, strict=True) if kept((*merge[0], merge[1]))]
    return replace(
        model,
        tokens=tuple(model.tokens[old] for old in old_ids),
        merges=tuple((new_id[left], new_id[right]) for (left, right), _ in merges),
        merge_results=tuple(new_id[merged] for _, merged in merges),
        added_tokens=tuple(
            sorted((replace(token, id=new_id[token.id]) for token in model.added_tokens), key=lambda token: token.id)
        ),
    )
