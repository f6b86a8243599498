"""`minigpt-tok corpus`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from minigpt_tok.amounts import counted, sized
from minigpt_tok.cli.options import AsJson, DecodingErrors, Inputs, MaxBytes, MaxDocuments
from minigpt_tok.cli.printing import plain, print_json, print_table
from minigpt_tok.data.corpora import open_inputs
from minigpt_tok.data.leakage import check_leakage
from minigpt_tok.data.processed import write_processed

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
    document_separator: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="What stands between documents in files: auto finds <|endoftext|> lines and WikiText's articles; none takes "
            "each file as one document.",
        ),
    ] = "auto",
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
        separator=None if document_separator == "none" else document_separator,
        errors=errors,
        max_documents=max_documents,
        max_bytes=max_bytes,
    )
    written = write_processed(opened, output)
    leakage = check_leakage(opened)
    result = {
        "corpus": written.corpus,
        "folder": written.folder,
        "splits": {
            split: {"path": written.folder / f"{split}.txt", **plain(counts)}
            for split, counts in written.splits.items()
        },
        "split_by": "the corpus" if opened.has_own_splits else "hash",
        "cleaning": dict(written.cleaning),
        "leakage": {
            "found": leakage.found,
            "between": [
                {"splits": [earlier, later], **plain(overlap)} for (earlier, later), overlap in leakage.between.items()
            ],
            "within": {split: plain(overlap) for split, overlap in leakage.within.items()},
        },
    }
    if as_json:
        print_json(result)
    else:
        _print_page(result)


CLEANING = {
    "empty_documents": "empty documents left out",
    "separators": "separators removed",
    "separator_bytes": "bytes of separators",
    "undecodable": "places that were not UTF-8",
    "byte_order_marks": "byte order marks, kept",
}


def _print_page(result: dict[str, Any]) -> None:
    by = "its own" if result["split_by"] == "the corpus" else "by a hash of each document"
    print(f"{result['corpus']}, splits {by}, written to {result['folder']}\n")
    rows = [(split, f"{c['documents']:,}", f"{c['n_bytes']:,}") for split, c in result["splits"].items()]
    print_table(("split", "documents", "bytes"), rows)
    print()
    for key, number in result["cleaning"].items():
        if number:
            print(f"{number:,} {CLEANING.get(key, key)}")
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
