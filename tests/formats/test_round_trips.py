"""Every form to every other form that can hold the tokenizer: the same fingerprint, and the same ids from other programs.

What each form cannot hold is listed here too: it is refused, never written otherwise.
"""

import random
from functools import cache
from pathlib import Path

import pytest

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe.model import ALL_BYTES, AddedToken, BPEModel
from minigpt_tok.bpe.pretokenize import PATTERNS
from minigpt_tok.errors import FormatError
from minigpt_tok.formats import cs336
from minigpt_tok.formats.tiktoken import read_ranks, to_model
from minigpt_tok.tokenizer import Tokenizer

TEXTS = ["the cat sat on the mat. the cat ate the rat,", "it's 1234 o'clock\n\n", "café 日本 don't"] * 2


# How each form is written into a folder, and read with no more than a user would name.


def write_pair(tokenizer, folder, suffix, merges_suffix):
    cs336.save_model(folder / f"vocab{suffix}", folder / f"merges{merges_suffix}", tokenizer.model)


FORMS = {
    "hf": (
        lambda tokenizer, folder: tokenizer.to_hf_json(folder / "tokenizer.json"),
        lambda tokenizer, folder: Tokenizer.load(folder),
    ),
    "own": (
        lambda tokenizer, folder: tokenizer.save(folder / "tokenizer.json"),
        lambda tokenizer, folder: Tokenizer.load(folder / "tokenizer.json"),
    ),
    "gpt2": (
        lambda tokenizer, folder: tokenizer.to_gpt2(folder),
        lambda tokenizer, folder: Tokenizer.load(folder),
    ),
    "tiktoken": (
        lambda tokenizer, folder: tokenizer.to_tiktoken(folder / "a.tiktoken"),
        lambda tokenizer, folder: Tokenizer.load(
            folder, pattern=tokenizer.pattern, special_tokens=tokenizer.special_tokens
        ),
    ),
    "cs336": (
        lambda tokenizer, folder: write_pair(tokenizer, folder, ".json", ".txt"),
        lambda tokenizer, folder: Tokenizer.load(folder, special_tokens=tokenizer.special_tokens),
    ),
    "cs336 pickle": (
        lambda tokenizer, folder: write_pair(tokenizer, folder, ".pkl", ".pkl"),
        lambda tokenizer, folder: Tokenizer.load(folder / "vocab.pkl", special_tokens=tokenizer.special_tokens),
    ),
    "memory": (
        lambda tokenizer, folder: tokenizer.to_vocab_and_merges(),
        lambda tokenizer, folder: Tokenizer.from_vocab_and_merges(
            *tokenizer.to_vocab_and_merges(), list(tokenizer.special_tokens), pattern=tokenizer.pattern
        ),
    ),
    "character": (
        lambda tokenizer, folder: tokenizer.save(folder / "c.json"),
        lambda tokenizer, folder: Tokenizer.load(folder / "c.json"),
    ),
}
JSON = {"hf", "own"}
PAIRS = {"cs336", "cs336 pickle", "memory"}
EVERY = JSON | PAIRS | {"gpt2", "tiktoken"}


def small(recipe="hf", specials=("<|endoftext|>",), **switches):
    return train_tokenizer(TEXTS, 300, recipe, specials, **switches)


def reordered():
    """Merges that are not in the order of their ids."""
    a, b, c = b"abc"
    return Tokenizer(BPEModel(tokens=(*ALL_BYTES, b"ab", b"bc"), merges=((b, c), (a, b)), merge_results=(257, 256)))


def flagged():
    added = (AddedToken(content="<tool>", id=256, special=False), AddedToken(content="<|x|>", id=257, lstrip=True))
    return Tokenizer(BPEModel(tokens=(*ALL_BYTES, None, None), added_tokens=added))


