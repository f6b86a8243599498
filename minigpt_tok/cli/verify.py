"""`minigpt-tok verify`."""

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from minigpt_tok.cli import tokenizer_checks as checks
from minigpt_tok.cli.options import CORPUS_HELP, AsJson, DecodingErrors, TextColumn
from minigpt_tok.cli.printing import plain, print_json
from minigpt_tok.data.corpora import Corpus, open_inputs
from minigpt_tok.progress import Report, progress
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = "minigpt-tok verify tokenizer.json wikitext-2"

MARKS = {True: "ok", False: "FAILED", None: "not done"}


def verify(
    tokenizer: Annotated[Path, typer.Argument(metavar="TOKENIZER", help="The tokenizer's file.", show_default=False)],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help=f"The text it was trained on, to train again, with splits to measure; or any held-out text. {CORPUS_HELP}",
            show_default=False,
        ),
    ] = None,
    documents: Annotated[int, typer.Option(metavar="N", min=1, help="How many texts make the round trip.")] = 5_000,
    seed: Annotated[int, typer.Option(metavar="N", help="Of those texts.")] = 0,
    text_column: TextColumn = None,
    errors: DecodingErrors = "strict",
    as_json: AsJson = False,
) -> None:
    """Check that a tokenizer is sound: round trips, its merges, its compression.

    Thousands of texts with emoji and many scripts must come back byte for byte. Where INPUT is the text that the tokenizer
    was trained on, it is trained again, and every merge must be the same. On held-out text the bytes per token must be in
    the neighbourhood that its number of merges has: much lower means that merges are not applied, much higher that it is
    overfitted. The status is 1 if a check fails.
    """
    tok = Tokenizer.load(tokenizer)
    open_ = functools.partial(open_inputs, inputs, text_column=text_column, errors=errors) if inputs else None
    done = []
    with progress() as report:
        for check in _all_checks(tok, open_, documents, seed, report):
            done.append(check)
    ok = checks.all_ok(done)
    if as_json:
        print_json(
            {
                "tokenizer": tokenizer,
                "fingerprint": tok.fingerprint,
                "ok": ok,
                "checks": [plain(check) for check in done],
            }
        )
    else:
        print(f"{tokenizer}: {tok.vocab_size:,} ids of {tok.unit}s, fingerprint {tok.fingerprint}\n")
        for check in done:
            print(f"{MARKS[check.ok]:<8}  {check.name}: {check.found}")
    if not ok:
        raise typer.Exit(1)


def _all_checks(
    tokenizer: Tokenizer, open_: Callable[..., Corpus] | None, documents: int, seed: int, report: Report | None
) -> Iterator[checks.Check]:
    yield checks.check_round_trips(tokenizer, documents, seed, report)
    yield checks.check_merges(tokenizer)
    yield checks.check_special_tokens(tokenizer)
    yield checks.check_saving(tokenizer)
    if open_ is None:
        nothing = "no text was given; give the training text or held-out text as INPUT"
        for name in ("training again", "training text", "held-out text"):
            yield checks.Check(name, None, nothing, {})
        return
    corpus, text = _training_text(tokenizer, open_)
    yield checks.check_training_again(tokenizer, text, report)
    yield checks.check_training_tokens(tokenizer, text, report)
    name, held_out = _held_out(corpus, text)
    if held_out is None:
        yield checks.Check("held-out text", None, name, {})
    else:
        yield checks.check_compression(tokenizer, held_out, name, report)


def _training_text(tokenizer: Tokenizer, open_: Callable[..., Corpus]) -> tuple[Corpus, checks.TrainingText]:
    """The corpus, opened as it was for training: files without splits were one whole, or split by hash."""
    corpus = open_(fractions={"train": 1.0})
    text = checks.TrainingText(tokenizer, corpus)
    if text.documents is None and not corpus.has_own_splits:
        by_hash = open_()
        other = checks.TrainingText(tokenizer, by_hash)
        if other.documents is not None:
            return by_hash, other
    return corpus, text


def _held_out(corpus: Corpus, text: checks.TrainingText) -> tuple[str, Iterable[str] | None]:
    """A name for text that the tokenizer has not learned from, and the text; or why there is none."""
    for split in ("validation", "test"):
        if split in corpus.splits:
            return f"{corpus.name}, {split}", corpus.splits[split]
    if text.documents is not None and text.is_all:
        return f"{corpus.name} is all training text; give held-out text to measure the compression", None
    if text.documents is not None:
        return f"{corpus.name} begins with the training text; give held-out text to measure the compression", None
    return f"{corpus.name}, all of it", corpus.documents
