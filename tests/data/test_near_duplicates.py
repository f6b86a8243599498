import random

import pytest

from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.data.leakage import Overlap
from minigpt_tok.data.near_duplicates import find_near_duplicates
from minigpt_tok.errors import CorpusError

pytest.importorskip("datasketch", reason="needs datasketch (extra near)")

WORDS = [
    "the",
    "of",
    "and",
    "in",
    "to",
    "was",
    "is",
    "for",
    "on",
    "as",
    "by",
    "with",
    "that",
    "from",
    "at",
    "his",
    "it",
]


def text(seed, length=300):
    dice = random.Random(seed)
    return " ".join(dice.choice(WORDS) + str(dice.randrange(50)) for _ in range(length))


def edited(original, changes):
    words = original.split()
    for n in range(changes):
        words[(n + 1) * len(words) // (changes + 1)] = "changed"
    return " ".join(words)


def true_share(a, b):
    def fives(words):
        return {tuple(words[n : n + 5]) for n in range(len(words) - 4)}

    a, b = fives(a.split()), fives(b.split())
    return len(a & b) / len(a | b)


def test_near_copies_are_found_and_others_are_not():
    train = [text(n) for n in range(100)]
    near = edited(train[3], 2)
    far = edited(train[4], 60)
    assert true_share(train[3], near) > 0.9
    assert true_share(train[4], far) < 0.2
    punctuated = train[5].upper().replace(" ", ",\n ")
    validation = [near, far, text(1000), punctuated]
    found = find_near_duplicates(open_corpus({"train": train, "validation": validation, "test": [train[7], near]}))
    size = len(near.encode()) + len(punctuated.encode())
    assert found.between["train", "validation"] == Overlap(2, size)
    assert found.between["train", "test"] == Overlap(2, len(train[7]) + len(near))
    assert found.between["validation", "test"] == Overlap(1, len(near))
    assert found.found
    beginning, other, share = found.examples["train", "validation"][0]
    assert beginning == other == near[:80]
    assert share > 0.8


def test_shares_are_estimated_about_right():
    originals = [text(n) for n in range(40)]
    for changes, threshold in ((2, 0.8), (5, 0.7)):
        copies = [edited(original, changes) for original in originals]
        assert true_share(originals[0], copies[0]) > threshold + 0.05
        found = find_near_duplicates(open_corpus({"train": originals, "test": copies}), threshold)
        assert found.between["train", "test"].documents >= 36


def test_short_and_wordless_texts():
    found = find_near_duplicates(
        open_corpus({"train": ["hello world", "?!"], "test": ["Hello, world!", "?!", "other"]})
    )
    assert found.between["train", "test"].documents == 2


def test_nothing_found_and_thresholds():
    corpus = open_corpus({"train": [text(1)], "test": [text(2)]})
    assert not find_near_duplicates(corpus).found
    for wrong in (0, 1.5, -1):
        with pytest.raises(CorpusError, match="threshold"):
            find_near_duplicates(corpus, wrong)