SMALL = {
    "hf": (small, EVERY),
    "without special tokens": (lambda: small(specials=()), EVERY),
    "bytes first": (lambda: small("cs336"), EVERY),
    "special tokens in the middle and at the end": (
        lambda: small("cs336").with_special_tokens(["<|pad|>"]),
        EVERY - {"gpt2"},
    ),
    "another pattern": (lambda: small("readable"), JSON | {"tiktoken", "memory"}),
    "smollm": (lambda: small(pattern="smollm"), JSON | {"tiktoken", "memory"}),
    "a regular expression": (lambda: small(pattern=r"\w+|\W"), JSON | {"tiktoken", "memory"}),
    "reordered": (reordered, EVERY - {"tiktoken"}),
    "flags": (flagged, JSON),
    "holes": (
        lambda: Tokenizer(to_model({**dict(enumerate(ALL_BYTES)), 300: b"ab"}, "gpt2", {}, "-")),
        JSON | {"tiktoken"},
    ),
    "reached only whole": (
        lambda: Tokenizer(to_model({**dict(enumerate(ALL_BYTES)), 256: b"abc"}, "gpt2", {}, "-")),
        JSON | {"tiktoken"},
    ),
    "characters": (lambda: small("character", ()), {"character", "own"}),
}


def check_matrix(tokenizer, able, folder):
    for number, (form, (write, read)) in enumerate(FORMS.items()):
        if form == "character" and tokenizer.unit == "byte":  # the writer is `save`, which has a form for each unit
            continue
        first = folder / str(number)
        first.mkdir()
        if form not in able:
            with pytest.raises(FormatError):
                write(tokenizer, first)
            assert not any(first.iterdir()), form
            continue
        write(tokenizer, first)
        again = read(tokenizer, first)
        assert again.fingerprint == tokenizer.fingerprint, form
        for other in able - {form}:
            second = folder / f"{number} {other}"
            second.mkdir()
            FORMS[other][0](again, second)
            assert FORMS[other][1](again, second).fingerprint == tokenizer.fingerprint, (form, other)


@pytest.mark.filterwarnings("ignore::minigpt_tok.bpe.pretokenize.UnicodeVersionWarning")
@pytest.mark.parametrize("name", SMALL)
def test_small_tokenizers(name, tmp_path):
    make, able = SMALL[name]
    check_matrix(make(), able, tmp_path)


PUBLISHED = {
    "gpt2/r50k_base.tiktoken": EVERY - {"own", "cs336 pickle"},
    "cl100k_base.tiktoken": {"hf", "tiktoken"},
    "o200k_base.tiktoken": {"hf", "tiktoken"},
    "llama3/tokenizer.json": {"hf", "tiktoken"},
    "qwen/qwen.tiktoken": {"hf", "tiktoken"},
    "smollm2/tokenizer.json": {"hf", "memory"},
}
QUICK = {"gpt2/r50k_base.tiktoken": {"hf", "tiktoken"}, "smollm2/tokenizer.json": {"hf"}}


