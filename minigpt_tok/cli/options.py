"""Arguments and options that several commands take, each written once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from minigpt_tok.data.splits import SPLITS, canonical_split

RecipeName = Literal["hf", "cs336", "readable", "character"]
Errors = Literal["strict", "replace", "ignore"]

CORPUS_HELP = (
    "A corpus name (pydocs, wikitext-2, wikitext-103, tinystories), files, folders or globs of .txt, .jsonl, .parquet, .arrow "
    "(each also .gz, .zst), or a data set of the hub: hf:OWNER/NAME, hf:OWNER/NAME/CONFIG, each also with :SPLIT. With a "
    "weight after each, as in wiki/:0.7 stories/:0.3, a mixture."
)

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.", show_default=False)
]
Inputs = Annotated[list[str], typer.Argument(metavar="INPUT", help=CORPUS_HELP, show_default=False)]
TokenizerFile = Annotated[
    Path,
    typer.Option("--tokenizer", "-t", metavar="TOKENIZER", help="The tokenizer's file.", show_default=False),
]
MaxDocuments = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Take at most N documents (of each split, if there are any).", show_default=False
    ),
]
MaxBytes = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Likewise: as many whole documents as N bytes hold.", show_default=False),
]
DecodingErrors = Annotated[
    Errors,
    typer.Option(
        "--errors", help="Where a file is not UTF-8: stop, put U+FFFD in its place, or leave it out (counted)."
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column of tables that holds the text; guessed, and said, if not given.",
        show_default=False,
    ),
]
HeldOut = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        min=2,
        help="Take every K-th document as validation, instead of dividing by a hash of each document.",
        show_default=False,
    ),
]
DocumentSeparator = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="What stands between documents in files of text: auto finds <|endoftext|> lines and WikiText's articles; none "
        "takes each file as one document.",
    ),
]
CheckpointFile = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint, which carries its tokenizer.", show_default=False)
]
DataFolder = Annotated[
    Path,
    typer.Option("--data", "-d", metavar="DIR", help="The folder of an encoded corpus.", show_default=False),
]
BudgetText = Annotated[
    str | None,
    typer.Option(
        metavar="AXIS=AMOUNT",
        help="How much to train on, repeats counted: bytes=5e6, characters=…, tokens=…, flops=… or seconds=….",
        show_default="the bytes of the train split",
    ),
]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="cpu, cuda, mps; auto takes the best there is.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.", show_default=False)]


def document_separator_of(text: str) -> str | None:
    """What `open_corpus` takes as the separator."""
    return None if text == "none" else text


def split_name(text: str) -> str:
    """`train`, `validation` or `test`, for these and their other names (`val`, `valid`, `dev`).

    Raises:
        BadParameter: it is none of them.
    """
    split = canonical_split(text)
    if split is None:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(SPLITS)}", param_hint="'--split'")
    return split
