"""The command line, `minigpt-tok`: one module a command, imported when that command is used and not before.

`group` finds the commands and ends them with the right exit status (`outcome`); `options`, `printing` and `progress`
are what commands share. A command is a function of the name of its module, with an `EXAMPLE` beside it.
"""

from typing import Annotated

import typer

from minigpt_tok._version import __version__
from minigpt_tok.cli.group import CommandGroup

app = typer.Typer(
    name="minigpt-tok",
    cls=CommandGroup,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: minigpt-tok train pydocs --vocab-size 4096 -o tokenizer.json",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"minigpt-tok {__version__}")
        raise typer.Exit


@app.callback()
def minigpt_tok(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train tokenizers, encode text, train small GPTs, and compare them by bits per byte.

    Every artefact carries the fingerprint of its tokenizer, and every command checks it.
    """


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its status."""
    app()
