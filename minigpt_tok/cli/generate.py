"""`minigpt-tok generate`."""

import secrets
import sys
import time
from typing import Annotated

import typer

from minigpt_tok.amounts import counted
from minigpt_tok.cli.options import AsJson, CheckpointFile, Device
from minigpt_tok.cli.printing import escaped, print_json
from minigpt_tok.cli.text_argument import read_text_argument
from minigpt_tok.progress import is_shown

EXAMPLE = 'minigpt-tok generate checkpoints/bpe/last.ckpt --prompt "The history of" --temperature 0.8 --top-k 50'


def generate(
    checkpoint: CheckpointFile,
    prompt: Annotated[
        str,
        typer.Option(
            "--prompt",
            "-p",
            metavar="TEXT",
            help="What to go on from; - reads it from standard input. Empty: a new text.",
        ),
    ] = "",
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", metavar="N", help="At most so many tokens.")
    ] = 200,
    temperature: Annotated[
        float,
        typer.Option(metavar="T", help="Below 1 more likely tokens, above 1 less likely ones; 0 the likeliest always."),
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Draw from the K likeliest tokens only.", show_default=False)
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Draw from the fewest tokens that have probability P together.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="The same seed gives the same text; a new one each time.", show_default=False),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End before this text; may be repeated.", show_default=False),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Generate text from a checkpoint.

    The prompt and what follows it are written as they come, whole characters at a time.
    """
    text = read_text_argument(prompt)
    chosen_seed = secrets.randbelow(1 << 31) if seed is None else seed
    from minigpt_tok.checkpoint import load_model
    from minigpt_tok.cli.devices import choose_device
    from minigpt_tok.gpt.generation import stream

    model, tokenizer = load_model(checkpoint)
    pieces = stream(
        model.to(choose_device(device)),
        tokenizer,
        text,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=chosen_seed,
        stop=stop or (),
    )
    started = time.perf_counter()
    if as_json:
        written = "".join(pieces)
    else:
        _write(text)
        for piece in pieces:
            _write(piece)
        _write("\n")
    seconds = time.perf_counter() - started
    if as_json:
        print_json(
            {
                "checkpoint": checkpoint,
                "fingerprint": tokenizer.fingerprint,
                "prompt": text,
                "text": written,
                "ids": pieces.ids,
                "prompt_ids": pieces.prompt_ids,
                "finish_reason": pieces.finish_reason,
                "seed": chosen_seed,
                "seconds": seconds,
                "tokens_per_second": len(pieces.ids) / seconds,
            }
        )
    elif is_shown():
        rate = f"{len(pieces.ids) / seconds:,.0f} tokens/s"
        print(
            f"[seed {chosen_seed}, {counted(len(pieces.ids), 'token')}, {rate}, ended by {pieces.finish_reason}]",
            file=sys.stderr,
        )


def _write(text: str) -> None:
    # What a model writes moves no cursor; a file gets it as it is.
    sys.stdout.write(escaped(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
