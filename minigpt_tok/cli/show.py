"""`minigpt-tok show`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from minigpt_tok.amounts import counted
from minigpt_tok.cli.options import AsJson, Overwrite
from minigpt_tok.cli.printing import as_text, escaped, print_json, print_table, readable
from minigpt_tok.cli.text_argument import read_text_argument
from minigpt_tok.errors import TokenizerError
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = 'minigpt-tok show "The lowest tide" -t tokenizer.json'

# Backgrounds in turn, each with a foreground that reads on it; after them one begins anew.
COLOURS = ("black on #f9c0c0", "black on #f9e2ae", "black on #bfe8c0", "black on #b8dcf5", "black on #dcc6f0")


def show(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads it from standard input.")],
    tokenizer: Annotated[
        list[Path],
        typer.Option(
            "--tokenizer",
            "-t",
            metavar="TOKENIZER",
            help="A tokenizer's file; give two to compare.",
            show_default=False,
        ),
    ],
    first: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Show only the text of the first N tokens.", show_default=False),
    ] = None,
    variants: Annotated[
        bool,
        typer.Option(
            "--variants",
            help="Take TEXT for a word, and show it with and without a space and a capital, side by side.",
            show_default=False,
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it as a page with colours too.", show_default=False),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Show the tokens of a text, of one tokenizer or of two side by side.

    On a terminal every token has a colour of its own; elsewhere | stands between tokens. Under them are their ids.
    """
    given = read_text_argument(text)
    tokenizers = {path: Tokenizer.load(path) for path in tokenizer}
    if html is not None and html.exists() and not overwrite:
        raise TokenizerError(
            f"{html} exists. To keep it, give another file with --html; to replace it, pass --overwrite"
        )
    if variants:
        _show_variants(given, tokenizers, first, html, as_json)
        return
    results = [_tokens(given, tok, path, first) for path, tok in tokenizers.items()]
    if html is not None:
        _write_page([(str(result["tokenizer"]), result) for result in results], html)
    if as_json:
        print_json({"text": given, "tokenizers": results})
        return
    for number, result in enumerate(results):
        if number:
            print()
        _print_tokens(result)


def _tokens(text: str, tokenizer: Tokenizer, path: Path, first: int | None) -> dict[str, Any]:
    ids = tokenizer.encode(text)
    shown = ids if first is None else ids[:first]
    raw = tokenizer.decode_bytes(shown)
    return {
        "tokenizer": path,
        "fingerprint": tokenizer.fingerprint,
        "number_of_tokens": len(ids),
        "bytes_per_token": len(text.encode("utf-8")) / len(ids) if ids else None,
        "shown_tokens": len(shown),
        "shown_bytes": len(raw),
        "shown_text": as_text(raw),
        "tokens": [as_text(tokenizer.token_bytes(id)) for id in shown],
        "ids": shown,
    }


def _write_page(results: list[tuple[str, dict[str, Any]]], path: Path) -> None:
    from minigpt_tok.report.tokens import write_token_page

    write_token_page(((heading, _said(result), result["tokens"], result["ids"]) for heading, result in results), path)


def _print_tokens(result: dict[str, Any]) -> None:
    print(f"{result['tokenizer']}: {_said(result)}")
    _print_in_colours(result["tokens"])
    print(" ".join(map(str, result["ids"])))


def _said(result: dict[str, Any]) -> str:
    said = counted(result["number_of_tokens"], "token")
    if result["bytes_per_token"] is not None:
        said += f", {result['bytes_per_token']:.2f} bytes per token"
    if result["shown_tokens"] < result["number_of_tokens"]:
        said += f"; the first {result['shown_tokens']:,} hold {counted(result['shown_bytes'], 'byte')}"
    return said


def _print_in_colours(tokens: list[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal or console.no_color or console.color_system is None:
        print("|".join(map(readable, tokens)))
        return
    line = Text()
    for number, token in enumerate(tokens):
        # A newline shows as its mark and breaks the line too; all other white space is seen by its colour.
        line.append(
            escaped(token.replace("\r", "␍")).replace("\n", "⏎\n").replace("\t", "⇥"), COLOURS[number % len(COLOURS)]
        )
    console.print(line, soft_wrap=True)


def _show_variants(
    word: str, tokenizers: dict[Path, Tokenizer], first: int | None, html: Path | None, as_json: bool
) -> None:
    bare = word.strip()
    forms = list(dict.fromkeys((bare, f" {bare}", bare[:1].upper() + bare[1:], f" {bare[:1].upper()}{bare[1:]}")))
    results: list[dict[str, Any]] = [
        {"text": form, "tokenizers": [_tokens(form, tok, path, first) for path, tok in tokenizers.items()]}
        for form in forms
    ]
    if html is not None:
        shown = [
            (f"{readable(result['text'])} · {found['tokenizer']}", found)
            for result in results
            for found in result["tokenizers"]
        ]
        _write_page(shown, html)
    if as_json:
        print_json({"variants": results})
        return
    for number, path in enumerate(tokenizers):
        if number:
            print()
        print(path)
        rows = []
        for result in results:
            found = result["tokenizers"][number]
            ids = " ".join(map(str, found["ids"]))
            rows.append(
                (readable(result["text"]), found["number_of_tokens"], "|".join(map(readable, found["tokens"])), ids)
            )
        print_table(("text", "number", "tokens", "ids"), rows, left=(0, 2, 3))
