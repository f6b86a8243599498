"""The core's encoder against the readable one: every pattern, rank rule and id width, on random and hostile text.

A quick part runs always; the long part, by `--slow`, is the same on much more text.
"""

import random
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from minigpt_tok.bpe.encoder import LONG_PIECE, Encoder
from minigpt_tok.bpe.fast import FastEncoder
from minigpt_tok.bpe.model import ALL_BYTES, BPEModel
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.errors import TokenizerError

ALL_PATTERNS = (*sorted(PATTERNS), "none")
MOST_SMALL_IDS = 1 << 16


def with_holes(model, vocab_size):
    return replace(model, tokens=(*model.tokens, *[None] * (vocab_size - len(model.tokens))))


def without_bytes(model, dropped):
    """The same without some base bytes and all that is made of them."""
    kept = [token for token in model.tokens if not any(byte in dropped for byte in token)]
    number = {token: id for id, token in enumerate(kept)}
    merges, results = [], []
    for (left, right), result in zip(model.merges, model.merge_results, strict=True):
        if model.tokens[result] in number:
            merges.append((number[model.tokens[left]], number[model.tokens[right]]))
            results.append(number[model.tokens[result]])
    return BPEModel(tokens=tuple(kept), merges=tuple(merges), merge_results=tuple(results), pattern=model.pattern)


VARIANTS = {
    "pairs, 16 bits": lambda models, model: model,
    "pairs, 32 bits, holes": lambda models, model: with_holes(model, MOST_SMALL_IDS + 1),
    "pairs, whole pieces": lambda models, model: replace(model, whole_piece=True),
    "ranks, 16 bits, whole pieces": lambda models, model: models.by_bytes(model, whole_piece=True),
    "ranks, 32 bits": lambda models, model: with_holes(models.by_bytes(model, whole_piece=False), MOST_SMALL_IDS + 1),
    "dropped bytes": lambda models, model: without_bytes(model, b"\0\x04eA\xc3\xb7\xe6"),
}
_models = {}


def make(models, pattern, variant):
    if (pattern, variant) not in _models:
        _models[pattern, variant] = VARIANTS[variant](models, models.trained(pattern))
    return _models[pattern, variant]


_expected = {}


def expected_ids(models, model, text):
    """By the readable encoder; kept, since every level of the core is asked."""
    key = id(model), text
    if key not in _expected:
        _expected[key] = models.reference(model).encode(text)
    return _expected[key]


def check_text(models, fast, text, name=""):
    """All ways of encoding one text."""
    expected = expected_ids(models, fast.model, text)
    assert fast.encode(text) == expected, name
    array = fast.encode_to_numpy(text)
    assert array.dtype == fast.dtype
    assert array.tolist() == expected, name
    assert fast.encode_to_numpy(memoryview(text.encode())).tolist() == expected, name
    assert fast.count(text) == len(expected), name


def check_batches(models, fast, texts):
    expected = [expected_ids(models, fast.model, text) for text in texts]
    for threads in (1, 2, 3):
        assert fast._core.encode_batch(texts, threads) == expected
        ids, offsets = fast._core.encode_batch_to_numpy(texts, threads)
        assert [ids[start:end].tolist() for start, end in pairwise(offsets)] == expected
        assert (ids.dtype, offsets.dtype) == (fast.dtype, np.int64)


