"""Merges and ids equal those of Hugging Face's `BpeTrainer`, in order, on the same documents."""

import json
import random
import sysconfig
from pathlib import Path

import pytest

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe.patterns import oniguruma_expression

tokenizers = pytest.importorskip("tokenizers")

END = "<|endoftext|>"


def theirs(documents, vocab_size, min_frequency, specials, pattern):
    pre = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    if pattern == "gpt2":
        tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    elif pattern == "smollm":
        tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(False)])
    else:
        split = pre.Split(tokenizers.Regex(oniguruma_expression(pattern)), behavior="isolated")
        tokenizer.pre_tokenizer = pre.Sequence([split, pre.ByteLevel(False, use_regex=False)])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(specials),
        initial_alphabet=pre.ByteLevel.alphabet(),
        show_progress=False,
    )
    # They do not cut at specials: what lies between is fed to them as documents of their own.
    segments = [segment for document in documents for segment in split_at(document, specials)]
    tokenizer.train_from_iterator(segments, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return [tuple(merge) for merge in model["merges"]], model["vocab"]


def split_at(document, specials):
    segments = [document]
    for special in specials:
        segments = [part for segment in segments for part in segment.split(special)]
    return [segment for segment in segments if segment]


def ours(documents, vocab_size, min_frequency, specials, pattern):
    tokenizer = train_tokenizer(
        documents, vocab_size, special_tokens=specials, min_frequency=min_frequency, pattern=pattern
    )
    model = json.loads(tokenizer.to_json())["model"]
    return [tuple(merge) for merge in model["merges"]], model["vocab"]


def assert_equal(documents, vocab_size, min_frequency=2, specials=(), pattern="gpt2"):
    expected_merges, expected_vocab = theirs(documents, vocab_size, min_frequency, specials, pattern)
    merges, vocab = ours(documents, vocab_size, min_frequency, specials, pattern)
    assert merges == expected_merges
    assert vocab == expected_vocab
    return merges


# Text that every machine has


@pytest.fixture(scope="module")
def sources():
    """Modules of the standard library, a document each."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    names = ["argparse", "typing", "textwrap", "random", "statistics", "this", "calendar", "string", "_pydecimal"]
    return [(folder / f"{name}.py").read_text("utf-8") for name in names]


@pytest.mark.parametrize(
    ("vocab_size", "min_frequency", "specials", "pattern"),
    [
        (2_000, 2, (), "gpt2"),
        (600, 25, (END,), "gpt2"),
        (1_000, 2, (END, "<|im_start|>", "<|im_end|>"), "llama3"),
        (700, 2, (), "smollm"),
        (900, 2, ("<s>",), "o200k"),
        (256, 2, (), "gpt2"),
    ],
)
def test_sources_of_the_standard_library(sources, vocab_size, min_frequency, specials, pattern):
    assert_equal(sources, vocab_size, min_frequency, specials, pattern)


def test_lines_as_documents_until_no_pair_is_left(sources):
    lines = sources[2].splitlines(keepends=True)
    merges = assert_equal(lines, 100_000, 1)
    assert len(merges) > 1_000


def test_specials_in_the_text_are_cut_out(sources):
    text = END.join(sources[3].split("\n\n"))
    assert text.count(END) > 50
    merges = assert_equal([text], 800, 2, (END,))
    assert not any("<|" in left + right for left, right in merges)


def test_many_scripts_and_ties():
    """Short words of a few characters of many scripts: most merges are decided by a tie."""
    chance = random.Random(1234)
    scripts = ["abcde", "абвгд", "日本語中文", "नमस्ते", "🙂🤷🏽‍♀️", "éèü", "0123½", " \n\t\u3000\u00a0", "'sdtm.,!?"]
    documents = [
        "".join(chance.choice(chance.choice(scripts)) for _ in range(chance.randrange(1, 40))) for _ in range(400)
    ]
    assert_equal(documents, 100_000, 1)
    assert_equal(documents, 700, 3, ("<s>",))


@pytest.mark.parametrize("seed", range(8))
def test_runs_and_overlaps(seed):
    chance = random.Random(seed)
    documents = ["".join(chance.choice("aab ") for _ in range(chance.randrange(1, 60))) for _ in range(60)]
    assert_equal(documents, 100_000, 1)


# Real corpora


def read(path, characters=None):
    return path.read_text("utf-8")[:characters]


def test_wikitext_2(shared):
    text = read(shared / "corpora" / "wikitext-2" / "train.txt", 1_000_000)
    assert_equal([text], 3_000, 2, (END,))


def test_wikitext_2_raw_by_lines_and_high_frequency(shared):
    text = read(shared / "corpora" / "wikitext-2-raw" / "wiki.test.raw")
    assert_equal(text.splitlines(keepends=True), 2_000, 30)


def test_tinystories_with_their_separator(shared):
    text = read(shared / "corpora" / "tinystories" / "tinystories_v2_1728_stories.txt")
    assert text.count(END) > 1_000
    assert_equal([text], 4_000, 2, (END,))


def test_25_languages_and_scripts(shared):
    text = read(shared / "corpora" / "multilingual" / "udhr2_major_scripts.txt")
    assert_equal(text.split("\n\n"), 2_500, 2, (), "llama3")
    assert_equal([text], 1_500, 1)


def test_books(shared):
    text = read(shared / "corpora" / "prose" / "gutenberg_1MB.txt")
    assert_equal([text], 5_000, 2, (END, "<|pad|>"), "gpt2")


@pytest.mark.slow
def test_wikitext_2_complete_to_8192_ids(shared):
    text = read(shared / "corpora" / "wikitext-2" / "train.txt")
    assert_equal([text], 8_192, 2)


@pytest.mark.slow
def test_all_sources_of_the_standard_library():
    folder = Path(sysconfig.get_paths()["stdlib"])
    documents = [path.read_text("utf-8") for path in sorted(folder.glob("*.py"))]
    assert_equal(documents, 8_192, 2, (END,), "digits1")
