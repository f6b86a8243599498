"""Arguments and options that several commands take, each written once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

RecipeName = Literal["hf", "cs336", "readable", "character"]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.", show_default=False)
]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="A corpus name (pydocs, wikitext-2, wikitext-103, tinystories), or files, folders, globs.",
        show_default=False,
    ),
]
TokenizerFile = Annotated[
    Path,
    typer.Option("--tokenizer", "-t", metavar="TOKENIZER", help="The tokenizer's file.", show_default=False),
]
MaxDocuments = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Take at most N documents of each split.", show_default=False)
]
MaxBytes = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Take at most N bytes of each split, in whole documents.", show_default=False),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.", show_default=False)]
