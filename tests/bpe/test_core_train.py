"""The core's training against the readable one, a brute-force one, and `tokenizers`: the same merges, counts and curve.

How often a tie between equal counts decided is part of the report: a comparison in which none did would show little.
"""

import json
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import tokenizers

from minigpt_tok.bpe.counting import PieceCounter
from minigpt_tok.bpe.fast import FastPieceCounter
from minigpt_tok.bpe.model import ALL_BYTES, BYTES_BY_CHARACTER
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.recipes import RECIPES, get_recipe
from minigpt_tok.bpe.reference import Stop
from minigpt_tok.bpe.trainer import _base_tokens, train_model
from minigpt_tok.errors import TokenizerError
from minigpt_tok.files import MappedText

ALL_PATTERNS = (*sorted(PATTERNS), "none")
TIES = ("lowest_ids", "greatest_bytes", "first_seen")
EVERYTHING = 10**9  # merges, until none is left


def learned_by(counter, batches, merges=EVERYTHING, min_frequency=None):
    """Everything that training gives."""
    for texts in batches:
        counter.add(texts)
    base = _base_tokens(counter)
    stop = Stop(merges, counter.recipe.min_frequency if min_frequency is None else min_frequency)
    distinct, characters = counter.distinct(), dict(counter.characters())
    learned = counter.learn(base, stop, None)
    return base, distinct, characters, learned.base_tokens, learned.merges, learned.stopped


def check(recipe, batches, merges=EVERYTHING, threads=(1, 2, 3)):
    expected = learned_by(PieceCounter(recipe), batches, merges)
    for count in threads:
        assert learned_by(FastPieceCounter(recipe, count), batches, merges) == expected
    return expected


def brute_force(recipe, texts, base, most):
    """Counts everything over again before every merge: (merges as (left, right, count, tokens after), ties that decided)."""
    counter = PieceCounter(recipe)
    counter.add(texts)
    pieces = [[list(ids), count] for ids, count in counter._as_base_ids(base)]
    raw, lengths = list(base), [1] * len(base)
    merges, ties = [], 0
    while len(merges) < most:
        counts, first = Counter(), {}
        for number, (ids, count) in enumerate(pieces):
            for place, pair in enumerate(pairwise(ids)):
                counts[pair] += count
                first.setdefault(pair, (number, place))
        allowed = {
            pair: count
            for pair, count in counts.items()
            if recipe.max_token_length is None or lengths[pair[0]] + lengths[pair[1]] <= recipe.max_token_length
        }
        best = max(allowed.values(), default=0)
        if best < recipe.min_frequency:
            break
        tied = [pair for pair, count in allowed.items() if count == best]
        ties += len(tied) > 1
        if recipe.tie == "lowest_ids":
            pair = min(tied)
        elif recipe.tie == "first_seen":
            pair = min(tied, key=first.__getitem__)
        else:
            pair = max(tied, key=lambda pair: (raw[pair[0]], raw[pair[1]]))
        raw.append(raw[pair[0]] + raw[pair[1]])
        lengths.append(lengths[pair[0]] + lengths[pair[1]])
        for entry in pieces:
            ids, made = entry[0], []
            place = 0
            while place < len(ids):
                joined = tuple(ids[place : place + 2]) == pair
                made.append(len(raw) - 1 if joined else ids[place])
                place += 1 + joined
            entry[0] = made
        merges.append((*pair, best, sum(len(ids) * count for ids, count in pieces)))
    return merges, ties


def random_documents(rng, hard):
    """Documents that tie and overlap a lot, or of any characters."""
    kind = rng.randrange(4)
    if kind == 0:
        return ["".join(rng.choices("ab", k=rng.randint(0, 30))) for _ in range(rng.randint(1, 12))]
    if kind == 1:
        return ["".join(rng.choices("abc d", k=rng.randint(0, 60))) for _ in range(rng.randint(1, 8))]
    if kind == 2:
        return [hard.random(rng, rng.randint(1, 80)) for _ in range(rng.randint(1, 6))]
    words = ["".join(rng.choices("abé", k=rng.randint(1, 5))) for _ in range(6)]
    return [" ".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(rng.randint(1, 6))]


def random_recipe(rng):
    name = rng.choice(list(RECIPES))
    switches = {
        "tie": rng.choice(TIES),
        "pattern": rng.choice(ALL_PATTERNS),
        "min_frequency": rng.choice((1, 1, 2, 3)),
        "max_token_length": rng.choice((None, None, 1, 2, 3, 5, 16)),
    }
    if RECIPES[name].unit == "character":
        switches["limit_alphabet"] = rng.choice((None, 1, 2, 5))
        switches["initial_alphabet"] = rng.choice((frozenset(), frozenset("aXé\U0001f600")))
    return get_recipe(name, **switches)


