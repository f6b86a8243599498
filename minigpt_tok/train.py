"""`train_tokenizer`: from any corpus to a `Tokenizer`."""

from collections.abc import Collection
from concurrent.futures import Executor
from contextlib import nullcontext
from typing import Any, Literal

from minigpt_tok.bpe.extend import FOLLOWS_PARENT, Parent, extend_model
from minigpt_tok.bpe.recipes import CHAT_TOKENS, get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.errors import TokenizerError
from minigpt_tok.progress import Report
from minigpt_tok.progress import progress as bars
from minigpt_tok.tokenizer import Tokenizer


def train_tokenizer(
    corpus: Any,
    vocab_size: int,
    recipe: str = "hf",
    special_tokens: Collection[str] | Literal["chat"] = (),
    *,
    max_documents: int | None = None,
    max_bytes: int | None = None,
    threads: int | None = None,
    memory_limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Report | None = None,
    extend: Tokenizer | None = None,
    **switches: Any,
) -> Tokenizer:
    """Train a BPE tokenizer on the train split of a corpus, or on the whole of files that have no splits.

    Args:
        corpus: a path, a list of paths, the name of a corpus, a `datasets.Dataset`, or an iterable of `str`, each of
            which is a document. No merge learns across documents.
        vocab_size: ids in all, special tokens included.
        recipe: `hf` (as Hugging Face's `BpeTrainer`), `cs336`, `readable` or `character`.
        special_tokens: none unless given; `"chat"` reserves `<|endoftext|>` and seven chat tokens. Where they stand in
            the text they split it, and nothing is learned from them.
        max_documents, max_bytes: take no more than this of the corpus.
        threads: how many count pieces; all cores unless given. The result is the same.
        memory_limit: in bytes, for the tables of counts; what does not fit goes to temporary files as sorted runs, and the
            result is the same. Learning needs about 6 to 9 bytes for each byte of the distinct pieces nevertheless.
        executor: counts pieces instead of threads of this process: any of `concurrent.futures`' kind, on a cluster say.
            Chunks of text go to its workers, counts come back, and the result is the same.
        workers: how many it has; as many as there are cores here unless given.
        progress: called with the stage (`"chunks"` and `"bytes"` counted, `"distinct pieces"`, `"merges"`), how much of
            it is done, and of how much if known; by default bars on standard error, on a terminal only.
        extend: a tokenizer to train further: its ids, merges and added tokens stay, new merges come behind its own and
            new ids behind its largest. Unit, pattern and the order of ids are its own; `vocab_size` counts all, and
            `special_tokens` are further ones, at the end. The record of the training says what was extended.
        switches: the recipe's switches set otherwise, by their names in `bpe.recipes.Recipe`: `pattern`, `tie`,
            `id_order`, `min_frequency`, `max_token_length`, …

    Returns:
        The tokenizer, with the record of its training as `.training`.

    Raises:
        TokenizerError: an argument that cannot be, by its name.
        CorpusError: the corpus cannot be found or read, or has nothing in it.
    """
    if extend is not None:
        check_extended(extend, switches)
    settings = get_recipe(recipe, **switches)
    if extend is not None and extend.unit == "byte" != settings.unit:  # the other way round it may be the default
        raise TokenizerError(
            f"recipe is {recipe!r}, but the tokenizer to extend is of bytes, and stays so: leave it out"
        )
    if isinstance(special_tokens, str):
        if special_tokens != "chat":
            raise TokenizerError(f"special_tokens is the string {special_tokens!r}; pass a list, or 'chat'")
        special_tokens = CHAT_TOKENS
    # Files without splits of their own are all learned from; a corpus that has a validation split keeps it apart.
    whole = {"train": 1.0}
    opened = open_corpus(corpus, max_documents=max_documents, max_bytes=max_bytes, fractions=whole)
    documents = opened.splits["train"]
    titles = {"bytes": "counting pieces", "merges": "merging"}
    shown = bars(titles, total_bytes=documents.size_bytes) if progress is None else nullcontext(progress)
    what = (documents.mapped() or documents, vocab_size, settings, tuple(special_tokens))
    with shown as report:
        rest: dict[str, Any] = {
            "threads": threads,
            "memory_limit": memory_limit,
            "executor": executor,
            "workers": workers,
            "progress": report,
        }
        if extend is None:
            return Tokenizer(*train_model(*what, **rest))
        return Tokenizer(*extend_model(Parent(extend.model, extend.fingerprint, extend.name), *what, **rest))


def check_extended(tokenizer: Tokenizer, switches: Collection[str]) -> None:
    """Refuse what cannot be trained further, and switches that are the tokenizer's own.

    Raises:
        TokenizerError: naming it.
    """
    if not isinstance(tokenizer, Tokenizer):
        raise TokenizerError(f"extend is {type(tokenizer).__name__}, not a Tokenizer; load it first (Tokenizer.load)")
    for switch in FOLLOWS_PARENT:
        if switch in switches:
            raise TokenizerError(
                f"{switch} is given, but a tokenizer that is trained further keeps its own: leave it out"
            )
