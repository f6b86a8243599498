"""The core reads a text through windows: where they end changes nothing, in the middle of whatever it be."""

import random
from itertools import pairwise

import numpy as np
import pytest

from minigpt_tok.bpe.fast import FastEncoder
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.pretokenize import get_pretokenizer

ALPHABETS = {
    "ascii": "abcdefghijklmn ",
    "latin-1": "abcdéfghijklmn ",
    "plane 0": "abcdefg日ijklmn ",
    "all": "abc\U00010400efghijklmn ",
}
WINDOW = 16 << 10


def check_ends_of_windows(models, hard, pattern, alphabet):
    """Snippets that some pattern looks at twice lie across the end of a window, at every offset."""
    filler = ALPHABETS[alphabet]
    widest = max(map(ord, filler))
    snippets = [snippet for snippet in hard.snippets if max(map(ord, snippet)) <= widest or alphabet == "all"]
    random.Random(pattern).shuffle(snippets)
    middle = "".join(snippets)
    pretokenizer = get_pretokenizer(pattern)
    texts = []
    # Windows are counted in bytes of UTF-8, or in characters of a str: both borders lie in the snippets.
    for units in (len, lambda text: len(text.encode())):
        lead = WINDOW - units(middle) - 40
        before = filler * (lead // units(filler))
        room = WINDOW - units(before)
        texts += [before + "x" * (room - offset) + middle + filler * 3 for offset in range(0, units(middle) + 4, 3)]
    pieces = [pretokenizer.pieces(text) for text in texts]
    model = models.of_whole_pieces([piece for text in pieces for piece in text], pattern)
    fast = FastEncoder(model)
    for text, cut in zip(texts, pieces, strict=True):
        expected = [model.id_of[piece.encode()] for piece in cut]
        assert fast.encode_to_numpy(text).tolist() == expected
        assert fast.encode_to_numpy(memoryview(text.encode())).tolist() == expected


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_windows_end_anywhere(best_core, models, hard, pattern, alphabet):
    check_ends_of_windows(models, hard, pattern, alphabet)


@pytest.mark.slow
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_windows_end_anywhere_at_every_level(core, models, hard, pattern, alphabet):
    check_ends_of_windows(models, hard, pattern, alphabet)


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_pieces_longer_than_a_window(best_core, models, hard, pattern):
    pretokenizer = get_pretokenizer(pattern)
    hostile = hard.hostile(WINDOW + 500)
    texts = [f"some words, {text} and 'more\n" for text in hostile.values()]
    texts += [f"x{text}y" for text in hard.hostile(5 * WINDOW // 2).values()]
    texts += [hostile["blanks"] + other + hostile["one letter"] for other in ("", "'s", "\n", "1", "日", "\u0301")]
    texts += [hostile[one] + hostile[two] for one, two in pairwise([*hostile, "blanks", "line ends", "blanks"])]
    for text in texts:
        cut = pretokenizer.pieces(text)
        model = models.of_whole_pieces(cut, pattern)
        expected = [model.id_of[piece.encode()] for piece in cut]
        fast = FastEncoder(model)
        assert fast.encode_to_numpy(text).tolist() == expected
        assert fast.encode_to_numpy(memoryview(text.encode())).tolist() == expected


@pytest.mark.parametrize("other", ["é", "ß日", "日’", "😀é", "\U0010ffff"])
def test_strings_of_every_width_are_turned_into_utf8(best_core, models, other):
    """Sixteen characters at a time where few are beyond ASCII, else one by one: any number of them, at any place."""
    fast = FastEncoder(models.trained("gpt2"))
    rng = random.Random(other)
    for share in (0.01, 0.05, 0.1, 0.2, 0.3, 0.7, 1):
        for size in (*range(1, 40), 333):
            text = "".join(rng.choice(other) if rng.random() < share else rng.choice("ab c1") for _ in range(size))
            assert np.array_equal(fast.encode_to_numpy(text), fast.encode_to_numpy(memoryview(text.encode("utf-8"))))
    for place in range(40):  # alone, at each place
        text = "a" * place + other + "b" * (39 - place)
        assert np.array_equal(fast.encode_to_numpy(text), fast.encode_to_numpy(memoryview(text.encode("utf-8"))))
