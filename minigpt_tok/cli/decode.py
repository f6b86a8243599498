"""`minigpt-tok decode`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from minigpt_tok.cli.options import AsJson, TokenizerFile
from minigpt_tok.cli.printing import print_json
from minigpt_tok.data.decode import decode_document, decode_documents
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.tokenizer import Tokenizer

EXAMPLE = "minigpt-tok decode data/encoded/wikitext-2/bpe/test.safetensors -t tokenizer.json --document 0"


def decode(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An id file.", show_default=False)],
    tokenizer: TokenizerFile,
    document: Annotated[
        int | None, typer.Option(metavar="N", help="Only document N, counted from 0.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the text of an id file, byte for byte.

    The documents are written one after the other with nothing between them; what separated them is no part of any.
    """
    ids = IdFile(file)
    tok = Tokenizer.load(tokenizer)
    if document is None:
        ids.verify()
        texts = decode_documents(ids, tok)
    else:
        texts = iter([decode_document(ids, tok, document)])
    if as_json:
        print_json({"file": file, "fingerprint": tok.fingerprint, "document": document, "texts": list(texts)})
        return
    for text in texts:
        sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()
