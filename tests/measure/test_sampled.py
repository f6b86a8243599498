import numpy as np
import pytest

from minigpt_tok.errors import DataError
from minigpt_tok.measure.sampled import sampled
from minigpt_tok.measure.token_text import read_split_text

END = "<|endoftext|>"
TEXTS = [f"document {number} " * (1 + number % 5) for number in range(100)]
SIZES = [len(text) for text in TEXTS]


def test_split_that_is_small_enough_is_the_sample(encoded, byte_level):
    tokenizer = byte_level()
    split = encoded(TEXTS, tokenizer)
    assert sampled(split, sum(SIZES)) is split


@pytest.mark.parametrize("max_bytes", [40, 500, 2000, sum(SIZES) - 1])
@pytest.mark.parametrize("separator", [None, END])
def test_sample_is_whole_documents_within_the_limit(encoded, byte_level, max_bytes, separator):
    tokenizer = byte_level(END, merges=5, text=TEXTS[0])
    found = sampled(encoded(TEXTS, tokenizer, separator), max_bytes)
    expected = encoded([TEXTS[number] for number in found.chosen], tokenizer, separator)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.ids.dtype == expected.ids.dtype
    assert found.document_ends.tolist() == expected.document_ends.tolist()
    assert found.document_bytes.tolist() == expected.document_bytes.tolist()
    assert max_bytes - max(SIZES) < found.document_bytes.sum() <= max_bytes
    text = read_split_text(found, tokenizer)
    assert found.metadata.n_tokens == text.tokens + text.special_tokens == len(found.ids)
    assert (found.metadata.n_bytes, found.metadata.n_documents) == (text.bytes, len(found.chosen))


def test_documents_are_taken_evenly_and_in_order(encoded, byte_level):
    found = sampled(encoded(["x" * 10] * 1000, byte_level()), 1000)
    assert len(found.chosen) == 100
    gaps = np.diff(found.chosen)
    assert gaps.min() >= 5
    assert gaps.max() <= 21


def test_small_documents_are_not_preferred(encoded, byte_level):
    found = sampled(encoded(["x", "x" * 1000] * 50, byte_level()), 5_500)
    assert found.document_bytes.tolist().count(1) <= 10
    sizes = np.random.default_rng(0).integers(1, 200, size=2000)
    found = sampled(encoded(["x" * size for size in sizes], byte_level()), 20_000)
    assert found.document_bytes.mean() == pytest.approx(sizes.mean(), rel=0.15)


def test_same_documents_for_every_tokenizer(encoded, byte_level, characters_of):
    one, other = byte_level(END), characters_of(*TEXTS)
    a = sampled(encoded(TEXTS, one, END), 700)
    b = sampled(encoded(TEXTS, other), 700)
    assert a.chosen.tolist() == b.chosen.tolist()
    assert a.metadata.text_sha256 == b.metadata.text_sha256
    assert a.metadata.text_sha256 != encoded(TEXTS, one, END).metadata.text_sha256
    assert a.metadata.text_sha256 != sampled(encoded(TEXTS, one, END), 600).metadata.text_sha256


def test_documents_that_are_all_too_large_are_an_error(encoded, byte_level):
    split = encoded(["x" * 30, "", "y" * 20], byte_level())
    with pytest.raises(DataError, match="smallest document has 20 bytes"):
        sampled(split, 19)
    assert sampled(split, 25).document_bytes.sum() == 20
