"""Continued training: a tokenizer with more merges, learned from text that its own merges have encoded first.

Every id, merge and added token of the parent stays what it is; new merges stand behind the old ones, new ids behind the
largest old one. So the longer tokenizer first does all that the parent does, and then joins some of the parent's tokens:
whatever the parent cuts a text into, its child's tokens are whole runs of. Training is the ordinary one
(`reference.train_merges`) over the distinct pieces as the parent encodes them, its tokens for base tokens.

No learned token has the bytes of another one. What lies between two token borders was merged as it is alone, so only the
first pair that makes some bytes is ever seen side by side. There is one exception: the tokens of the parent that no merge
makes (Llama 3 has 588 that are reached only whole). A pair that makes one of those is passed over.
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.added import Matcher
from minigpt_tok.bpe.count_documents import CountedDocuments
from minigpt_tok.bpe.counting import Units
from minigpt_tok.bpe.executor_counting import counter_for
from minigpt_tok.bpe.fast import make_encoder
from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.ranks import implied_merges, made_alone, merge_list, ranks_suffice, unreachable_ids
from minigpt_tok.bpe.recipes import Recipe, check_special_tokens, check_whole
from minigpt_tok.bpe.reference import Stop
from minigpt_tok.bpe.renumber import with_special_tokens
from minigpt_tok.bpe.trainer import Training, check_limits, merges_done, record_of
from minigpt_tok.errors import TokenizerError
from minigpt_tok.files import MappedText
from minigpt_tok.progress import Report

FOLLOWS_PARENT = ("unit", "pattern", "id_order", "initial_alphabet", "limit_alphabet", "base_characters")


@dataclass(frozen=True)
class Parent:
    """A tokenizer to extend, and what the record of the training says of it."""

    model: BPEModel
    fingerprint: str
    name: str | None = None

    def to_plain(self) -> dict[str, Any]:
        """For the record: fingerprint, ids, merges, and a name where there is one."""
        return {
            "fingerprint": self.fingerprint,
            "vocab_size": self.model.vocab_size,
            "merges": len(merge_list(self.model)),
            **({} if self.name is None else {"name": self.name}),
        }


def extend_model(
    parent: Parent,
    documents: Iterable[str | MappedText],
    vocab_size: int,
    recipe: Recipe,
    special_tokens: tuple[str, ...] = (),
    *,
    threads: int | None = None,
    memory_limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Report | None = None,
) -> tuple[BPEModel, Training]:
    """Learn more merges from documents, each a text of its own.

    Args:
        parent: what to extend.
        documents: the training text. Added tokens of the parent, special or not, split it, as new specials do; its
            normalizer is applied first.
        vocab_size: ids in all, those of the parent (its holes too) and `special_tokens` included.
        recipe: `tie`, `min_frequency` and `max_token_length` count; everything else is the parent's.
        special_tokens: more of them, behind the new tokens.
        threads, memory_limit, executor, workers, progress: as in `trainer.train_model`.

    Raises:
        TokenizerError: no room for a merge, a special that the parent has already, characters that a character
            tokenizer lacks, or a parent that does not cut by one pattern.
        CorpusError: there are no documents, or only empty ones.
    """
    model = parent.model
    recipe = replace(recipe, unit=model.unit, pattern=model.pattern, id_order=_id_order(model))
    check_limits(threads, memory_limit, workers)
    _check(parent, recipe, vocab_size, special_tokens)
    room = vocab_size - model.vocab_size - len(special_tokens)
    started = time.perf_counter()
    specials = (AddedToken(content=token, id=0) for token in special_tokens)
    counter = counter_for(recipe, threads, memory_limit, executor, workers)
    matcher = Matcher([*model.added_tokens, *specials], model.normalizer)
    counted = CountedDocuments(counter, documents, matcher, progress)
    distinct = counter.distinct()
    pieces, counts = counter.counted()
    by_merging = make_encoder(replace(model, pattern="none", added_tokens=(), normalizer=None))
    try:
        batch = by_merging.encode_batch_to_numpy(pieces)
    except TokenizerError as error:
        raise TokenizerError(f"the training text cannot be encoded by the tokenizer to extend: {error}") from None
    del pieces
    base = [token or b"" for token in model.tokens]
    made = {token.content.encode("utf-8") for token in model.added_tokens}
    made |= {base[id] for id in unreachable_ids(model)}
    units = Units(base, [_length(model, token) for token in base], frozenset(made))
    done = merges_done(progress, distinct, room)
    learned = counter.learn_from(batch, counts, units, Stop(room, recipe.min_frequency), done)
    extended = with_merges(model, [(merge.left, merge.right) for merge in learned.merges])
    record = record_of(
        started, recipe, special_tokens, vocab_size, counter, counted, distinct, learned, parent.to_plain()
    )
    return with_special_tokens(extended, special_tokens) if special_tokens else extended, record


def with_merges(model: BPEModel, pairs: list[tuple[int, int]]) -> BPEModel:
    """The model with more merges behind its own, each of which makes the next new id.

    It goes by ranks if the parent does, or could, and ranks say the same as the merges; else by merges. So it does not
    matter from which form the parent was read.
    """
    tokens = list(model.tokens)
    for left, right in pairs:
        tokens.append((tokens[left] or b"") + (tokens[right] or b""))
    by_bytes = replace(model, tokens=tuple(tokens), rank_rule="bytes", merges=(), merge_results=())
    could = model.unit == "byte" and ranks_suffice(model, implied_merges(model))
    if could and _ranks_do(model, by_bytes, pairs):
        return by_bytes
    old = merge_list(model)
    return replace(
        by_bytes,
        rank_rule="pair",
        merges=(*((left, right) for left, right, _ in old), *pairs),
        merge_results=(*(merged for _, _, merged in old), *range(model.vocab_size, len(tokens))),
    )


def _ranks_do(model: BPEModel, extended: BPEModel, pairs: list[tuple[int, int]]) -> bool:
    """Whether ranks by bytes say the same as the merges: each new token is made of its pair, and no old one by new ones."""
    implied = implied_merges(extended)
    if any(implied.get(model.vocab_size + number) != pair for number, pair in enumerate(pairs)):
        return False
    new = set(range(model.vocab_size, extended.vocab_size))
    return made_alone(extended) - new <= made_alone(model)


def learned_merges(model: BPEModel, number: int) -> list[tuple[int, int, int]]:
    """(left, right, merged) of the last `number` merges that training learned, by rank."""
    if number == 0:
        return []
    if model.rank_rule == "pair":
        return merge_list(model)[-number:]
    return [(*pair, merged) for merged, pair in list(implied_merges(model).items())[-number:]]


def parent_of(model: BPEModel, extends: Mapping[str, Any]) -> BPEModel:
    """The tokenizer that was extended, out of the longer one and what the record of its training says."""
    size = extends["vocab_size"]
    merges = extends["merges"] if model.rank_rule == "pair" else 0
    return replace(
        model,
        tokens=model.tokens[:size],
        merges=model.merges[:merges],
        merge_results=model.merge_results[:merges],
        added_tokens=tuple(token for token in model.added_tokens if token.id < size),
    )


def _length(model: BPEModel, token: bytes) -> int:
    return max(1, len(token) if model.unit == "byte" else len(token.decode("utf-8")))


def _id_order(model: BPEModel) -> Any:
    return "characters" if model.unit == "character" else "bytes_first"


def _check(parent: Parent, recipe: Recipe, vocab_size: int, special_tokens: tuple[str, ...]) -> None:
    check_whole("vocab_size", vocab_size)
    model = parent.model
    if special_tokens:
        check_special_tokens(recipe, special_tokens)
        for token in {token.content for token in model.added_tokens}.intersection(special_tokens):
            raise TokenizerError(f"special_tokens has {token!r}, which the tokenizer to extend has already")
    if model.pipeline is not None:
        raise TokenizerError(
            f"the tokenizer to extend cuts by several steps ({model.pipeline}): such a one is not extended"
        )
    if model.normalizer is not None and model.normalizer.gives_printable:
        raise TokenizerError("the tokenizer to extend makes bytes in its normalizer: such a one is not extended")
    least = model.vocab_size + len(special_tokens)
    if vocab_size <= least:
        added = f" and {counted(len(special_tokens), 'special token')} to be added" if special_tokens else ""
        raise TokenizerError(
            f"vocab_size is {vocab_size:,}, but the tokenizer to extend has {counted(model.vocab_size, 'id')}{added}: "
            f"ask for more than {least:,}"
        )
