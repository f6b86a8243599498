"""`minigpt-tok corpus`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from minigpt_tok.amounts import counted, sized
from minigpt_tok.cli.options import (
    AsJson,
    DecodingErrors,
    DocumentSeparator,
    HeldOut,
    Inputs,
    MaxBytes,
    MaxDocuments,
    TextColumn,
    document_separator_of,
)
from minigpt_tok.cli.printing import plain, print_json, print_table, readable
from minigpt_tok.data.corpora import open_inputs
from minigpt_tok.data.leakage import check_leakage
from minigpt_tok.data.near_duplicates import find_near_duplicates
from minigpt_tok.data.processed import write_processed
from minigpt_tok.progress import progress

EXAMPLE = "minigpt-tok corpus stories/*.txt -o data/processed --name stories"


def corpus(
    inputs: Inputs,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Write to DIR/NAME: train.txt, validation.txt, test.txt."),
    ] = Path("data/processed"),
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What to call it; by default as its folder or file.", show_default=False),
    ] = None,
    document_separator: DocumentSeparator = "auto",
    text_column: TextColumn = None,
    held_out: HeldOut = None,
    near: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0.01,
            max=1,
            help="Also count near duplicates between splits: documents with so large a share of common five-word runs "
            "(0.8, say).",
            show_default=False,
        ),
    ] = None,
    errors: DecodingErrors = "strict",
    max_documents: MaxDocuments = None,
    max_bytes: MaxBytes = None,
    as_json: AsJson = False,
) -> None:
    """Read a corpus, write its cleaned splits, and count what leaks between them.

    A corpus without splits of its own is split by document, by a hash of the text: exact copies fall into one split.
    Duplicates between splits are counted, so that nothing is measured on what was trained on.
    """
    opened = open_inputs(
        inputs,
        name=name,
        separator=document_separator_of(document_separator),
        text_column=text_column,
        held_out=held_out,
        errors=errors,
        max_documents=max_documents,
        max_bytes=max_bytes,
    )
    written = write_processed(opened, output)
    leakage = check_leakage(opened)
    found_near = None
    if near is not None:
        with progress({"comparing bytes": "near duplicates"}) as report:
            found_near = find_near_duplicates(opened, near, progress=report)
    result = {
        "corpus": written.corpus,
        "folder": written.folder,
        "splits": {
            split: {"path": written.folder / f"{split}.txt", **plain(counts)}
            for split, counts in written.splits.items()
        },
        "split_by": f"every {held_out}th held out" if held_out else "the corpus" if opened.has_own_splits else "hash",
        "cleaning": dict(written.cleaning),
        "leakage": {
            "found": leakage.found,
            "between": [
                {"splits": [earlier, later], **plain(overlap)} for (earlier, later), overlap in leakage.between.items()
            ],
            "within": {split: plain(overlap) for split, overlap in leakage.within.items()},
        },
        "near": None
        if found_near is None
        else {
            "threshold": found_near.threshold,
            "between": [
                {"splits": [earlier, later], **plain(overlap), "examples": found_near.examples[earlier, later]}
                for (earlier, later), overlap in found_near.between.items()
            ],
        },
    }
    if as_json:
        print_json(result)
    else:
        _print_page(result)


CLEANING = {
    "empty_documents": ("empty document", " left out"),
    "separators": ("separator", " removed"),
    "separator_bytes": ("byte", " of separators"),
    "undecodable": ("place", " not in UTF-8"),
    "byte_order_marks": ("byte order mark", ", kept"),
}


def _print_page(result: dict[str, Any]) -> None:
    by = {"the corpus": "its own", "hash": "by a hash of each document"}.get(result["split_by"], result["split_by"])
    print(f"{result['corpus']}, splits {by}, written to {result['folder']}\n")
    rows = [(split, f"{c['documents']:,}", f"{c['n_bytes']:,}") for split, c in result["splits"].items()]
    print_table(("split", "documents", "bytes"), rows)
    print()
    for key, number in result["cleaning"].items():
        if number:
            what, done = CLEANING.get(key, (key, ""))
            print(f"{counted(number, what)}{done}")
    leakage = result["leakage"]
    for overlap in leakage["between"]:
        if overlap["documents"]:
            earlier, later = overlap["splits"]
            print(
                f"leakage: {counted(overlap['documents'], 'document')} of {later} ({sized(overlap['n_bytes'])}) "
                f"{'stands' if overlap['documents'] == 1 else 'stand'} in {earlier} too"
            )
    if not leakage["found"]:
        print("no document stands in two splits")
    for split, overlap in leakage["within"].items():
        if overlap["documents"]:
            print(
                f"{counted(overlap['documents'], 'document')} of {split} ({sized(overlap['n_bytes'])}) repeat earlier ones"
            )
    if result["near"] is not None:
        _print_near(result["near"])


def _print_near(near: dict[str, Any]) -> None:
    some = False
    for overlap in near["between"]:
        if overlap["documents"]:
            some = True
            earlier, later = overlap["splits"]
            print(
                f"near leakage: {counted(overlap['documents'], 'document')} of {later} ({sized(overlap['n_bytes'])}) share at "
                f"least {near['threshold']:.0%} of their five-word runs with one of {earlier}; for example"
            )
            for text, other, share in overlap["examples"][:2]:
                print(f"  {share:.0%}: {readable(text)} … like {readable(other)} …")
    if not some:
        print(f"no document shares {near['threshold']:.0%} of its five-word runs with one of another split")
