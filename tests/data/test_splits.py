import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigpt_tok.data.splits import HashSplit, canonical_split
from minigpt_tok.errors import CorpusError


@pytest.mark.parametrize("name", ["validation", "val", "valid", "dev", "Valid"])
def test_names_that_mean_validation(name):
    assert canonical_split(name) == "validation"


def test_other_names_mean_no_split():
    assert canonical_split("unsupervised") is None


@given(st.text(max_size=30), st.text(max_size=5))
def test_every_text_has_one_split_that_depends_on_it_alone(text, salt):
    assert HashSplit(salt)(text) == HashSplit(salt)(str(text)) in ("train", "validation", "test")


def test_the_division_is_fixed_forever():
    # Pinned: a change here moves documents between the splits of every user's corpus.
    texts = [f"document {n}" for n in range(2000)]
    assign = HashSplit()
    assert [n for n, text in enumerate(texts) if assign(text) == "test"][:6] == [12, 33, 36, 45, 76, 121]
    counts = Counter(map(assign, texts))
    for split, share in (("train", 0.9), ("validation", 0.05), ("test", 0.05)):
        spread = math.sqrt(2000 * share * (1 - share))
        assert abs(counts[split] - 2000 * share) < 4 * spread


def test_another_salt_divides_otherwise():
    texts = [f"document {n}" for n in range(500)]
    assert list(map(HashSplit("a"), texts)) != list(map(HashSplit("b"), texts))


def test_a_share_of_zero_leaves_the_split_out():
    assign = HashSplit(fractions={"train": 0.5, "validation": 0.5, "test": 0.0})
    assert assign.splits == ("train", "validation")
    assert {assign(str(n)) for n in range(200)} == {"train", "validation"}


@pytest.mark.parametrize(
    "fractions", [{"train": 0.9}, {"train": 1.5, "test": -0.5}, {"train": 0.5, "dev": 0.5}, {"test": 1.0}, {}]
)
def test_shares_that_make_no_division_are_refused(fractions):
    with pytest.raises(CorpusError, match="fractions"):
        HashSplit(fractions=fractions)