def differential(hard, seed, rounds):
    """Core, reference and brute force on random documents and switches: (merges compared, ties that decided)."""
    rng = random.Random(seed)
    compared = decided = 0
    for _ in range(rounds):
        recipe, documents = random_recipe(rng), random_documents(rng, hard)
        cut = rng.randint(0, len(documents))
        most = rng.choice((3, 20, EVERYTHING))
        base, _, _, _, merges, _ = check(recipe, [documents[:cut], documents[cut:]], most)
        expected, ties = brute_force(recipe, documents, base, most)
        assert [tuple(merge) for merge in merges] == expected, (recipe, documents)
        compared += len(merges)
        decided += ties
    return compared, decided


def report(record_property, name, compared, decided):
    record_property("summary", f"{name}: a tie decided {decided:,} of {compared:,} merges")
    assert decided > compared // 20  # else the test shows little about ties


def test_random_documents_and_switches(core, hard, record_property):
    report(record_property, f"random training, {core.__name__[-2:]}", *differential(hard, 1, 150))


@pytest.mark.slow
def test_many_random_documents_and_switches(core, hard, record_property):
    report(record_property, f"much random training, {core.__name__[-2:]}", *differential(hard, 2, 6000))


def test_documents_that_come_a_thousand_times(core, hard):
    """Few merges of high counts: pairs below a floor are not kept, and found when it is lowered."""
    rng = random.Random(19)
    for _ in range(30):
        recipe, documents = random_recipe(rng), random_documents(rng, hard)
        documents = documents[:4] * rng.choice((300, 1000)) + documents
        base, _, _, _, merges, _ = check(recipe, [documents], most := rng.choice((1, 4, 30, EVERYTHING)), threads=(1,))
        assert [tuple(merge) for merge in merges] == brute_force(recipe, documents, base, most)[0], (recipe, documents)


@pytest.mark.slow
@pytest.mark.parametrize("tie", TIES)
def test_more_places_than_are_listed_at_once(best_core, tie):
    """Four million units, whose pairs are found anew a few times."""
    rng = random.Random(20)
    words = {"".join(rng.choices("abcdefgh", k=rng.randint(1, 20))) for _ in range(400_000)}
    check(get_recipe("hf", tie=tie), [[" ".join(sorted(words))]], merges=2000, threads=(1,))


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("unit", ["byte", "character"])
def test_real_text(core, shared, tie, unit, record_property):
    lines = (shared / "corpora/multilingual/udhr2_major_scripts.txt").read_text("utf-8").splitlines(True)
    text = "".join(lines[::60])  # some of every script
    prose = (shared / "corpora/prose/gutenberg_1MB.txt").read_text("utf-8")[:8000]
    recipe = get_recipe("hf", tie=tie, unit=unit)
    base, _, _, _, merges, _ = check(recipe, [[text, prose]], threads=(1,))
    if core.__name__.endswith("v1"):  # the other levels have been compared with the same reference
        expected, ties = brute_force(recipe, [text, prose], base, 60)
        assert [tuple(merge) for merge in merges[:60]] == expected
        report(record_property, f"real text, {unit}s, {tie}", 60, ties)


