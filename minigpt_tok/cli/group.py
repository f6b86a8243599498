"""The group of all commands: listed from one table, loaded one by one."""

import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from minigpt_tok.cli import outcome
from minigpt_tok.cli.remedies import NO_OPTIONS, Options

# In the order of the way from text to a verdict. What is said here is the first line of the command's own help.
COMMANDS = {
    "corpus": "Read a corpus, write its cleaned splits, and count what leaks between them.",
    "train": "Train a tokenizer on the train split of a corpus, or on files.",
    "encode": "Encode every split of a corpus to id files.",
    "decode": "Write the text of an id file, byte for byte.",
    "info": "Say what files are: tokenizers, id files or checkpoints, with fingerprints and sizes.",
    "show": "Show the tokens of a text, of one tokenizer or of two side by side.",
    "explain": "Explain how a text is cut into pieces and merged to tokens, step by step.",
    "convert": "Convert a tokenizer from any form to another, with the same ids.",
    "verify": "Check that a tokenizer is sound: round trips, its merges, its compression.",
    "diff": "Compare two tokenizers: overlap, the first different merge, ids that change meaning.",
    "fit": "Train a MiniGPT on id files.",
    "evaluate": "Measure the bits per byte of a checkpoint.",
    "generate": "Generate text from a checkpoint.",
    "compare": "Compare tokenizers fairly: the same model trained on each, scored in bits per byte.",
    "export": "Write a checkpoint in the GPT-2 layout of transformers, with its tokenizer.",
    "check": "Check that a checkpoint, a tokenizer and id files belong together.",
    "transplant": "Give a checkpoint another tokenizer: a new one, its embeddings made of the old.",
}


class CommandGroup(TyperGroup):
    """Lists commands without importing them, and turns whatever ends a command into its exit status."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in COMMANDS.items():
            self.add_command(TyperCommand(name, help=summary))
        self._running = NO_OPTIONS

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the first argument names, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = load_command(name)
            self._running = Options.of(command)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a closed standard output is told apart from other errors here, before typer sees it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if outcome.standard_output_is_closed():
                raise outcome.OutputClosedError from error
            raise

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit with the status; without `standalone_mode`, return it."""
        words = list(sys.argv[1:] if args is None else args)
        status = outcome.status_of(
            lambda: super(CommandGroup, self).main(
                args, prog_name, complete_var, standalone_mode=False, windows_expand_args=windows_expand_args, **extra
            ),
            as_json="--json" in words,
            options=lambda: self._running,
        )
        if standalone_mode:
            sys.exit(status)
        return status


def load_command(name: str) -> TyperCommand:
    """Import the module of a command and make the command of its function."""
    module = import_module(f"minigpt_tok.cli.{name}")
    function = getattr(module, name)
    # Lines of a docstring end where the source code's do; the terminal's end elsewhere.
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(
        name,
        help="\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs),
        epilog=f"Example: {module.EXAMPLE}",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )(function)
    command = get_command(alone)
    assert isinstance(command, TyperCommand)
    return command
