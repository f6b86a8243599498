"""From documents to a trained model: count pieces, learn merges (`reference.train_merges`), number the tokens."""

import sys
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.added import Matcher
from minigpt_tok.bpe.count_documents import CountedDocuments
from minigpt_tok.bpe.counting import MergesDone, PieceCounter
from minigpt_tok.bpe.executor_counting import counter_for
from minigpt_tok.bpe.model import ALL_BYTES, BYTES_BY_CHARACTER, AddedToken, BPEModel
from minigpt_tok.bpe.recipes import Recipe, check_special_tokens, check_whole
from minigpt_tok.bpe.reference import Learned, Merge, Stop, asked_for
from minigpt_tok.errors import TokenizerError
from minigpt_tok.files import MappedText
from minigpt_tok.progress import Report


@dataclass(frozen=True, kw_only=True)
class Training:
    """The record of a training run. No part of the fingerprint.

    Attributes:
        recipe: name and switches, as given to `Recipe`.
        special_tokens: in the order given.
        vocab_size: that was asked for.
        documents, bytes: of training text; bytes are of its UTF-8.
        distinct_pieces: how many different pieces the pattern cut.
        seconds: of counting and merging; megabytes_per_second: bytes / seconds.
        peak_memory: of the process, in bytes, where the system tells.
        threads: that counted, or workers of an executor.
        stopped: why there are no more merges.
        base_tokens: tokens of the training text before any merge.
        counts: for every merge, how often its pair occurred when it was chosen.
        curve: for every merge, the tokens of the training text after it, from replacements made.
        extends: of continued training, the tokenizer that it began with: fingerprint, vocab_size and merges. Then
            `counts` and `curve` are of the new merges alone, and `base_tokens` is what the old ones leave.
    """

    recipe: dict[str, Any]
    special_tokens: tuple[str, ...]
    vocab_size: int
    documents: int
    bytes: int
    distinct_pieces: int
    seconds: float
    megabytes_per_second: float
    peak_memory: int | None
    threads: int
    stopped: str
    base_tokens: int
    counts: tuple[int, ...]
    curve: tuple[int, ...]
    extends: dict[str, Any] | None = None

    def truncated(self, merges: int, vocab_size: int) -> "Training":
        """The record of the same run, had it stopped after so many merges."""
        merges = max(0, merges - self.extends["merges"]) if self.extends else merges
        kept = {"counts": self.counts[:merges], "curve": self.curve[:merges], "vocab_size": vocab_size}
        if merges < len(self.counts):
            kept["stopped"] = asked_for(merges)
        return Training(**{**self.__dict__, **kept})

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Training":
        """Back from `to_plain`."""
        lists = {name: tuple(plain[name]) for name in ("special_tokens", "counts", "curve")}
        return cls(**{**plain, **lists})


