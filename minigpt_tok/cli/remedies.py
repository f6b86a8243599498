"""Remedies in the words of the command line.

Messages of the library name the remedy as Python has it: `overwrite=True`, `max_bytes`, a call. Whoever runs a command
needs the flag or the command for the same intention, and the one place that says so is here:

- an argument that the running command has an option for, wherever it stands as `name=value`, or by its name alone where
  that can be nothing else (it has an underscore, or the message begins with it): `overwrite=True` → `--overwrite`,
  `errors='replace'` → `--errors replace`, `vocab_size is 3` → `--vocab-size is 3`;
- what commands call otherwise, or do by another command: `SAID`.

What no command can do stays as it is, for Python.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from typer.core import TyperCommand, TyperOption

# As the library says it, a regular expression → as a command has it. Each is in some message of the library.
SAID: tuple[tuple[str, str], ...] = (
    # Text and corpora
    (r" Pass texts in a list: \[text\]", " Texts are read from files"),
    (r"open them one by one, or pass \{'train': \[\.\.\.\], 'validation': \[\.\.\.\]\}", "give them one by one"),
    (r"pass a mapping from splits to files to say which is which", "give one of them, or a folder without the other"),
    (r", or open it with the datasets library and pass the Dataset", ""),
    (r", or \{'train': …, 'validation': …\}", ", or a folder with train.txt and validation.txt"),
    (
        r", or give the separator at which the text divides into documents",
        ", or put a line <|endoftext|> between the documents",
    ),
    # Tokenizers
    (r"Use unit='byte' \(recipes (\w+), (\w+), (\w+)\)", r"Use --recipe \1, \2 or \3"),
    (r" with unit='(\w+)'", r" with a recipe of \1s"),
    (r"has unit='(\w+)'", r"is of \1s"),
    (r"Train it with these among base_characters", "Train it on text that has them"),
    (
        r"Tokenizer\.from_tiktoken\(path, pattern=…, special_tokens=…\)",
        "minigpt-tok convert FILE --format hf --pattern … --special TOKEN=ID -o tokenizer.json",
    ),
    (r", or use Tokenizer\.from_gpt2", ""),
    (r"save it as character_bpe", "minigpt-tok convert --format character keeps them"),
    (r"a character tokenizer is saved as character_bpe", "minigpt-tok convert --format character keeps characters"),
    (r"save it as tokenizer\.json", "minigpt-tok convert --format hf keeps it"),
    # Id files
    (
        r"add it with tokenizer\.with_special_tokens\(\[\.\.\.\]\)",
        "train one that has it (minigpt-tok train --special)",
    ),
    (r"Load the tokenizer that made it", "Give the tokenizer that made it with --tokenizer"),
    (r"In a script, call encode_corpus under `if __name__ == \"__main__\":`; if memory", "If memory"),
    (r", or a TokenDataset", ""),
    # Models and checkpoints
    (r"minigpt_tok\.checkpoint\.tokenizer_of\((.+?)\)", r"minigpt-tok export \1 -o … writes it beside the model"),
    (r"minigpt_tok\.transplant\.transplant\((.+?), tokenizer, …\)", r"minigpt-tok transplant \1 --tokenizer … -o …"),
    (
        r"(, or begin a new run from the checkpoint's weights)?; or, to go on with other data on purpose, .+?=True\)",
        ", or begin a new run from the checkpoint's weights: minigpt-tok fit --weights … -o …",
    ),
    (
        r"set vocab_size to the tokenizer's \(pad_vocab_to pads the embedding\)",
        "give the model's own tokenizer with --tokenizer, or begin a new run",
    ),
    (r"train with special_tokens=\['(.+?)'\]", r"train a tokenizer with --special '\1'"),
    (r"as one of with_tokenizers", "with --with"),
)


@dataclass(frozen=True)
class Options:
    """The options of the command that runs, by the names that Python has for the same arguments."""

    flags: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()  # those that take no value

    @classmethod
    def of(cls, command: TyperCommand) -> "Options":
        """Those of a command."""
        options = [option for option in command.params if isinstance(option, TyperOption) and option.name]
        flags = {str(option.name): max(option.opts, key=len) for option in options}
        if "special" in flags:
            flags["special_tokens"] = flags["special"]
        return cls(flags, frozenset(str(option.name) for option in options if option.is_flag))


NO_OPTIONS = Options()


def on_the_command_line(message: str, options: Options = NO_OPTIONS, *, names: bool = True) -> str:
    """A message of the library as a command says it.

    Args:
        message: what the library says.
        options: of the command that runs.
        names: take the bare name of an argument for it, too; not in what is said of a file, which has its own names.
    """
    for said, instead in SAID:
        message = re.sub(said, instead, message)
    for name, flag in options.flags.items():
        if name in options.switches:
            message = re.sub(rf"(?<![\w.-]){name}=True\b", flag, message)
            continue
        message = re.sub(rf"(?<![\w./'\"\\-]){name}={_VALUE}", partial(_with_flag, flag), message)
        if names and "_" in name:
            message = re.sub(rf"(?<![\w./'\"-]){name}(?![\w/'\"=(]|\.\w)", flag, message)
        elif names:
            message = re.sub(rf"\A{name}(?= (?:is|are|has) )", flag, message)
    return message


# In quotes, or a word or number; no part of a path, which may well have `split=train` in it.
_VALUE = r"""(?:'([^'\n]*)'|"([^"\n]*)"|([\w…-]+(?:[.,]\d+)*))(?![\w/\\:]|\.\w)"""


def _with_flag(flag: str, found: re.Match[str]) -> str:
    value = found[1] or found[2] or found[3] or ""
    return f"{flag} {'none' if value == 'None' else value}"
