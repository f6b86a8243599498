"""`minigpt-tok train`."""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from minigpt_tok.amounts import counted, lasted, sized
from minigpt_tok.bpe.extend import learned_merges
from minigpt_tok.bpe.recipes import IdOrder, Tie
from minigpt_tok.cli.engine import Engine, Scheduler, check_engine, executor_of
from minigpt_tok.cli.options import (
    AsJson,
    DecodingErrors,
    Inputs,
    MaxBytes,
    MaxDocuments,
    Overwrite,
    RecipeName,
    TextColumn,
    size_in_bytes,
)
from minigpt_tok.cli.printing import as_text, print_facts, print_json, print_table, readable
from minigpt_tok.data.corpora import Corpus, open_inputs
from minigpt_tok.data.splits import canonical_split
from minigpt_tok.errors import TokenizerError
from minigpt_tok.formats.known import known_name
from minigpt_tok.tokenizer import Tokenizer
from minigpt_tok.train import train_tokenizer

EXAMPLE = "minigpt-tok train wikitext-2 --vocab-size 8192 --special '<|endoftext|>' -o tokenizer.json"

LONGEST_TOKENS = 10  # shown
FIRST_AND_LAST = 10  # merges shown unless others are asked for
log = logging.getLogger(__name__)


def train(
    inputs: Inputs,
    vocab_size: Annotated[
        int, typer.Option("--vocab-size", "-n", help="Ids in all, special tokens included.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to save the tokenizer.")] = Path(
        "tokenizer.json"
    ),
    recipe: Annotated[
        RecipeName,
        typer.Option(
            help="The published way of training: as Hugging Face, CS336, the readable and character tutorials."
        ),
    ] = "hf",
    special: Annotated[
        list[str] | None,
        typer.Option(metavar="TOKEN", help="Reserve an id for a special token; may be repeated.", show_default=False),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="The pre-tokenizer: gpt2, digits1, digits2, llama3, cl100k, o200k, smollm, none, or a regular expression. "
            "By default the recipe's, like all that follows.",
            show_default=False,
        ),
    ] = None,
    min_frequency: Annotated[
        int | None,
        typer.Option(metavar="K", help="Stop when the best pair occurs less than K times.", show_default=False),
    ] = None,
    max_token_length: Annotated[
        int | None,
        typer.Option(metavar="N", help="Make no token longer than N bytes (or characters).", show_default=False),
    ] = None,
    tie: Annotated[
        Tie | None, typer.Option(help="Which of several equally frequent pairs wins.", show_default=False)
    ] = None,
    id_order: Annotated[IdOrder | None, typer.Option(help="How ids are numbered.", show_default=False)] = None,
    extend: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENIZER",
            help="Train this tokenizer further: its ids and merges stay, new ones come behind. Its pattern is kept.",
            show_default=False,
        ),
    ] = None,
    text_column: TextColumn = None,
    errors: DecodingErrors = "strict",
    max_documents: MaxDocuments = None,
    max_bytes: MaxBytes = None,
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Threads to count with; all cores by default.", show_default=False),
    ] = None,
    memory_limit: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            parser=size_in_bytes,
            help="The most memory for the tables of counts, as 200MB or 1.5GB; beyond it they go to temporary files as sorted "
            "runs, in the folder that TMPDIR names, with the same result. Learning from the distinct pieces needs about 6 "
            "to 9 bytes for each of their bytes besides.",
            show_default="no limit",
        ),
    ] = None,
    engine: Engine = "local",
    scheduler: Scheduler = None,
    show_merges: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST,EVERY",
            help="List the merges 1 to FIRST and every EVERY-th; by default the first and the last ten.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Train a tokenizer on the train split of a corpus, or on files.

    Of a corpus with splits, only the train split is read. Files without splits are trained on whole; to keep a part of
    them unseen, write splits first (minigpt-tok corpus) and train on the folder that this makes.
    """
    check_engine(engine, scheduler)
    first, every = _shown_merges(show_merges)
    switches: dict[str, Any] = {
        name: value
        for name, value in (
            ("pattern", pattern),
            ("min_frequency", min_frequency),
            ("max_token_length", max_token_length),
            ("tie", tie),
            ("id_order", id_order),
            ("threads", threads),
            ("memory_limit", memory_limit),
        )
        if value is not None
    }
    if extend is not None:
        switches["extend"] = Tokenizer.load(extend)
    _check_output(output, overwrite)
    _warn_of_held_out_files(inputs)
    corpus = open_inputs(
        inputs,
        text_column=text_column,
        errors=errors,
        max_documents=max_documents,
        max_bytes=max_bytes,
        fractions={"train": 1.0},
    )
    with executor_of(engine, scheduler) as (executor, workers):
        tokenizer = train_tokenizer(
            corpus, vocab_size, recipe, special or [], executor=executor, workers=workers, **switches
        )
    tokenizer.save(output)
    assert tokenizer.training is not None
    result = _result(tokenizer, corpus, output, _numbers(len(tokenizer.training.counts), first, every))
    if as_json:
        print_json(result)
    else:
        _print_page(result)


def _shown_merges(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    match = re.fullmatch(r"\s*(\d+)\s*(?:,\s*(\d+)\s*)?", text)
    if match is None or match[2] == "0":
        raise typer.BadParameter(f"{text!r} is not FIRST,EVERY, as in 20,100", param_hint="'--show-merges'")
    return int(match[1]), int(match[2]) if match[2] else None


def _numbers(merges: int, first: int | None, every: int | None) -> list[int]:
    """Which merges are shown, counted from 1."""
    if first is None:
        return [n for n in range(1, merges + 1) if n <= FIRST_AND_LAST or n > merges - FIRST_AND_LAST]
    return [n for n in range(1, merges + 1) if n <= first or (every is not None and n % every == 0)]


def _check_output(output: Path, overwrite: bool) -> None:
    """Refuse before the work what could not be saved after it."""
    if output.is_dir():
        raise TokenizerError(f"{output} is a folder; give the name of a file in it: -o {output / 'tokenizer.json'}")
    if output.exists() and not output.is_file():
        raise TokenizerError(
            f"{output} is a device or a pipe, which is never replaced; give the name of a file with -o"
        )
    if output.exists() and not overwrite:
        raise TokenizerError(
            f"{output} exists. To keep it, give another file with -o; to replace it, pass --overwrite. What was encoded or "
            "trained with it refuses any other tokenizer"
        )


def _warn_of_held_out_files(inputs: Sequence[str]) -> None:
    files = [Path(name) for name in inputs]
    splits = [canonical_split(re.split(r"[-_.]", file.stem)[-1]) if file.is_file() else None for file in files]
    if "train" in splits:
        return
    for file, split in zip(files, splits, strict=True):
        if split is not None:
            log.warning("%s looks like a %s split: what is learned from it cannot be judged by it", file, split)


def _result(tokenizer: Tokenizer, corpus: Corpus, output: Path, numbers: list[int]) -> dict[str, Any]:
    training = tokenizer.training
    assert training is not None
    learned = learned_merges(tokenizer.model, len(training.counts))
    made = [merged for _, _, merged in learned]
    tokens = training.curve[-1] if training.curve else training.base_tokens
    longest = sorted(range(len(made)), key=lambda n: (-len(tokenizer.vocab[made[n]]), n))[:LONGEST_TOKENS]
    return {
        "tokenizer": output,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "unit": tokenizer.unit,
        "pattern": tokenizer.pattern,
        "recipe": training.recipe,
        "special_tokens": tokenizer.special_tokens,
        "extends": training.extends,
        "corpus": corpus.name,
        "documents": training.documents,
        "bytes": training.bytes,
        "distinct_pieces": training.distinct_pieces,
        "seconds": training.seconds,
        "megabytes_per_second": training.megabytes_per_second,
        "peak_memory": training.peak_memory,
        "threads": training.threads,
        "stopped": training.stopped,
        "base_tokens": training.base_tokens,
        "tokens": tokens,
        "bytes_per_token": training.bytes / tokens,
        "number_of_merges": len(made),
        "merges": [
            {
                "number": n,
                "left": as_text(tokenizer.vocab[learned[n - 1][0]]),
                "right": as_text(tokenizer.vocab[learned[n - 1][1]]),
                "token": as_text(tokenizer.vocab[made[n - 1]]),
                "id": made[n - 1],
                "count": training.counts[n - 1],
                "tokens_after": training.curve[n - 1],
            }
            for n in numbers
        ],
        "longest_tokens": [
            {"id": made[n], "token": as_text(tokenizer.vocab[made[n]]), "length": len(tokenizer.vocab[made[n]])}
            for n in longest
        ],
    }


def _print_page(result: dict[str, Any]) -> None:
    memory = result["peak_memory"]
    print_facts(
        [
            ("tokenizer", f"{result['vocab_size']:,} ids of {result['unit']}s, pattern {result['pattern']}"),
            ("fingerprint", result["fingerprint"]),
            ("special tokens", "  ".join(f"{token} {id}" for token, id in result["special_tokens"].items()) or "none"),
            ("extends", _extended(result["extends"])),
            ("trained on", f"{result['corpus']}: {counted(result['documents'], 'document')}, {sized(result['bytes'])}"),
            ("pieces", f"{result['distinct_pieces']:,} distinct"),
            (
                "time",
                f"{lasted(result['seconds'])}, {result['megabytes_per_second']:.2f} MB/s, {counted(result['threads'], 'thread')}",
            ),
            ("peak memory", None if memory is None else sized(memory)),
            ("merges", f"{result['number_of_merges']:,}; stopped because {result['stopped']}"),
            (
                "compression",
                f"{counted(result['tokens'], 'token')}, {result['bytes_per_token']:.3f} bytes per token on the training text",
            ),
        ]
    )
    if result["merges"]:
        print()
        print_table(("merge", "left", "right", "token", "id", "count"), _merge_rows(result["merges"]), left=(1, 2, 3))
    if result["longest_tokens"]:
        print("\nlongest tokens")
        rows = [(token["length"], token["id"], readable(token["token"])) for token in result["longest_tokens"]]
        print_table(("length", "id", "token"), rows, left=(2,))
    print(f"\nsaved to {result['tokenizer']}")


def _extended(parent: dict[str, Any] | None) -> str | None:
    if parent is None:
        return None
    name = known_name(parent["fingerprint"])
    return f"{name or parent['fingerprint']}, {parent['vocab_size']:,} ids, all kept"


def _merge_rows(merges: list[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    before = 0
    for merge in merges:
        if merge["number"] > before + 1:
            yield ("…", "", "", "", "", "")
        before = merge["number"]
        left, right, token = (readable(merge[part]) for part in ("left", "right", "token"))
        yield f"{merge['number']:,}", left, right, token, f"{merge['id']:,}", f"{merge['count']:,}"
