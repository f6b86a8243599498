"""A text given as an argument, or `-` for standard input."""

import sys

from minigpt_tok.errors import TokenizerError

MOST_BYTES = 16 << 20  # what is shown token by token is small


def read_text_argument(text: str) -> str:
    """The text, or, for `-`, what standard input holds.

    Raises:
        TokenizerError: it is not UTF-8, or too large to be shown.
    """
    if text == "-":
        raw = sys.stdin.buffer.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise TokenizerError(
                f"standard input has more than {MOST_BYTES:,} bytes; give less of it, e.g. through head"
            )
        where = "standard input is"
    else:
        raw = text.encode("utf-8", "surrogateescape")  # arguments that are not UTF-8 come with surrogates for bytes
        where = "the text given is"
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{where} not UTF-8 at byte {error.start:,}; convert it first, e.g. with iconv") from None
