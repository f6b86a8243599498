"""Normalizers: what tokenizers does, on every code point, with the Unicode versions of its parts."""

import random
import sys
import unicodedata

import pytest
from tokenizers import Regex, normalizers

from minigpt_tok.bpe.normalize import (
    Lowercase,
    Normalizer,
    Prepend,
    Replace,
    Strip,
    StripAccents,
    ToPrintable,
    UnicodeForm,
)

CHARACTERS = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point <= 0xDFFF]
STEPS = {
    "NFC": (normalizers.NFC(), UnicodeForm("NFC")),
    "NFD": (normalizers.NFD(), UnicodeForm("NFD")),
    "NFKC": (normalizers.NFKC(), UnicodeForm("NFKC")),
    "NFKD": (normalizers.NFKD(), UnicodeForm("NFKD")),
    "Lowercase": (normalizers.Lowercase(), Lowercase()),
    "StripAccents": (normalizers.StripAccents(), StripAccents()),
    "Strip": (normalizers.Strip(), Strip(True, True)),
    "Strip left": (normalizers.Strip(left=True, right=False), Strip(True, False)),
    "Strip right": (normalizers.Strip(left=False, right=True), Strip(False, True)),
    "Prepend": (normalizers.Prepend("▁x"), Prepend("▁x")),
    "Replace": (normalizers.Replace(" ", "▁▁"), Replace(" ", False, "▁▁")),
    "Replace an expression": (
        normalizers.Replace(Regex(r"\s{2,}|[a-c]+"), "é!"),
        Replace(r"\s{2,}|[a-c]+", True, "é!"),
    ),
    "ByteLevel": (normalizers.ByteLevel(), ToPrintable()),
}


@pytest.mark.parametrize("name", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"])
def test_every_code_point_and_all_in_a_row(name):
    theirs, step = STEPS[name]
    ours = Normalizer((step,))
    together = "".join(CHARACTERS)
    assert ours(together) == theirs.normalize_str(together)
    apart = "|".join(CHARACTERS)  # the bar joins nothing, so this is each by itself
    assert ours(apart) == theirs.normalize_str(apart)


def marked_texts(seed, count):
    """Texts of letters, syllables and marks that combine, reorder and compose."""
    rng = random.Random(seed)
    marks = [character for character in CHARACTERS if unicodedata.combining(character)]
    bases = "aeiouAO ỆéÅfi각ᄀ가ᅡᆨﬁ㎏ά=\u0344\U000105d2\u0307\u0338"
    for _ in range(count):
        kinds = (lambda: rng.choice(marks), lambda: rng.choice(bases), lambda: chr(rng.randrange(0x80, 0x3100)))
        yield "".join(rng.choice(kinds)() for _ in range(rng.randint(1, 12)))


@pytest.mark.parametrize("name", STEPS)
def test_texts_come_out_as_theirs(name, unlike_texts):
    theirs, step = STEPS[name]
    ours = Normalizer((step,))
    for text in (*unlike_texts(1, 300), *marked_texts(1, 300)):
        assert ours(text) == theirs.normalize_str(text), ascii(text)


def test_steps_one_after_the_other(unlike_texts):
    parts = [STEPS[name] for name in ("NFKD", "StripAccents", "Lowercase", "Replace an expression", "Strip", "Prepend")]
    theirs = normalizers.Sequence([part for part, _ in parts])
    ours = Normalizer(tuple(step for _, step in parts))
    for text in (*unlike_texts(2, 300), *marked_texts(2, 300)):
        assert ours(text) == theirs.normalize_str(text), ascii(text)
    assert ours("") == ""


@pytest.mark.parametrize("name", STEPS)
def test_every_character_stands_for_one_that_came_in(name, unlike_texts):
    _, step = STEPS[name]
    for text in (*unlike_texts(3, 100), *marked_texts(3, 100)):
        if not text:
            continue
        sources = step.sources(text)
        assert len(sources) == len(step.apply(text)), ascii(text)
        assert sources == sorted(sources)
        assert all(0 <= place < len(text) for place in sources)


def test_what_unicode_9_did_not_know_is_left_alone():
    todhri = "\U000105d2\u0307"  # composes since Unicode 16
    assert UnicodeForm("NFC").apply(f"e\u0301{todhri}") == f"é{todhri}"
    assert UnicodeForm("NFC").sources(f"e\u0301{todhri}") == [0, 2, 3]


def test_normalized_text_is_the_very_object():
    text = "déjà vu, 日本"
    assert UnicodeForm("NFC").apply(text) is text


def test_a_lone_surrogate_survives_to_be_complained_of():
    assert UnicodeForm("NFC").apply("e\u0301\ud800") == "é\ud800"
    assert Lowercase().apply("A\ud800") == "a\ud800"


def test_no_final_sigma_and_two_characters_for_one():
    assert Lowercase().apply("ΟΔΟΣ İ") == "οδοσ i\u0307"
    assert Lowercase().sources("İx") == [0, 0, 1]