@cache
def load(folder: Path, name: str) -> Tokenizer:
    return Tokenizer.load(folder / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tokenizers(shared, name, tmp_path):
    tokenizer = load(shared / "tokenizers", name)
    for form in PUBLISHED[name]:
        (tmp_path / form).mkdir()
        FORMS[form][0](tokenizer, tmp_path / form)
        again = FORMS[form][1](tokenizer, tmp_path / form)
        assert again.fingerprint == tokenizer.fingerprint, form
        for other in PUBLISHED[name] - {form}:
            second = tmp_path / f"{form} {other}"
            second.mkdir()
            FORMS[other][0](again, second)
            assert FORMS[other][1](again, second).fingerprint == tokenizer.fingerprint, (form, other)


@pytest.mark.parametrize("name", QUICK)
def test_published_tokenizers_there_and_back(shared, name, tmp_path):
    tokenizer = Tokenizer.load(shared / "tokenizers" / name)
    for form in QUICK[name]:
        (tmp_path / form).mkdir()
        FORMS[form][0](tokenizer, tmp_path / form)
        assert FORMS[form][1](tokenizer, tmp_path / form).fingerprint == tokenizer.fingerprint, form


# Other programs load what is written, and give the same ids


@cache
def texts(shared: Path, number: int) -> list[str]:
    """Real text of many scripts in pieces of any length, and random characters of all planes. Seeded."""
    chance = random.Random(number)
    real = "".join(
        (shared / "corpora" / name).read_text("utf-8")
        for name in (
            "multilingual/udhr2_major_scripts.txt",
            "prose/gutenberg_1MB.txt",
            "tinystories/tinystories_v2_1728_stories.txt",
        )
    )
    odd = "  \n\t\r\u00a0\u3000'’s<|endoftext|>½Ⅷ٣9a\u0301é日ß\u200d🤷🏽\x00"
    found = []
    while len(found) < number:
        parts = []
        for _ in range(chance.randint(1, 4)):
            kind = chance.random()
            if kind < 0.5:
                start = chance.randrange(len(real))
                parts.append(real[start : start + chance.randint(1, 80)])
            elif kind < 0.8:
                parts.append("".join(chance.choices(odd, k=chance.randint(1, 12))))
            else:
                points = (
                    chance.choice((chance.randrange(0xD800), chance.randrange(0xE000, 0x110000))) for _ in range(6)
                )
                parts.append("".join(map(chr, points)))
        found.append("".join(parts))
    return found


def hugging_face(tokenizer, folder):
    library = pytest.importorskip("tokenizers")
    tokenizer.to_hf_json(folder / "tokenizer.json")
    theirs = library.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: theirs.encode(text).ids


def openai(tokenizer, folder):
    library = pytest.importorskip("tiktoken")
    from tiktoken.load import load_tiktoken_bpe

    tokenizer.to_tiktoken(folder / "a.tiktoken")
    theirs = library.Encoding(
        "a",
        pat_str=PATTERNS[tokenizer.pattern],
        mergeable_ranks=load_tiktoken_bpe(str(folder / "a.tiktoken")),
        special_tokens=tokenizer.special_tokens,
    )
    return lambda text: theirs.encode(text, allowed_special="all")


@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("gpt2/r50k_base.tiktoken", hugging_face),
        ("gpt2/tokenizer.json", openai),
        pytest.param("smollm2/tokenizer.json", hugging_face, marks=pytest.mark.slow),
        pytest.param("cl100k_base.tiktoken", hugging_face, marks=pytest.mark.slow),
        pytest.param("cl100k_base.tiktoken", openai, marks=pytest.mark.slow),
        pytest.param("o200k_base.tiktoken", hugging_face, marks=pytest.mark.slow),
        pytest.param("o200k_base.tiktoken", openai, marks=pytest.mark.slow),
        pytest.param("llama3/tokenizer.json", openai, marks=pytest.mark.slow),
        pytest.param("llama3/tokenizer.model", hugging_face, marks=pytest.mark.slow),
        pytest.param("qwen/qwen.tiktoken", hugging_face, marks=pytest.mark.slow),
    ],
)
def test_other_programs_agree(shared, name, program, number, tmp_path):
    tokenizer = load(shared / "tokenizers", name)
    theirs = program(tokenizer, tmp_path)
    for text in texts(shared, number):
        ours = tokenizer.encode(text, allowed_special="all")
        assert theirs(text) == ours, text


def test_p50k_is_known_by_its_hash(shared, tmp_path):
    """p50k is r50k with 24 runs of spaces behind a hole at 50256: so made, its ranks hash as those of the published file."""
    ranks = read_ranks(shared / "tokenizers" / "gpt2" / "r50k_base.tiktoken")
    ranks |= {50257 + n: b" " * (n + 2) for n in range(24)}
    Tokenizer(to_model(ranks, "gpt2", {}, "-")).to_tiktoken(tmp_path / "p50k")
    known = Tokenizer.load(tmp_path / "p50k")
    assert known.vocab_size == 50281
    assert known.special_tokens == {"<|endoftext|>": 50256}