def test_the_width_of_ids(core, models):
    model = models.trained("gpt2")
    for vocab_size, kind, dtype in (
        (MOST_SMALL_IDS, core.Encoder16, np.uint16),
        (MOST_SMALL_IDS + 1, core.Encoder32, np.uint32),
    ):
        # The last id of all is used, beside the first ones.
        tokens = [*model.tokens, *[None] * (vocab_size - len(model.tokens) - 1), b"zq"]
        merge = (ALL_BYTES.index(b"z"), ALL_BYTES.index(b"q"))
        wide = replace(
            model,
            tokens=tuple(tokens),
            merges=(*model.merges, merge),
            merge_results=(*model.merge_results, vocab_size - 1),
        )
        fast = FastEncoder(wide)
        assert type(fast._core) is kind
        for text in ("zq", "zqzq zq", "the zq" * 3, "zq" * 40, "zq" * 400, "a" + "zq" * 7):
            ids = fast.encode(text)
            assert ids == Encoder(wide).encode(text)
            assert vocab_size - 1 in ids
            array = fast.encode_to_numpy(text)
            assert array.dtype == dtype
            assert array.tolist() == ids == fast.encode(text)  # from the cache, the second time


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_random_text(core, models, hard, pattern, variant):
    fast = FastEncoder(make(models, pattern, variant))
    rng = random.Random(f"{pattern} {variant}")
    texts = [hard.random(rng, length) for length in (1, 2, 3, 5, 9, 17, 40, 40, 90, 300, 1500)]
    for text in (*texts, ""):
        check_text(models, fast, text)
    for text in texts:  # with a cache that knows all of it
        check_text(models, fast, text)
    check_batches(models, fast, [*texts, "", *texts[::-1]])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_hostile_text(core, models, hard, pattern, variant):
    fast = FastEncoder(make(models, pattern, variant))
    for name, text in hard.hostile(LONG_PIECE * 3 // 2).items():
        check_text(models, fast, text, name)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_much_random_and_hostile_text(core, models, hard, pattern, variant):
    fast = FastEncoder(make(models, pattern, variant))
    rng = random.Random(f"much {pattern} {variant}")
    for length in (*range(1, 300), *[1000] * 100, 30_000, 200_000):
        check_text(models, fast, hard.random(rng, length))
    for name, text in hard.hostile(40_000).items():
        check_text(models, fast, text, name)
    _expected.clear()


@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_real_text(core, models, shared, pattern):
    fast = FastEncoder(models.trained(pattern))
    prose = (shared / "corpora/prose/gutenberg_1MB.txt").read_text("utf-8")
    scripts = (shared / "corpora/multilingual/udhr2_major_scripts.txt").read_text("utf-8")
    for text in (prose[:60_000], scripts[20_000:50_000]):
        check_text(models, fast, text)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_much_real_text(core, models, shared, pattern):
    fast = FastEncoder(models.trained(pattern))
    for file in ("prose/gutenberg_1MB.txt", "multilingual/udhr2_major_scripts.txt", "wikitext-2-raw/wiki.test.raw"):
        check_text(models, fast, (shared / "corpora" / file).read_text("utf-8"))
    _expected.clear()


# Long pieces


@pytest.mark.parametrize("rule", ["pair", "bytes"])
@pytest.mark.parametrize("dropped", [b"", b"\0d\xcc"])
def test_long_pieces_are_cut_only_where_no_merge_can_reach(core, models, hard, rule, dropped):
    """Against merging the whole piece at once, which cuts nothing."""
    model = without_bytes(models.trained("none"), dropped)
    if rule == "bytes":
        model = models.by_bytes(model, whole_piece=False)
    fast, reference = FastEncoder(model), models.reference(model)
    rng = random.Random(5)
    for length in (40, 41, 255, 256, 257, 258, 500, 3000):
        for alphabet in ("a", "ab", "abc d", "the catsa", "\0abd", "é日\u0301 e", "the cat's ad\0"):
            text = "".join(rng.choices(alphabet, k=length))
            assert fast.encode(text) == reference.merge(text.encode()), (text, rule)


def check_sizes(fast, texts):
    """That the ids' bytes come to the text's; were anything quadratic, a million characters would take days."""
    for name, text in texts.items():
        ids = fast.encode_to_numpy(text)
        assert b"".join([fast.model.tokens[id] for id in ids.tolist()]) == text.encode(), name
        assert np.array_equal(fast.encode_to_numpy(memoryview(text.encode())), ids), name


def test_much_of_anything(best_core, models, hard):
    check_sizes(FastEncoder(models.trained("cl100k")), hard.hostile(300_000))


def test_a_million_of_anything_in_whole_pieces(best_core, models, hard):
    texts = hard.hostile(1_000_000)
    check_sizes(
        FastEncoder(models.by_bytes(models.trained("gpt2"), whole_piece=True)),
        {name: texts[name] for name in ("one letter", "no white space", "combining marks")},
    )


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_a_million_of_anything_by_every_pattern(core, models, hard, pattern):
    texts = hard.hostile(1_000_000)
    for variant in VARIANTS:
        if variant != "dropped bytes":
            check_sizes(FastEncoder(make(models, pattern, variant)), texts)


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_no_scanner_looks_twice_at_a_long_run(best_core, models, pattern):
    """Runs that an alternative takes and gives back, over and over, 400,000 characters long."""
    fast = FastEncoder(models.trained(pattern))
    runs = (
        "A" * 1000 + "ʰ" * 1000,
        "Aʰ",
        " \n" * 500 + " " * 500,
        " " * 999 + "x",
        "'" * 999 + "s",
        "/" * 999 + "\n",
        "\u0301" * 500 + "A" * 500,
        "\u0301A",
    )
    texts = {run: run * (400_000 // len(run)) for run in runs}
    for run, text in texts.items():
        ids = fast.encode_to_numpy(text)
        assert sum(len(fast.model.tokens[id]) for id in ids.tolist()) == len(text.encode()), run


# Characters


CHARACTERS = "low er日本語\U0001f600\U00010400é\0\u0301\n"


@pytest.fixture(scope="module")
def character_models(models):
    small = models.trained("none", 90, "character")
    # Characters beyond plane 0, in tokens and on their own.
    base = sorted(set(CHARACTERS))
    number = {character: id for id, character in enumerate(base)}
    tokens = [character.encode() for character in base]
    merges, results = [], []
    for left, right in (
        "lo",
        "ow",
        ("lo", "w"),
        "日本",
        ("\U0001f600", "\U00010400"),
        ("本", "\U0001f600"),
        "\0\0",
        "e\u0301",
    ):
        merges.append((number[left], number[right]))
        number.setdefault(left + right, len(tokens))
        results.append(number[left + right])
        if results[-1] == len(tokens):
            tokens.append((left + right).encode())
    made = BPEModel(
        unit="character", tokens=tuple(tokens), merges=tuple(merges), merge_results=tuple(results), pattern="none"
    )
    return (
        small,
        made,
        replace(made, pattern="gpt2"),
        with_holes(made, MOST_SMALL_IDS + 1),
        replace(made, whole_piece=True),
    )


def test_characters(core, models, character_models):
    rng = random.Random(3)
    for model in character_models:
        known = "".join(token.decode() for token in model.base_ids)
        fast = FastEncoder(model)
        for length in (0, 1, 2, 5, 40, 41, 200, 256, 257, 300, 5000, 40_000):
            check_text(models, fast, "".join(rng.choices(known, k=length)))
        check_batches(models, fast, ["".join(rng.choices(known, k=length)) for length in (0, 3, 700, 0)])


def test_characters_that_are_unknown(core, models, character_models):
    for model in character_models:
        fast, reference = FastEncoder(model), models.reference(model)
        known = "lore"
        for text in ("Qz", "lorZ", "l" * 300 + "\U0001f602", "lo\ud800", "\udfff", "lo" * 30_000 + "Z", "Q\udc00"):
            with pytest.raises(TokenizerError) as expected:
                reference.encode(text)
            for encode in (fast.encode, fast.encode_to_numpy, fast.count, fast.encode_with_offsets):
                with pytest.raises(TokenizerError) as raised:
                    encode(text)
                assert str(raised.value) == str(expected.value)
            for encode in (fast.encode_batch, fast.encode_batch_to_numpy):
                with pytest.raises(TokenizerError, match=r"texts\[1\]: the text has"):
                    encode([known, text, known])
        assert fast.encode(known * 20) == reference.encode(known * 20)  # none of these has spoilt a worker


# Offsets, streams, batches


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_offsets(best_core, models, hard, pattern, variant):
    model = make(models, pattern, variant)
    fast, reference = FastEncoder(model), models.reference(model)
    rng = random.Random(f"offsets {pattern}")
    for length in (0, 1, 5, 40, 300, 1000):
        text = hard.random(rng, length) if length else ""
        assert fast.encode_with_offsets(text) == reference.encode_with_offsets(text)


@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_streams(best_core, models, hard, pattern):
    model = models.trained(pattern)
    fast = FastEncoder(model)
    rng = random.Random(f"streams {pattern}")
    text = hard.random(rng, 3000)
    expected = models.reference(model).encode(text)
    for most in (1, 7, 400):
        cuts = [0]
        while cuts[-1] < len(text):
            cuts.append(min(len(text), cuts[-1] + rng.randint(0, most)))
        assert list(fast.encode_iter([text[start:end] for start, end in pairwise(cuts)])) == expected


def test_batches_by_several_threads(best_core, models):
    """Long enough that threads are worth while; cut wherever the sizes of the texts have it."""
    fast = FastEncoder(models.trained("gpt2"))
    words = "the cat's sat 1234 naïve\n" * 1700
    rng = random.Random(8)
    shapes = [
        [words] * 100,
        ["", "a", words * 60],
        [words * 60, "", "a"],
        [words * 60],
        ["", "", words * 30, words * 30],
        [words * 30] * 3 + [""] * 5,
        [words[: rng.randint(0, len(words))] for _ in range(200)],
        ["a b"] * 3000 + [words * 60] + ["c d"] * 3000,
        [words * 300, *["a b"] * 100_000],  # all else is done long before the first
        ["".join(rng.choices("0123456789#%", k=300_000)) for _ in range(12)],  # more ids than the array is made for
        [""] * 1000,
        [],
    ]
    for texts in shapes:
        alone = {text: fast.encode_to_numpy(text) for text in set(texts)}
        expected = np.concatenate([np.empty(0, fast.dtype), *(alone[text] for text in texts)])
        ends = np.cumsum([0, *(len(alone[text]) for text in texts)])
        for threads in (0, 1, 2, 3, 7, 64):
            ids, offsets = fast._core.encode_batch_to_numpy(texts, threads)
            assert np.array_equal(ids, expected)
            assert np.array_equal(offsets, ends)


def test_a_bad_text_among_many_is_the_one_that_is_named(best_core, models):
    fast = FastEncoder(models.trained("gpt2"))
    good = "the cat's sat 1234 naïve\n" * 20_000
    for bad in range(8):
        texts = [good + ("\ud800" if number in (bad, 7) else "") for number in range(8)]
        with pytest.raises(TokenizerError, match=rf"texts\[{bad}\]: the text has a lone surrogate"):
            fast.encode_batch_to_numpy(texts)
        for threads in (1, 2, 3):
            with pytest.raises(ValueError, match=f"text {bad} cannot"):
                fast._core.encode_batch(texts, threads)
    assert fast.encode_batch([good]) == [fast.encode(good)]


# The cache


def test_what_has_been_seen_before_changes_nothing(core, models, hard):
    """Texts in any order, by one encoder that has seen the others and by new ones."""
    for variant in ("pairs, 16 bits", "ranks, 32 bits", "dropped bytes"):
        model = make(models, "gpt2", variant)
        rng = random.Random(variant)
        texts = [hard.random(rng, rng.randint(1, 60)) for _ in range(400)]
        alone = [FastEncoder(model).encode(text) for text in texts[:60]]
        fast = FastEncoder(model)
        for _ in range(3):
            order = list(range(len(texts)))
            rng.shuffle(order)
            again = {number: fast.encode(texts[number]) for number in order}
            assert [again[number] for number in range(60)] == alone


def check_a_full_cache(models, variant, sizes):
    """Pieces of one length until old ones have made room for new ones, then all of them again."""
    model = make(models, "gpt2", variant)
    fast, reference = FastEncoder(model), models.reference(model)
    rng = random.Random(variant)

    def words(count, length):
        letters = rng.choices("abcdefghijklmnopqrstuvwxyz", k=count * length)
        return " ".join("".join(letters[start : start + length]) for start in range(0, len(letters), length))

    probe = [" the cat's sat", "catsa", *(words(1, length) for length in (3, 7, 8, 12, 15, 16, 17, 40, 200))]
    expected = [reference.encode(text) for text in probe]
    for count, length in sizes:
        text = words(count, length)
        first = fast.encode_to_numpy(text)
        assert [fast.encode(text) for text in probe] == expected
        assert np.array_equal(fast.encode_to_numpy(text), first)
        last = FastEncoder(model).encode_to_numpy(text[text.rindex(" ", 0, -10_000) :])
        assert np.array_equal(last, first[-len(last) :])
        assert fast.encode(text[: 40 * (length + 1)]) == reference.encode(text[: 40 * (length + 1)])


def test_more_distinct_pieces_than_the_cache_holds(best_core, models):
    check_a_full_cache(models, "pairs, 16 bits", [(1_150_000, 5)])
    check_a_full_cache(models, "ranks, 32 bits", [(150_000, 40)])


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["pairs, 16 bits", "ranks, 32 bits"])
def test_more_distinct_pieces_of_every_length_than_the_cache_holds(core, models, variant):
    """Pieces of up to 8, of 9 to 16 and of more bytes have tables of their own."""
    check_a_full_cache(
        models, variant, [(1_500_000, 5), (1_500_000, 6), (1_200_000, 12), (700_000, 24), (300_000, 100)]
    )


def check_pairs_of_words(models, how_many, vocab_size):
    """Pieces of 12 bytes that are two tokens, every pair of so many words: they have a table of their own."""
    rng = random.Random(how_many)
    every = ["".join(letters) for letters in product("abcd", "efgh", "ijkl", "mnop", "qrst", "uvwx")]
    words = rng.sample(every, how_many)
    tokens, merges, number = list(ALL_BYTES), [], {bytes([byte]): byte for byte in range(256)}
    for word in words:
        for end in range(2, 7):
            made = word[:end].encode()
            if made not in number:
                number[made] = len(tokens)
                tokens.append(made)
                merges.append((number[made[:-1]], ord(word[end - 1])))
    model = BPEModel(tokens=tuple(tokens), merges=tuple(merges), merge_results=tuple(range(256, len(tokens))))
    fast = FastEncoder(with_holes(model, max(vocab_size, len(tokens))))
    for _ in range(2):
        for one in words:
            ids = fast.encode_to_numpy("1".join(one + other for other in words) + "1")
            assert (ids[0::3] == number[one.encode()]).all()
            assert ids[1::3].tolist() == [number[other.encode()] for other in words]
            assert (ids[2::3] == ord("1")).all()
    text = "1".join(words[0] + other for other in words)
    assert fast.encode(text) == models.reference(model).encode(text)


@pytest.mark.parametrize("vocab_size", [0, MOST_SMALL_IDS + 1])
def test_pairs_of_words(best_core, models, vocab_size):
    check_pairs_of_words(models, 350, vocab_size)


@pytest.mark.slow
@pytest.mark.parametrize("vocab_size", [0, MOST_SMALL_IDS + 1])
def test_more_pairs_of_words_than_the_cache_holds(core, models, vocab_size):
    check_pairs_of_words(models, 1300, vocab_size)
