"""`minigpt-tok explain`."""

import dataclasses
from typing import Annotated

import typer

from minigpt_tok.cli.options import AsJson, TokenizerFile
from minigpt_tok.cli.printing import escaped, print_json
from minigpt_tok.cli.text_argument import read_text_argument
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = 'minigpt-tok explain " lower" -t tokenizer.json'


def explain(
    text: Annotated[str, typer.Argument(metavar="WORD", help="A word or text; - reads it from standard input.")],
    tokenizer: TokenizerFile,
    as_json: AsJson = False,
) -> None:
    """Explain how a text is cut into pieces and merged to tokens, step by step.

    For every piece: which alternative of the pattern cut it, its base tokens, and the merges one by one with their ranks.
    """
    explanation = Tokenizer.load(tokenizer).explain(read_text_argument(text))
    if as_json:
        print_json(dataclasses.asdict(explanation))
    else:
        print(escaped(str(explanation)))
