"""`minigpt-tok compare`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from minigpt_tok.cli.fields import values_of, with_fields
from minigpt_tok.cli.options import (
    AsJson,
    DecodingErrors,
    Inputs,
    MaxBytes,
    MaxDocuments,
    Overwrite,
    RecipeName,
    TextColumn,
)
from minigpt_tok.cli.printing import plain, print_json, print_rich
from minigpt_tok.data.corpora import open_inputs
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.progress import progress

EXAMPLE = (
    "minigpt-tok compare wikitext-2 --vocab-sizes 512,2048 --with gpt2/tokenizer.json --budget bytes=5e6 -o comparison"
)


@with_fields({"Model": MiniGPTConfig, "Training": TrainingOptions}, leave_out=("vocab_size", "seed"))
def compare(
    inputs: Inputs,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The comparison's folder, with report.html at the end."),
    ] = Path("comparison"),
    vocab_sizes: Annotated[
        str,
        typer.Option(metavar="N,N,…", help="Of BPE trained on the corpus, all from one training run; none for none."),
    ] = "512,2048",
    with_tokenizer: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="TOKENIZER",
            help="Compare this tokenizer's file too; may be repeated.",
            show_default=False,
        ),
    ] = None,
    byte_baseline: Annotated[
        bool, typer.Option("--byte-baseline", help="Compare bytes without merges too.", show_default=False)
    ] = False,
    recipe: Annotated[RecipeName, typer.Option(help="How the BPE is trained.")] = "hf",
    special: Annotated[
        list[str] | None,
        typer.Option(metavar="TOKEN", help="A special token of the BPE; may be repeated.", show_default=False),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="A special token after each document, where a tokenizer has it.",
            show_default="none, for all alike",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="AXIS=AMOUNT",
            help="How much each model is trained on, repeats counted: bytes=…, characters=…, tokens=…, flops=… or seconds=….",
        ),
    ] = "bytes=5e6",
    seeds: Annotated[
        str, typer.Option(metavar="N,N,…", help="A run of each model for each; several show how much luck there is.")
    ] = "0",
    context: Annotated[
        Literal["sliding", "blocks"], typer.Option(help="Of the evaluation, as in evaluate.")
    ] = "sliding",
    stride: Annotated[
        int | None, typer.Option(metavar="N", help="Of sliding windows, in tokens.", show_default="half a block")
    ] = None,
    validation_text: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            min=1,
            help="Score at most so much of the validation split, in whole documents taken evenly from it.",
            show_default="all",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What every model writes on from.", show_default="the beginning of the validation text"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Processes that encode; all cores by default.", show_default=False),
    ] = None,
    text_column: TextColumn = None,
    errors: DecodingErrors = "strict",
    max_documents: MaxDocuments = None,
    max_bytes: MaxBytes = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare tokenizers fairly: the same model trained on each, scored in bits per byte.

    The character baseline is always among them. Body, budget, optimizer, seeds, data and evaluation are the same for all.
    Run again with the same settings, it goes on where it stopped. The folder holds a report to open, plots, and
    comparison.json with all that is needed to do it again.
    """
    sizes = _numbers(vocab_sizes, "--vocab-sizes")
    chosen_seeds = _numbers(seeds, "--seeds")
    options = TrainingOptions(**values_of(TrainingOptions, given))
    corpus = open_inputs(
        inputs, text_column=text_column, errors=errors, max_documents=max_documents, max_bytes=max_bytes
    )
    from minigpt_tok.measure.compare import compare_tokenizers
    from minigpt_tok.report.files import write_comparison

    with progress() as report:
        comparison = compare_tokenizers(
            corpus,
            output,
            vocab_sizes=sizes,
            with_tokenizers=with_tokenizer or (),
            byte_baseline=byte_baseline,
            recipe=recipe,
            special_tokens=special or (),
            separator=separator,
            budget=budget,
            body=values_of(MiniGPTConfig, given),
            options=options,
            seeds=chosen_seeds,
            context=context,
            stride=stride,
            validation_bytes=validation_text,
            prompt=prompt,
            workers=workers,
            overwrite=overwrite,
            command=shlex.join(["minigpt-tok", *sys.argv[1:]]),
            progress=report,
        )
        written = write_comparison(comparison, output)
    if as_json:
        print_json({**comparison.to_plain(), "folder": output, "written": plain(written)})
        return
    from minigpt_tok.report.terminal import comparison_report

    print_rich(comparison_report(comparison))
    print(f"\nwritten to {output}: report.html, comparison.json")


def _numbers(text: str, option: str) -> list[int]:
    """`512,2048` → [512, 2048]; `none` → none.

    Raises:
        BadParameter: it is not a list of whole numbers.
    """
    if text == "none":
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers, as 512,2048", param_hint=f"'{option}'"
        ) from None
