"""Seeded texts that are hard on a tokenizer: many scripts, emoji, white space of every kind, code, control characters.

A text depends on the seed alone, not on the machine or the Python version's Unicode tables.
"""

import random
from collections.abc import Callable, Iterator, Sequence

# First and last code points of letters in use, a script a row.
SCRIPTS = (
    (0x0061, 0x007A), (0x00C0, 0x024F), (0x0391, 0x03C9), (0x0410, 0x044F), (0x0531, 0x0556), (0x05D0, 0x05EA),
    (0x0621, 0x064A), (0x0904, 0x0939), (0x0985, 0x09B9), (0x0B85, 0x0BB9), (0x0C05, 0x0C39), (0x0E01, 0x0E3A),
    (0x0F40, 0x0F69), (0x1000, 0x102A), (0x10D0, 0x10FA), (0x1200, 0x1248), (0x1780, 0x17B3), (0x3041, 0x3096),
    (0x30A1, 0x30FA), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x10330, 0x1034A), (0x12000, 0x12399), (0x20000, 0x2A6DF),
)  # fmt: skip
WORDS = (
    "the", "The", "lowest", "don't", "I'LL", "we've", "naïve", "cafe\u0301", "Straße", "привет", "日本語", "हिन्दी", "ภาษาไทย",
    "العربية", "עברית", "한국어", "x_1", "HTTPServer", "e.g.", "3.14", "600,000,000", "½", "Ⅷ", "٣٤", "१२", "https://a.b/c?d=1",
    "<|endoftext|>", "<|im_start|>", "'ſ", "ﬁne", "ǅ", "\u200bzero", "a\u00adb",
)  # fmt: skip
EMOJI = (
    "😀", "👍🏽", "👩🏽‍🚀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇯🇵", "❤️", "#️⃣", "☕", "🫠",
)  # fmt: skip
WHITE_SPACE = (
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", " \t ", "\u00a0", "\u2003", "\u2028", "\u3000", "\u0085", "\v", "\f",
    "\x1c",
)  # fmt: skip
OTHERS = (
    "\x00",
    "\x07",
    "\x1b[0m",
    "\x7f",
    "\ufeff",
    "\ufffd",
    "\ufffe",
    "\U0010ffff",
    "\ue000",
    "\u202e",
    "\u0301\u0302",
)
MARKS = "!?.,;:-–—…'\"“”«»()[]{}<>/\\|@#$%^&*_+=~`§©™€¥°"


def sample_texts(count: int, seed: int, alphabet: Sequence[str] | None = None) -> Iterator[str]:
    """Texts of up to a few hundred characters; the first are the empty one and long runs.

    Args:
        count: how many.
        seed: of the draws.
        alphabet: use these characters only (of a character tokenizer); at random, and in runs.
    """
    draw = random.Random(seed)
    if alphabet is not None:
        yield from _of_alphabet(count, draw, alphabet)
        return
    runs = (
        "",
        "a" * 2000,
        " " * 1000,
        "\n" * 500,
        "ab" * 500,
        "日" * 300,
        "0" * 400,
        "👍🏽" * 50,
        "'" * 100,
        "".join(OTHERS),
    )
    yield from runs[:count]
    for _ in range(count - len(runs)):
        yield "".join(_part(draw) for _ in range(draw.randrange(1, 24)))


def _of_alphabet(count: int, draw: random.Random, alphabet: Sequence[str]) -> Iterator[str]:
    for n in range(count):
        if n == 0 or not alphabet:
            yield ""
        elif n % 10 == 0:
            yield draw.choice(alphabet) * draw.randrange(1, 500)
        else:
            yield "".join(draw.choices(alphabet, k=draw.randrange(1, 200)))


def _part(draw: random.Random) -> str:
    return draw.choice(_PARTS)(draw)


def _word_of_a_script(draw: random.Random) -> str:
    first, last = draw.choice(SCRIPTS)
    return "".join(chr(draw.randint(first, last)) for _ in range(draw.randrange(1, 12)))


def _anything(draw: random.Random) -> str:
    point = draw.randrange(0x110000 - 0x800)  # without the surrogates, which are no text
    return chr(point if point < 0xD800 else point + 0x800)


_PARTS: tuple[Callable[[random.Random], str], ...] = (
    lambda draw: draw.choice(WORDS),
    lambda draw: f" {draw.choice(WORDS)}",
    lambda draw: f" {_word_of_a_script(draw)}",
    _word_of_a_script,
    lambda draw: draw.choice(EMOJI),
    lambda draw: draw.choice(WHITE_SPACE),
    lambda draw: draw.choice(WHITE_SPACE),
    lambda draw: draw.choice(MARKS) * draw.randrange(1, 4),
    lambda draw: str(draw.randrange(10 ** draw.randrange(1, 12))),
    lambda draw: draw.choice(OTHERS),
    _anything,
)
