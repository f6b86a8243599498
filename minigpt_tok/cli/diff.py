"""`minigpt-tok diff`."""

from pathlib import Path
from typing import Annotated

import typer

from minigpt_tok.cli.options import CORPUS_HELP, AsJson, DecodingErrors, TextColumn
from minigpt_tok.cli.printing import plain, print_json
from minigpt_tok.data.corpora import open_inputs
from minigpt_tok.difference import counts_on, difference
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = "minigpt-tok diff old.json new.json --text wikitext-2"


def diff(
    first: Annotated[Path, typer.Argument(metavar="TOKENIZER1", help="A tokenizer's file.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="TOKENIZER2", help="Another's.", show_default=False)],
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="INPUT", help=f"Encode this with both, and count. {CORPUS_HELP}", show_default=False),
    ] = None,
    text_column: TextColumn = None,
    errors: DecodingErrors = "strict",
    show: Annotated[int, typer.Option(metavar="N", min=0, help="List N of the ids that change meaning.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare two tokenizers: overlap, the first different merge, ids that change meaning.

    Where both were trained here, it also says whether a tie decided the first different merge. The status is 0 whether
    they differ or not; --json says it in "same".
    """
    names = (str(first), str(second)) if first != second else ("the first", "the second")
    tokenizers = Tokenizer.load(first), Tokenizer.load(second)
    found = difference(*tokenizers, names=names, show=show)
    counts = None
    if text:
        documents = open_inputs(text, text_column=text_column, errors=errors).documents
        counts = counts_on(*tokenizers, documents, names=names)
    if as_json:
        print_json(
            {
                "same": found.same,
                "first_difference": found.first,
                **plain(found),
                "changed": [change._asdict() for change in found.changed],
                "tie": found.first_merge.tie if found.first_merge is not None else None,
                "text": None if counts is None else {**plain(counts), "bytes_per_token": counts.bytes_per_token},
            }
        )
        return
    print(found)
    if counts is not None:
        print(counts)