def train_model(
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
    """Train on documents, each a text of its own: no piece and no merge crosses from one into the next.

    Args:
        documents, vocab_size, recipe, special_tokens: see `train.train_tokenizer`.
        threads: of this process that count; all cores unless given.
        memory_limit: bytes for the tables of counts.
        executor: counts instead, and this process adds up.
        workers: how many it has.
        progress: called with the stages `chunks` and `bytes` (counted), `distinct pieces` and `merges`.

    Raises:
        TokenizerError: the vocabulary is smaller than base tokens and specials, a special cannot be one, a document
            has a lone surrogate, or characters that `base_characters` lacks.
        CorpusError: there are no documents, or only empty ones.
    """
    check_special_tokens(recipe, special_tokens)
    check_limits(threads, memory_limit, workers)
    if recipe.unit == "byte":
        _check_vocab_size(vocab_size, 256, len(special_tokens))
    started = time.perf_counter()
    counter = counter_for(recipe, threads, memory_limit, executor, workers)
    specials = Matcher(AddedToken(content=token, id=0) for token in special_tokens)
    counted = CountedDocuments(counter, documents, specials, progress)
    base = _base_tokens(counter)
    room = _check_vocab_size(vocab_size, len(base), len(special_tokens))
    distinct = counter.distinct()
    learned = counter.learn(base, Stop(room, recipe.min_frequency), merges_done(progress, distinct, room))
    record = record_of(started, recipe, special_tokens, vocab_size, counter, counted, distinct, learned)
    return number_tokens(base, learned.merges, recipe, special_tokens), record


def record_of(
    started: float,
    recipe: Recipe,
    special_tokens: tuple[str, ...],
    vocab_size: int,
    counter: PieceCounter,
    counted: CountedDocuments,
    distinct: int,
    learned: Learned,
    extends: dict[str, Any] | None = None,
) -> Training:
    """The record of a run that began when `time.perf_counter` gave `started`, and ends now."""
    seconds = time.perf_counter() - started
    return Training(
        recipe=plain_switches(recipe),
        special_tokens=special_tokens,
        vocab_size=vocab_size,
        documents=counted.documents,
        bytes=counted.bytes,
        distinct_pieces=distinct,
        seconds=seconds,
        megabytes_per_second=counted.bytes / 1e6 / seconds,
        peak_memory=peak_memory(),
        threads=counter.threads,
        stopped=learned.stopped,
        base_tokens=learned.base_tokens,
        counts=tuple(merge.occurrences for merge in learned.merges),
        curve=tuple(merge.tokens_after for merge in learned.merges),
        extends=extends,
    )


def check_limits(threads: int | None, memory_limit: int | None, workers: int | None) -> None:
    """Refuse limits below 1.

    Raises:
        TokenizerError: naming the argument.
    """
    for argument, value in (("threads", threads), ("memory_limit", memory_limit), ("workers", workers)):
        if value is not None:
            check_whole(argument, value)
            if value < 1:
                raise TokenizerError(f"{argument} is {value}; the least is 1")


def merges_done(progress: Report | None, distinct: int, room: int) -> MergesDone | None:
    """Report what learning begins with, and give what reports the merges."""
    if progress is None:
        return None
    progress("distinct pieces", distinct, distinct)
    progress("merges", 0, room)
    return lambda merges: progress("merges", merges, room)


def _base_tokens(counter: PieceCounter) -> list[bytes]:
    """The base tokens in the order of their ids."""
    recipe = counter.recipe
    if recipe.unit == "byte":
        return list(BYTES_BY_CHARACTER if recipe.id_order == "specials_first" else ALL_BYTES)
    counts = counter.characters()
    if recipe.base_characters is not None:
        lacking = sorted(counts.keys() - recipe.base_characters)
        if lacking:
            raise TokenizerError(
                f"base_characters lacks {counted(len(lacking), 'character')} of the training text: "
                f"{', '.join(map(repr, lacking[:50]))}{', …' if len(lacking) > 50 else ''}; add them"
            )
        characters = set(recipe.base_characters)
    else:
        characters = set(counts)
    characters |= recipe.initial_alphabet
    if recipe.limit_alphabet is not None and len(characters) > recipe.limit_alphabet:
        # What was asked for by name stays before what is merely frequent.
        by_use = sorted(characters, key=lambda c: (c not in recipe.initial_alphabet, -counts.get(c, 0), c))
        characters = set(by_use[: recipe.limit_alphabet])
    return [character.encode("utf-8") for character in sorted(characters)]


def number_tokens(
    base: list[bytes], merges: list[Merge] | list[tuple[int, int]], recipe: Recipe, special_tokens: tuple[str, ...]
) -> BPEModel:
    """Give every token its final id, by the recipe's order, from the trainer's numbers (base tokens, then merges)."""
    texts = list(base)
    for merge in merges:
        texts.append(texts[merge[0]] + texts[merge[1]])
    specials, bases, n = len(special_tokens), len(base), len(texts) + len(special_tokens)
    first_base = specials if recipe.id_order == "specials_first" else 0
    first_merge = bases + (0 if recipe.id_order in ("specials_last", "characters") else specials)
    first_special = {"specials_first": 0, "bytes_first": bases}.get(recipe.id_order, n - specials)

    def final(number: int) -> int:
        return number + first_base if number < bases else number - bases + first_merge

    tokens: list[bytes | None] = [None] * n
    for number, text in enumerate(texts):
        tokens[final(number)] = text
    return BPEModel(
        unit=recipe.unit,
        tokens=tuple(tokens),
        merges=tuple((final(merge[0]), final(merge[1])) for merge in merges),
        merge_results=tuple(final(number) for number in range(bases, len(texts))),
        pattern=recipe.pattern,
        added_tokens=tuple(
            AddedToken(content=token, id=first_special + number) for number, token in enumerate(special_tokens)
        ),
    )


def _check_vocab_size(vocab_size: int, base: int, specials: int) -> int:
    """How many merges there is room for."""
    check_whole("vocab_size", vocab_size)
    room = vocab_size - base - specials
    if room < 0:
        raise TokenizerError(
            f"vocab_size is {vocab_size:,}, but {counted(base, 'base token')} and {counted(specials, 'special token')} need "
            f"{counted(base + specials, 'id')}: ask for that many (no merges) or more"
        )
    return room


def plain_switches(recipe: Recipe) -> dict[str, Any]:
    """Name and switches of a recipe, as JSON can hold them."""
    plain = asdict(recipe)
    for switch in ("initial_alphabet", "base_characters"):
        plain[switch] = None if plain[switch] is None else "".join(sorted(plain[switch]))
    return plain


def peak_memory() -> int | None:
    """The most memory that this process has held so far, in bytes; `None` where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
