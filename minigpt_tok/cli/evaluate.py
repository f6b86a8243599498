"""`minigpt-tok evaluate`."""

import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from minigpt_tok.amounts import lasted
from minigpt_tok.cli.options import AsJson, CheckpointFile, DataFolder, Device, split_name
from minigpt_tok.cli.printing import print_json, print_rich
from minigpt_tok.progress import progress

EXAMPLE = "minigpt-tok evaluate checkpoints/bpe/last.ckpt --data data/encoded/wikitext-2/bpe --split test"


def evaluate(
    checkpoint: CheckpointFile,
    data: DataFolder,
    split: Annotated[str, typer.Option(metavar="SPLIT", help="Which split of the data: train, validation or test.")] = (
        "validation"
    ),
    context: Annotated[
        Literal["sliding", "blocks"],
        typer.Option(
            help="sliding: windows that overlap, so that the score does not depend on where blocks begin. blocks: a quick look."
        ),
    ] = "sliding",
    stride: Annotated[
        int | None,
        typer.Option(metavar="N", help="How far a sliding window moves, in tokens.", show_default="half a block"),
    ] = None,
    own_context: Annotated[
        bool,
        typer.Option(
            "--own-context", help="Score each document by itself, not in the stream of all.", show_default=False
        ),
    ] = False,
    count_special: Annotated[
        bool, typer.Option("--count-special", help="Add the bits of special tokens too.", show_default=False)
    ] = False,
    batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="Windows at a time; the score is the same.")] = 8,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure the bits per byte of a checkpoint.

    Bits of all tokens over the UTF-8 bytes of the text, with a 95% interval from a bootstrap over documents. The ids must
    be of the checkpoint's tokenizer.
    """
    wanted = split_name(split)
    from minigpt_tok.checkpoint import load_model
    from minigpt_tok.cli.devices import choose_device
    from minigpt_tok.data.token_dataset import id_file_in
    from minigpt_tok.measure.bits_per_byte import bits_per_byte

    model, tokenizer = load_model(checkpoint)
    if not own_context and _trained_apart(checkpoint):
        print(
            "note: this model was trained with documents apart (packing document), and is scored in the stream of all; "
            "--own-context scores it as it was trained",
            file=sys.stderr,
        )
    started = time.perf_counter()
    with progress({"bits per byte": "tokens"}) as report:
        score = bits_per_byte(
            model.to(choose_device(device)),
            id_file_in(data, wanted),
            tokenizer,
            context=context,
            stride=stride,
            batch_size=batch_size,
            own_context=own_context,
            count_special=count_special,
            progress=report,
        )
    seconds = time.perf_counter() - started
    if as_json:
        print_json({"checkpoint": checkpoint, "data": data, **score.to_plain(), "seconds": seconds})
        return
    from minigpt_tok.report.terminal import score_table

    print_rich(score_table(score))
    print(f"\n{score.tokens / seconds:,.0f} tokens/s, {lasted(seconds)}")


def _trained_apart(checkpoint: Path) -> bool:
    """Whether `fit` says in it that it was trained with packing `document`."""
    from minigpt_tok.checkpoint_files import read_checkpoint

    settings = read_checkpoint(checkpoint, mapped=True).get("hyper_parameters")
    options = settings.get("options") if isinstance(settings, dict) else None
    return isinstance(options, dict) and options.get("packing") == "document"