@pytest.mark.slow
@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("unit", ["byte", "character"])
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", "none"])
def test_much_real_text(core, shared, tie, unit, pattern):
    recipe = get_recipe("hf", tie=tie, unit=unit, pattern=pattern)
    texts = [
        (shared / "corpora" / file).read_text("utf-8")[:1_500_000]
        for file in ("prose/gutenberg_1MB.txt", "wikitext-2/train.txt")
    ]
    texts.append((shared / "corpora/multilingual/udhr2_major_scripts.txt").read_text("utf-8"))
    check(recipe, [texts[:1], texts[1:]], merges=3000, threads=(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [name for name in RECIPES if RECIPES[name].unit == "byte"])
@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_all_merges_of_real_text(core, shared, recipe, pattern):
    text = (shared / "corpora/prose/gutenberg_1MB.txt").read_text("utf-8")
    check(get_recipe(recipe, pattern=pattern), [[text]], threads=(2,))


# What pieces there are


def check_pieces(pattern, batches, threads):
    """Merging until nothing is left shows every piece, as one token each, and where it was first seen."""
    recipe = get_recipe("hf", pattern=pattern, tie="first_seen", min_frequency=1)
    check(recipe, batches, threads=threads)


@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_pieces_of_every_length(core, hard, pattern):
    """Keys hold 15 bytes, with their length: a piece that is another one and zeros is another one."""
    texts = [
        "".join("a" * n + " " for n in range(40)),
        "a\0 a\0\0 a \0 \0\0 " + "\0" * 14 + " " + "\0" * 15 + " " + "\0" * 16,
    ]
    texts += ["x" * n for n in (254, 255, 256, 257)] + ["é" * n + "日" * (8 - n) for n in range(9)]
    texts += list(hard.hostile(40).values())
    check_pieces(pattern, [texts, texts[::-1]], threads=(1, 2))


def test_many_distinct_pieces(best_core):
    """The table doubles, with the pieces in the arena of long ones."""
    rng = random.Random(6)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 30))) for _ in range(30_000)]
    text = " ".join(words)
    fast, reference = FastPieceCounter(get_recipe("hf"), 2), PieceCounter(get_recipe("hf"))
    for counter in (fast, reference):
        counter.add([text])
        counter.add([text[5:]])
    assert fast.distinct() == reference.distinct() > 20_000
    assert fast.characters() == reference.characters()
    arguments = list(ALL_BYTES), Stop(50, 2), None
    assert fast.learn(*arguments) == reference.learn(*arguments)


