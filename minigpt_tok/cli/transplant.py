"""`minigpt-tok transplant`."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minigpt_tok.amounts import counted
from minigpt_tok.cli.options import AsJson, Overwrite
from minigpt_tok.cli.printing import print_facts, print_json
from minigpt_tok.progress import is_shown
from minigpt_tok.tokenizer import Tokenizer

if TYPE_CHECKING:
    from minigpt_tok.transplant import VocabularyChange

EXAMPLE = "minigpt-tok transplant checkpoints/bpe/last.ckpt --tokenizer new.json -o checkpoints/bpe/new.ckpt"


def transplant(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The checkpoint's file.", show_default=False)
    ],
    tokenizer: Annotated[
        Path, typer.Option("--tokenizer", "-t", metavar="TOKENIZER", help="The new one's file.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The new checkpoint.", show_default=False)
    ],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Give a checkpoint another tokenizer: a new one, its embeddings made of the old.

    Tokens that both have keep their embedding; each other one gets the mean of the pieces that the old tokenizer splits
    it into. All other weights stay. The new checkpoint is bound to the new tokenizer and says where it comes from; the
    old one is left as it is. Train the model on before you use it: minigpt-tok fit --weights.
    """
    from minigpt_tok.transplant import transplant as make

    new = Tokenizer.load(tokenizer)
    change = make(checkpoint, new, output, overwrite=overwrite, confirm=_say if is_shown() else None)
    counts = {
        field.name: getattr(change, field.name)
        for field in dataclasses.fields(change)
        if field.name not in ("pieces", "starts")
    }
    if as_json:
        print_json({"checkpoint": output, "fingerprint": new.fingerprint, **counts})
        return
    print_facts(
        [
            ("checkpoint", output),
            ("tokenizer", f"{new.fingerprint} ({new.vocab_size:,} ids)"),
            ("copied", counted(change.copied, "embedding")),
            ("averaged", f"{change.averaged:,}, the mean of their pieces"),
            ("unknown", f"{change.unknown:,}, the mean of all" if change.unknown else None),
            ("dropped", f"{change.dropped:,} of {change.old_size:,}"),
        ]
    )


def _say(change: "VocabularyChange") -> None:
    print(change, file=sys.stderr)
