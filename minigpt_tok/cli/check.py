"""`minigpt-tok check`."""

from pathlib import Path
from typing import Annotated

import typer

from minigpt_tok.cli.options import AsJson
from minigpt_tok.cli.printing import print_json
from minigpt_tok.cli.remedies import on_the_command_line

EXAMPLE = "minigpt-tok check checkpoints/bpe/last.ckpt --tokenizer tokenizer.json --data data/encoded/wikitext-2/bpe"


def check(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The checkpoint's file.", show_default=False)
    ],
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", "-t", metavar="TOKENIZER", help="A tokenizer's file.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", "-d", metavar="DATA", help="An id file, or the folder of an encoded corpus.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that a checkpoint, a tokenizer and id files belong together.

    The checkpoint's tokenizer must hash to the fingerprint beside it, and the embedding have a row for each id. The
    tokenizer and the ids given must have the same fingerprint; if not, the first difference is named. The status is 0 if
    all belong together, and 1 if not.
    """
    from minigpt_tok.checkpoint import check as check_checkpoint

    result = check_checkpoint(checkpoint, tokenizer, data)
    if as_json:
        plain = result.to_plain()
        checks = [{**check, "message": on_the_command_line(check["message"])} for check in plain["checks"]]
        print_json({**plain, "checks": checks})
    else:
        print(on_the_command_line(str(result)))
    if not result.ok:
        raise typer.Exit(1)