# Windows and chunks


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_windows_end_anywhere(best_core, hard, pattern):
    """The counter has windows of its own."""
    middle = "".join(hard.snippets)
    size = len(middle.encode())
    filler = "abcdefghijklmn "
    lead = (16 << 10) - size - 60
    recipe = get_recipe("hf", pattern=pattern)
    for offset in range(0, size, 7):
        text = filler * (lead // 15) + "x" * (size + 60 - offset) + middle + filler * 2
        fast, reference = FastPieceCounter(recipe, 1), PieceCounter(recipe)
        for counter in (fast, reference):
            counter.add([text])
        assert fast.distinct() == reference.distinct()
        if offset % 70 == 0:
            arguments = list(ALL_BYTES), Stop(EVERYTHING, 1), None
            assert fast.learn(*arguments) == reference.learn(*arguments)


CHUNK = 1 << 20


@pytest.mark.parametrize("pattern", ["gpt2", pytest.param("llama3", marks=pytest.mark.slow), "o200k"])
def test_chunks_end_anywhere(best_core, pattern):
    """A long text is shared by threads where it is certain to be cut; first occurrences keep their order."""
    rng = random.Random(9)
    words = "".join(rng.choices(["the cat", " sat,", "'s ", "\n\n", "  ", " 1234", "é", "日本 ", "x ", "A"], k=4000))
    block = (words * 60)[: CHUNK - 200]
    texts = {
        "cut often": block * 2 + "zz end zz",
        "cut nowhere": "日本 1" * (CHUNK // 3),
        "cut late": block + "日本 1" * 40_000 + "a b" + block,
        "just a chunk": (block + "y" * 400)[:CHUNK],
        "a chunk and a byte": (block + "y" * 400)[:CHUNK] + " ",
        "spaces after a letter": block + "y" + " " * 300 + "z" * 300 + "\n" * 300 + block,
    }
    recipe = get_recipe("readable", pattern=pattern, tie="first_seen")
    for name, text in texts.items():
        expected = learned_by(PieceCounter(recipe), [[text, "more"]], 40)
        for threads in (1, 3):
            assert learned_by(FastPieceCounter(recipe, threads), [[text, "more"]], 40) == expected, name


def test_documents_come_in_any_batches(best_core, hard):
    rng = random.Random(10)
    documents = [hard.random(rng, rng.randint(0, 400)) for _ in range(60)] + [""] * 3
    recipe = get_recipe("readable")
    expected = learned_by(PieceCounter(recipe), [documents], 200)
    for batches in ([documents], [[document] for document in documents], [[], documents[:7], [], documents[7:], []]):
        for threads in (1, 2, 5):
            assert learned_by(FastPieceCounter(recipe, threads), batches, 200) == expected


def test_mapped_files_count_as_texts_do(core, hard, tmp_path):
    rng = random.Random(12)
    text = hard.random(rng, 50_000)
    (tmp_path / "text").write_text(text, "utf-8", newline="")
    mapped = np.memmap(tmp_path / "text", mode="r")
    arguments = [b"" + byte for byte in ALL_BYTES], False, 100, 2, "lowest_ids", 0, None
    results = []
    for add in (lambda counter: counter.add([text]), lambda counter: counter.add_buffer(mapped)):
        counter = core.Counter("gpt2", 2)
        assert add(counter) is None
        results.append(
            (counter.pieces, counter.bytes, {k: np.asarray(v).tolist() for k, v in counter.train(*arguments).items()})
        )
    assert results[0] == results[1]
    assert core.Counter("gpt2", 1).add_buffer(b"ab\xff") == 2


# Counts beyond the memory limit


def check_limits(recipe, batches, limits, threads, merges=EVERYTHING):
    expected = learned_by(PieceCounter(recipe), batches, merges)
    for limit in limits:
        for count in threads:
            assert learned_by(FastPieceCounter(recipe, count, limit), batches, merges) == expected


def test_counts_that_go_to_files_are_the_same(best_core):
    """A limit of 1 spills at every window: then runs are merged into runs as well, and every piece is in most of them."""
    rng = random.Random(16)
    words = ["".join(rng.choices("abcdé日", k=rng.randint(1, 20))) for _ in range(3000)]
    text = " ".join(rng.choices(words, k=60_000)) + " a\0 a\0\0 " + "x" * 300
    for recipe in (get_recipe("readable"), get_recipe("hf", pattern="gpt2")):
        check_limits(recipe, [[text], [text[7:], "more of it"]], (1, 400_000), (1, 3), merges=60)


def test_few_counts_that_go_to_files(core, hard):
    rng = random.Random(17)
    for recipe in ("hf", "character"):
        for documents in ([], [""], ["a"], ["a b a", "b a b"], [hard.random(rng, 200) for _ in range(9)]):
            check_limits(get_recipe(recipe, min_frequency=1), [documents, documents[1:]], (1, 10**6, 10**30), (1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_many_counts_that_go_to_files(core, hard, shared, pattern):
    rng = random.Random(18)
    texts = [hard.random(rng, 1_000_000), (shared / "corpora/wikitext-2/valid.txt").read_text("utf-8")]
    recipe = get_recipe("readable", pattern=pattern)
    check_limits(recipe, [texts, texts[:1]], (1, 5_000_000), (1, 2), merges=300)


def test_files_that_cannot_be_made(core, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    counter = core.Counter("gpt2", 1, 1)
    text = " ".join(f"word{number}" for number in range(40_000))
    with pytest.raises(FileNotFoundError, match="no temporary file"):
        counter.add([text])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    counter = core.Counter("gpt2", 1, 1)
    counter.add([text])
    assert counter.pieces == 40_002  # word, ␣word, and the numbers
    assert not list(tmp_path.iterdir())


def test_files_and_texts_in_turn(best_core, tmp_path):
    """First occurrences keep the order of the documents, whichever way each is read."""
    texts = ["zz yy", "xx ww", "vv uu", "tt ss"]
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_text(text)
    recipe = get_recipe("readable", pattern="none")
    expected = train_model(texts, 265, recipe)[0]
    assert expected.tokens[256] == b"zz"
    for which in ({1}, {0, 3}, {2, 3}):
        documents = [MappedText(tmp_path / str(n)) if n in which else text for n, text in enumerate(texts)]
        assert train_model(documents, 265, recipe)[0] == expected


# Sizes and numbers


def test_long_documents_of_characters_are_not_quadratic(best_core, hard):
    """Sizes only: 300,000 characters of anything in one piece, and 40 merges that touch most of them."""
    recipe = get_recipe("character", min_frequency=1)
    for name, text in hard.hostile(300_000).items():
        counter = FastPieceCounter(recipe, 2)
        counter.add([text])
        learned = counter.learn(_base_tokens(counter), Stop(40, 1), None)
        assert learned.base_tokens == len(text), name
        assert learned.merges[-1].tokens_after <= len(text), name


def test_a_run_of_one_letter(core):
    """In `aaaa` the pair counts 3 and shortens by 2."""
    for length in (1, 2, 3, 4, 5, 6, 7, 8, 63, 64, 65, 1000, 4097):
        for recipe in ("character", "readable"):
            check(
                get_recipe(recipe, min_frequency=1),
                [["a" * length, "a" * (length // 2), "ba" * (length // 2)]],
                threads=(1,),
            )


@pytest.mark.parametrize("memory_limit", [0, 1 << 17])
@pytest.mark.parametrize("tie", TIES)
def test_counts_have_64_bits(core, tie, memory_limit):
    """Counts of pieces, and sums of them, around what 31, 32 and 53 bits hold."""
    words = {
        "ab": 1 << 31,
        "xab": 1 << 31,
        "cd": (1 << 32) + 1,
        "dcd": 3,
        "efe": 1 << 54,
        "fef": 1,
        "aab": 1 << 33,
        "x": 1 << 60,
    }
    found = []
    for counter in (PieceCounter, lambda recipe: FastPieceCounter(recipe, 2, memory_limit)):
        counting = counter(get_recipe("hf", min_frequency=1, pattern="none", tie=tie))
        for _ in range(3):
            counting.add_counted(list(words), np.array(list(words.values())))
        pieces, counts = counting.counted()
        assert dict(zip(pieces, counts.tolist(), strict=True)) == {word: 3 * count for word, count in words.items()}
        found.append(learned_by(counting, []))
    assert found[0] == found[1]
    assert found[1][4][0].occurrences == (3 << 54) + 3
    assert found[1][3] == 3 * sum(len(word) * count for word, count in words.items())


def test_numbers_beyond_64_bits_are_no_limits(best_core):
    text = ["low lower lowest " * 3]
    plain = train_model(text, 10**6, get_recipe("hf"))[0]
    assert train_model(text, 10**30, get_recipe("hf", max_token_length=10**30))[0] == plain
    assert train_model(text, 300, get_recipe("hf", min_frequency=10**30))[0].merges == ()
    assert train_model(text, 10**6, get_recipe("hf"), threads=10**30, memory_limit=10**30)[0] == plain


@pytest.mark.parametrize("argument", ["threads", "memory_limit"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2"])
def test_numbers_that_cannot_be(argument, value):
    with pytest.raises(TokenizerError, match=f"{argument} is"):
        train_model(["ab"], 300, get_recipe("hf"), **{argument: value})


def test_more_threads_than_there_is_work_for(best_core):
    text = ["low lower lowest " * 3]
    assert train_model(text, 300, get_recipe("hf"), threads=100_000)[0] == train_model(text, 300, get_recipe("hf"))[0]


def test_nothing_to_learn_from(core):
    for recipe in ("hf", "character"):
        for texts in ([], [""], ["a"], ["a", "b"]):
            for batches in ([texts], [], [[], texts]):
                check(get_recipe(recipe), batches, threads=(1, 2))


def test_progress_is_told_and_may_fail(core):
    rng = random.Random(13)
    text = " ".join("".join(rng.choices("abcdefghij", k=7)) for _ in range(3000))
    recipe = get_recipe("hf", min_frequency=1)
    told = []
    counter = FastPieceCounter(recipe, 1)
    counter.add([text])
    learned = counter.learn(_base_tokens(counter), Stop(EVERYTHING, 1), told.append)
    assert told == sorted(told)
    assert told[-1] == len(learned.merges) > 1000
    assert len(told) > 3
    counter = FastPieceCounter(recipe, 1)
    counter.add([text])
    with pytest.raises(ZeroDivisionError):
        counter.learn(_base_tokens(counter), Stop(EVERYTHING, 1), lambda done: done // 0)


# Against `tokenizers`


def hugging_face_merges(documents, merges, min_frequency):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + merges,
        min_frequency=min_frequency,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    vocab = tokenizer.get_vocab()
    pairs = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(vocab[left], vocab[right]) for left, right in pairs]


def check_hugging_face(documents, merges, min_frequency):
    counter = FastPieceCounter(get_recipe("hf"), 2)
    counter.add(documents)
    learned = counter.learn(list(BYTES_BY_CHARACTER), Stop(merges, min_frequency), None)
    assert [(merge.left, merge.right) for merge in learned.merges] == hugging_face_merges(
        documents, merges, min_frequency
    )


def test_hugging_faces_merges(core, hard):
    rng = random.Random(14)
    for merges in (50, 1000):
        for min_frequency in (2, 5):
            check_hugging_face([hard.random(rng, rng.randint(1, 300)) for _ in range(100)], merges, min_frequency)


@pytest.mark.slow
def test_hugging_faces_merges_of_much_text(core, hard, shared):
    rng = random.Random(15)
    documents = (shared / "corpora/prose/gutenberg_1MB.txt").read_text("utf-8").split("\n\n")
    check_hugging_face(documents, 30_000, 2)
    documents = (shared / "corpora/multilingual/udhr2_major_scripts.txt").read_text("utf-8").split("\n\n")
    check_hugging_face(documents, 30_000, 2)
    check_hugging_face([hard.random(rng, 2000) for _ in range(1000)], 20_000, 2)
