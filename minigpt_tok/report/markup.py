"""Text in an HTML page."""

import html


def marked_up(value: str) -> str:
    """Escaped, and with visible stand-ins for control characters, which HTML does not admit."""
    shown = "".join(
        character
        if (character >= " " and not "\x7f" <= character <= "\x9f") or character in "\n\t"
        else _stand_in(character)
        for character in value
    )
    return html.escape(shown)


def _stand_in(character: str) -> str:
    return chr(0x2400 + ord(character)) if character < " " else "\u2421" if character == "\x7f" else "\ufffd"
