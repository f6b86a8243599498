"""From id files back to text, byte for byte."""

from collections.abc import Iterator

from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import FormatError, TokenizerMismatchError
from minigpt_tok.tokenizer import Tokenizer


def decode_document(file: IdFile, tokenizer: Tokenizer, n: int) -> str:
    """The text of document n, counted from 0, without its separator.

    Raises:
        TokenizerMismatchError: the ids are of another tokenizer.
        DataError: there is no such document.
        FormatError: the ids give no UTF-8, so the file is damaged.
    """
    check_tokenizer(file, tokenizer)
    return _text(file, tokenizer, n)


def decode_documents(file: IdFile, tokenizer: Tokenizer) -> Iterator[str]:
    """The texts of all documents in order; errors as `decode_document`."""
    check_tokenizer(file, tokenizer)
    return (_text(file, tokenizer, n) for n in range(file.metadata.n_documents))


def check_tokenizer(file: IdFile, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that did not make the ids.

    Raises:
        TokenizerMismatchError: with both fingerprints.
    """
    made_by = file.metadata.tokenizer_fingerprint
    if made_by != tokenizer.fingerprint:
        raise TokenizerMismatchError(
            f"{file.path} was encoded with the tokenizer {made_by} ({file.metadata.vocab_size:,} ids), and this one is "
            f"{tokenizer.fingerprint} ({tokenizer.vocab_size:,} ids). Load the tokenizer that made it, or encode the "
            "corpus again with this one"
        )


def _text(file: IdFile, tokenizer: Tokenizer, n: int) -> str:
    raw = tokenizer.decode_bytes(file.document(n, with_separator=False))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError(
            f"{file.path}: document {n} is not UTF-8, so its ids are damaged; encode the corpus again"
        ) from None
