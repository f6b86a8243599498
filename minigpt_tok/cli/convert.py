"""`minigpt-tok convert`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.pretokenize import PATTERNS
from minigpt_tok.cli.options import AsJson, Overwrite
from minigpt_tok.cli.printing import print_facts, print_json
from minigpt_tok.errors import FormatError, MiniGPTTokError, TokenizerError
from minigpt_tok.formats import character, cs336, hub, recognition
from minigpt_tok.formats.known import known_name
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = "minigpt-tok convert cl100k_base.tiktoken -o tokenizer.json --format hf"

FormName = Literal["hf", "gpt2", "tiktoken", "cs336", "character"]


def convert(
    tokenizer: Annotated[
        str,
        typer.Argument(
            metavar="TOKENIZER",
            help="A tokenizer of any form: a file, one of two files, a folder, or hf:NAME.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="What to write; for gpt2 a folder; for cs336 a folder, or the vocabulary's file (.json or .pkl).",
            show_default=False,
        ),
    ],
    form: Annotated[FormName, typer.Option("--format", "-f", help="The form to write.", show_default=False)],
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="The source's pre-tokenizer, where its form names none: a pattern's name, or a regular expression.",
            show_default=False,
        ),
    ] = None,
    special: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOKEN[=ID]",
            help="A special token of the source, where its form names none; may be repeated.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Convert a tokenizer from any form to another, with the same ids.

    Where that form cannot hold the tokenizer, it says why. What was written is read again and has the same fingerprint.
    What another tokenizer made is not overwritten unless --overwrite is given.
    """
    source = Tokenizer.load(tokenizer, pattern=pattern, special_tokens=specials_of(special or []))
    files = _files(output, form)
    _check_files(files, source, overwrite)
    _WRITERS[form](source, files)
    again = _read_again(source, files, form)
    if again.fingerprint != source.fingerprint:  # no form may get here: each refuses what it cannot hold
        raise FormatError(f"{files[0]}: gives {again.fingerprint} when it is read, not {source.fingerprint}")
    result = {
        "tokenizer": source.name if hub.is_hub_name(tokenizer) else tokenizer,
        "format": form,
        "files": files,
        "fingerprint": source.fingerprint,
        "known_as": known_name(source.fingerprint),
        "vocab_size": source.vocab_size,
        "pattern": source.pattern,
        "expression": PATTERNS.get(source.pattern, source.pattern),
        "special_tokens": source.special_tokens,
    }
    if as_json:
        print_json(result)
    else:
        _print_page(result)


def specials_of(given: list[str]) -> dict[str, int | None]:
    """Token → id from `TOKEN=ID`; `TOKEN` alone has the id that the file gives it.

    Raises:
        BadParameter: a token twice.
    """
    specials: dict[str, int | None] = {}
    for text in given:
        match = re.fullmatch(r"(.+)=(\d{1,9})", text, re.DOTALL)
        token, id = (match[1], int(match[2])) if match else (text, None)
        if not token or token in specials:
            raise typer.BadParameter(f"{token!r} is given twice, or is empty", param_hint="'--special'")
        specials[token] = id
    return specials


def _files(output: Path, form: FormName) -> list[Path]:
    """What will be written."""
    if form == "gpt2" or (form == "cs336" and not output.suffix):
        return [output / "vocab.json", output / "merges.txt"]
    if form == "cs336":
        return [output, recognition.partner_for_merges(output)]
    if output.is_dir():
        raise TokenizerError(f"{output} is a folder; give the name of a file in it: -o {output / 'tokenizer.json'}")
    return [output]


def _check_files(files: list[Path], source: Tokenizer, overwrite: bool) -> None:
    """Refuse before the work to replace what is another tokenizer, or none."""
    there = [file for file in files if file.exists()]
    if not there or overwrite:
        return
    try:
        same = Tokenizer.load(there[0]) == source
    except (MiniGPTTokError, OSError):
        same = False
    if not same:
        raise TokenizerError(
            f"{there[0]} exists, and is not this tokenizer in a form that says so itself. To keep it, give another place with "
            "-o; to replace it, pass --overwrite"
        )


def _read_again(source: Tokenizer, files: list[Path], form: FormName) -> Tokenizer:
    if form in ("hf", "character"):
        return Tokenizer.load(files[0])
    if form == "tiktoken":
        return Tokenizer.from_tiktoken(files[0], pattern=source.pattern, special_tokens=source.special_tokens)
    return Tokenizer(cs336.load_model(files[0], files[1], tuple(source.special_tokens)))


def _character(tokenizer: Tokenizer, files: list[Path]) -> None:
    if tokenizer.unit != "character":
        raise FormatError(
            f"{files[0]}: character_bpe is of characters, and this tokenizer is of bytes; convert it to hf, gpt2, tiktoken "
            "or cs336"
        )
    character.save(files[0], tokenizer.model, tokenizer.fingerprint)


_WRITERS: dict[FormName, Callable[[Tokenizer, list[Path]], None]] = {
    "hf": lambda tokenizer, files: tokenizer.to_hf_json(files[0]),
    "gpt2": lambda tokenizer, files: tokenizer.to_gpt2(files[0].parent),
    "tiktoken": lambda tokenizer, files: tokenizer.to_tiktoken(files[0]),
    "cs336": lambda tokenizer, files: cs336.save_model(files[0], files[1], tokenizer.model),
    "character": _character,
}


def _print_page(result: dict[str, Any]) -> None:
    specials = list(result["special_tokens"].items())
    shown = "  ".join(f"{token}={id}" for token, id in specials[:8])
    if len(specials) > 8:
        shown += f"  … {len(specials):,} in all"
    named_apart = result["format"] == "tiktoken"  # the form holds neither
    print_facts(
        [
            ("source", result["tokenizer"]),
            ("written", "\n".join(map(str, result["files"]))),
            ("known as", result["known_as"]),
            ("fingerprint", result["fingerprint"]),
            ("vocabulary", counted(result["vocab_size"], "id")),
            ("pattern", f"{result['pattern']}{', to be named to whoever reads the ranks' if named_apart else ''}"),
            ("expression", result["expression"] if named_apart else None),
            ("special tokens", f"{shown}{', likewise' if named_apart else ''}" if shown else "none"),
        ]
    )
