"""The core at every level of the instruction set, and texts that are hard for it."""

import importlib
import random
from functools import cached_property

import pytest

from minigpt_tok.bpe import fast, native
from minigpt_tok.bpe.classes import class_ranges
from minigpt_tok.bpe.counting import PieceCounter
from minigpt_tok.bpe.encoder import Encoder
from minigpt_tok.bpe.model import ALL_BYTES, BPEModel
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.reference import Stop
from minigpt_tok.bpe.trainer import number_tokens

LEVELS = (1, 3, 4)
CLASSES = ("Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "White_Space")
SPACES = [chr(point) for first, last in class_ranges("White_Space") for point in range(first, last + 1)]


def built_levels():
    """The levels that this processor can run, of those that were built; none where there is no core."""
    try:
        highest = importlib.import_module("minigpt_tok.bpe.native._cpu").level()
    except ImportError:
        return []
    return [level for level in LEVELS if level <= highest]


@pytest.fixture(params=LEVELS, ids=lambda level: f"v{level}")
def core(request, monkeypatch):
    """The core as built for one level, under `FastEncoder` and `FastPieceCounter` as well."""
    if native.core is None:
        pytest.skip("there is no core: not built, or MINIGPT_TOK_PURE is set")
    if request.param not in built_levels():
        pytest.skip(f"the processor has no level {request.param}")
    try:
        module = native.load_level(request.param)
    except ImportError:
        pytest.skip(f"there is no level {request.param} on this kind of processor")
    monkeypatch.setattr(fast, "core", module)
    return module


@pytest.fixture
def best_core():
    """The core that is loaded, where the level makes no difference."""
    if native.core is None:
        pytest.skip("there is no core: not built, or MINIGPT_TOK_PURE is set")
    return native.core


class HardTexts:
    """Random and hostile texts; everything seeded."""

    # Pieces of text that some pattern looks at more than one character of.
    snippets = "|".join(
        (
            "don't|WE'RE|'ll|'LLama|'ſ|''s|'|'s's| 'd|\t've|x'|'Re|é's|'\u017f\u0301",
            "  | \n|\n\n|\r\n|\r| \t |\xa0|\u3000|\u2028|\x85|\x1c|\x1f|\u200b|\ufeff",
            "1|12|123|1234| 7|½|Ⅷ|٣٤|\U0001d7d8|²",
            "a|S|ß|ǅ|ʰ|中文|ABCdef|aBC|ʰABC|日本語|éÉ|\U0001d400x|\U00010428|İ|K",
            "!|...|!!\n\n|/|//\r\n|—|§|\0|\0\0|\x7f|👍🏽|\U0001e000|\U0010ffff|\ue000",
            "e\u0301\u0301|\u0301|A\u0301b|1\u0301| \u0301|हिन्दी|\u20dd\n|\ufffd",
        )
    ).split("|")

    @cached_property
    def at_class_borders(self):
        """The first and last character of every range of every class, and their neighbours."""
        points = {
            point
            for name in CLASSES
            for first, last in class_ranges(name)
            for point in (first - 1, first, last, last + 1)
        } | {0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}
        return [chr(point) for point in sorted(points) if not 0xD800 <= point <= 0xDFFF and point <= 0x10FFFF]

    def random(self, rng, length):
        """Some `length` characters of all planes, most of them where two classes meet or a pattern looks twice."""
        kinds = (
            lambda: rng.choice(self.snippets),
            lambda: rng.choice(self.at_class_borders),
            lambda: rng.choice(SPACES) * rng.choice((1, 1, 2, 5)),
            lambda: chr(rng.choice((rng.randrange(0x80), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))),
            lambda: rng.choice("aAé1 \n'中\u0301!") * rng.randint(1, 40),
            lambda: rng.choice(("the", " the", " cat", "ing", " 2024", " naïve", "er")),
        )
        parts = []
        size = 0
        while size < length:
            parts.append(rng.choices(kinds, weights=(8, 4, 3, 3, 1, 8))[0]())
            size += len(parts[-1])
        return "".join(parts)

    def hostile(self, size):
        """Name → text of about `size` characters that a careless core is slow, wrong or unsafe on."""
        rng = random.Random(size)
        return {
            "one letter": "a" * size,
            "no white space": "".join(rng.choices("abcdefgh", k=size)),
            "no white space, many kinds": "".join(rng.choices("aB1!é中\u0301'", k=size)),
            "every white space in runs": "".join(space * (size // 25) for space in SPACES),
            "white space mixed": "".join(rng.choices(SPACES, k=size)),
            "blanks": " " * size,
            "line ends": "\r\n" * (size // 2),
            "digits": "".join(rng.choices("0123456789", k=size)),
            "numbers of all kinds": "".join(rng.choices("0½Ⅷ٣\U0001d7d8", k=size)),
            "combining marks": "e" + "\u0301" * size,
            "marks and capitals": "A\u0301" * (size // 2),
            "capitals, then modifiers": "A" * (size // 2) + "ʰ" + "A" * (size // 2),
            "nul": "\0" * size,
            "nul between words": "a\0 b\0\0" * (size // 6),
            "apostrophes": "'" * size,
            "contractions": "'s't're've'm'll'd" * (size // 17),
            "slashes and line ends": "/\n" * (size // 2),
            "beside the surrogates": "\ud7ff\ue000" * (size // 2),
            "beyond plane 0": "\U0001f600\U00010400" * (size // 2),
            "the last code point": "\U0010ffff" * size,
            "all characters of Latin-1": "".join(map(chr, range(256))) * (size // 256 + 1),
            "cjk": "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(size)),
        }


@pytest.fixture(scope="session")
def hard():
    """Random and hostile texts."""
    return HardTexts()


SAMPLE = (
    "The cat's sat on the mat, and it'll 1234 times they're HERE naïve café!! \n\n  don't\tI'VE 日本語 日本 ΑΒΓ abcabc "
    "aaaaaaaa ééé \u0301\u0301 १२३ //path/to\r\n\r\n \u3000 'ſ हिन्दी 中文字 \U0001f600\U0001f600 \0\0 12 123 '''s ...  "
)


class Models:
    """Small models with long tokens, and what a model can be besides: all made by the readable Python."""

    def __init__(self):
        self._trained = {}
        self._references = {}

    def trained(self, pattern, vocab_size=420, unit="byte"):
        """Trained on a sample of many scripts, by pairs."""
        key = pattern, vocab_size, unit
        if key not in self._trained:
            recipe = get_recipe("hf", pattern=pattern, unit=unit, min_frequency=1)
            counter = PieceCounter(recipe)
            rng = random.Random(vocab_size)
            words = SAMPLE.split(" ")
            counter.add([SAMPLE, *(" ".join(rng.choices(words, k=60)) for _ in range(5))])
            base = list(ALL_BYTES)
            if unit == "character":
                base = [character.encode() for character in sorted(counter.characters())]
            learned = counter.learn(base, Stop(vocab_size - len(base), 1), None)
            self._trained[key] = number_tokens(base, learned.merges, recipe, ())
        return self._trained[key]

    def by_bytes(self, model, *, whole_piece):
        """The same tokens as a rank file has them."""
        return BPEModel(tokens=model.tokens, rank_rule="bytes", whole_piece=whole_piece, pattern=model.pattern)

    def reference(self, model):
        """The readable encoder of a model, with its cache."""
        if id(model) not in self._references:
            self._references[id(model)] = (model, Encoder(model))
        return self._references[id(model)][1]

    def of_whole_pieces(self, pieces, pattern):
        """A model that has every one of these pieces as a token, so that ids show where a text was cut."""
        tokens = list(dict.fromkeys([*ALL_BYTES, *(piece.encode() for piece in pieces)]))
        return BPEModel(tokens=tuple(tokens), rank_rule="bytes", whole_piece=True, pattern=pattern)


@pytest.fixture(scope="session")
def models():
    """Small models for any pattern."""
    return Models()


@pytest.fixture(params=["core", "pure"])
def core_or_pure(request, monkeypatch):
    """With the core, and with the readable Python in its place."""
    if request.param == "pure":
        monkeypatch.setattr(fast, "core", None)
    elif fast.core is None:
        pytest.skip("there is no core")
    return request.param
