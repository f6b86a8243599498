"""`minigpt-tok encode`."""

import dataclasses
import logging
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from minigpt_tok.amounts import counted, lasted, sized
from minigpt_tok.cli.engine import Engine, Scheduler, check_engine, executor_of
from minigpt_tok.cli.options import (
    AsJson,
    DecodingErrors,
    DocumentSeparator,
    HeldOut,
    Inputs,
    MaxBytes,
    MaxDocuments,
    Overwrite,
    TextColumn,
    TokenizerFile,
    document_separator_of,
    split_name,
)
from minigpt_tok.cli.printing import print_facts, print_json, print_table
from minigpt_tok.data.corpora import Corpus, open_inputs
from minigpt_tok.data.encode import default_encoding_dir, encode_corpus, find_separator
from minigpt_tok.data.estimate import Estimate, estimate_encoding
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import CorpusError
from minigpt_tok.progress import progress
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = "minigpt-tok encode wikitext-2 -t tokenizer.json -o data/encoded/wikitext-2/bpe"

TOKENIZER_FILE = "tokenizer.json"
log = logging.getLogger(__name__)


def encode(
    inputs: Inputs,
    tokenizer: TokenizerFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where to write the id files.",
            show_default="data/encoded/CORPUS/TOKENIZER",
        ),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPLIT",
            help="Encode this split only: train, validation or test; may be repeated.",
            show_default=False,
        ),
    ] = None,
    separator: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            help="The special token after each document: auto takes <|endoftext|> where the tokenizer has it; none takes none.",
        ),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Local processes. By default all cores: threads of this process, or processes where Python encodes.",
            show_default=False,
        ),
    ] = None,
    engine: Engine = "local",
    scheduler: Scheduler = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Say from a sample what it will take (tokens, time, disk, memory), and do nothing else."
        ),
    ] = False,
    document_separator: DocumentSeparator = "auto",
    text_column: TextColumn = None,
    held_out: HeldOut = None,
    errors: DecodingErrors = "strict",
    max_documents: MaxDocuments = None,
    max_bytes: MaxBytes = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Encode every split of a corpus to id files.

    One file a split, DIR/train.safetensors and so on, each whole or not there. Run again, after a kill say, the command
    keeps what is finished, whole files and shards of 64 MiB of text. What another tokenizer made is not overwritten unless
    --overwrite is given.
    """
    check_engine(engine, scheduler)
    tok = Tokenizer.load(tokenizer)
    corpus = open_inputs(
        inputs,
        separator=document_separator_of(document_separator),
        text_column=text_column,
        held_out=held_out,
        errors=errors,
        max_documents=max_documents,
        max_bytes=max_bytes,
    )
    if split:
        corpus = _only(corpus, split)
    folder = output or default_encoding_dir("data", corpus.name, tok)
    if estimate:
        separated = find_separator(tok, None if separator == "none" else separator) is not None
        return _print_estimate(estimate_encoding(corpus, tok, folder), separated, as_json)
    _announce(corpus, tok, folder)
    started = time.perf_counter()
    with progress() as report, executor_of(engine, scheduler) as (executor, n_workers):
        files = encode_corpus(
            corpus,
            tok,
            folder,
            separator=None if separator == "none" else separator,
            workers=workers or n_workers,
            executor=executor,
            overwrite=overwrite,
            progress=None if report is None else lambda split, done, total: report("bytes", done, total),
            command=shlex.join(["minigpt-tok", "encode", *inputs, "--separator", separator]),
        )
    # Beside the ids, for `minigpt-tok fit`; it is theirs, whatever stood there before.
    tok.save(folder / TOKENIZER_FILE)
    result = _result(tokenizer, tok, folder, files, time.perf_counter() - started)
    if as_json:
        print_json(result)
    else:
        _print_page(result)
    return None


LONG_BYTES = 1 << 28  # a corpus from which on an encoding is announced with an estimate


def _announce(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> None:
    """Say before a long run what it will take."""
    if (corpus.size_bytes or 0) < LONG_BYTES:
        return
    found = estimate_encoding(corpus, tokenizer, folder)
    log.info(
        "about %s tokens in %s, %s on disk, by a sample of %s",
        f"{found.tokens or 0:,}", lasted(found.seconds or 0), sized(found.disk_bytes or 0), sized(found.sample_bytes),
    )  # fmt: skip
    if not found.fits:
        log.warning(
            "%s: about %s will be needed there, and %s are free",
            folder, sized(found.most_disk_bytes or 0), sized(found.free_disk_bytes or 0),
        )  # fmt: skip


def _print_estimate(found: Estimate, separated: bool, as_json: bool) -> None:
    if as_json:
        print_json({**dataclasses.asdict(found), "fits": found.fits})
        return
    unknown = "not known beforehand"
    besides = ", and a separator for each document" if separated else ""
    disk = unknown if found.disk_bytes is None else sized(found.disk_bytes)
    if found.free_disk_bytes is not None:
        disk += f"; {sized(found.free_disk_bytes)} free{'' if found.fits else ', TOO LITTLE'}"
    print_facts(
        [
            (
                "sample",
                (
                    f"{counted(found.sample_documents, 'document')}, {sized(found.sample_bytes)}: "
                    f"{found.bytes_per_token:.3f} bytes per token, {found.megabytes_per_second:.1f} MB/s"
                ),
            ),
            ("text", unknown if found.n_bytes is None else sized(found.n_bytes)),
            ("tokens", unknown if found.tokens is None else f"{found.tokens:,}{besides}"),
            ("time", unknown if found.seconds is None else lasted(found.seconds)),
            ("disk", disk),
            ("memory", sized(found.memory_bytes)),
        ]
    )


def _only(corpus: Corpus, wanted: list[str]) -> Corpus:
    splits = [split_name(name) for name in wanted]
    missing = [name for name in splits if name not in corpus.splits]
    if missing:
        raise CorpusError(f"{corpus.name} has no split {', '.join(missing)}; it has {', '.join(corpus.splits)}")
    # Splits by hash become the corpus's own, since the rest of the documents is of no interest here.
    return Corpus(corpus.name, {name: corpus.splits[name] for name in splits}, corpus.documents)


def _result(path: Path, tokenizer: Tokenizer, folder: Path, files: dict[str, Path], seconds: float) -> dict[str, Any]:
    splits: dict[str, dict[str, Any]] = {}
    for split, file in files.items():
        metadata = IdFile(file).metadata
        splits[split] = {
            "path": file,
            "documents": metadata.n_documents,
            "bytes": metadata.n_bytes,
            "tokens": metadata.n_tokens,
            "bytes_per_token": metadata.n_bytes / metadata.n_tokens if metadata.n_tokens else None,
            "file_bytes": file.stat().st_size,
        }
        separator = metadata.separator
    n_bytes = sum(split["bytes"] for split in splits.values())
    return {
        "corpus": metadata.corpus,
        "folder": folder,
        "tokenizer": path,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "separator": separator or None,
        "splits": splits,
        "bytes": n_bytes,
        "tokens": sum(split["tokens"] for split in splits.values()),
        "seconds": seconds,
        "megabytes_per_second": n_bytes / 1e6 / seconds,
    }


def _print_page(result: dict[str, Any]) -> None:
    print_facts(
        [
            ("corpus", result["corpus"]),
            ("tokenizer", f"{result['tokenizer']}, {result['vocab_size']:,} ids"),
            ("fingerprint", result["fingerprint"]),
            ("separator", result["separator"] or "none: documents follow one another"),
            ("time", f"{lasted(result['seconds'])}, {result['megabytes_per_second']:.2f} MB/s"),
            ("folder", result["folder"]),
        ]
    )
    print()
    rows = []
    for name, split in result["splits"].items():
        counts = [f"{split[what]:,}" for what in ("documents", "bytes", "tokens")]
        rows.append((name, *counts, f"{split['bytes_per_token'] or 0:.3f}", sized(split["file_bytes"])))
    print_table(("split", "documents", "bytes", "tokens", "bytes per token", "file"), rows)
