import json
import math

import numpy as np
import pytest

from minigpt_tok.measure.compression import (
    attention_flops_per_byte,
    count_words,
    embedding_parameters,
    embedding_share,
    measure_compression,
    renyi_efficiency,
    training_flops_per_byte,
)

END = "<|endoftext|>"


def test_embedding_parameters():
    assert embedding_parameters(500, 128) == 64_000
    assert embedding_parameters(8_000, 128) == 1_024_000
    assert embedding_parameters(8_000, 128, tied=False) == 2_048_000


@pytest.mark.parametrize(("body", "more"), [(62.9e6, 9), (100.7e6, 4)])
def test_32k_costs_more_per_byte_than_16k(body: float, more: int):
    large = training_flops_per_byte(32_768, 768, int(body), 4.61)
    small = training_flops_per_byte(16_384, 768, int(body), 4.32)
    assert round(100 * (large / small - 1)) == more


@pytest.mark.parametrize(
    ("vocab_size", "body", "percent"), [(32_768, 62.9e6, 28.6), (32_768, 100.7e6, 20.0), (65_536, 62.9e6, 44)]
)
def test_share_of_the_embedding(vocab_size: int, body: float, percent: float):
    digits = len(str(percent).partition(".")[2])
    assert round(100 * embedding_share(vocab_size, 768, int(body)), digits) == percent


def test_share_of_untied_rows_counts_the_head_too():
    assert embedding_share(10, 10, 100) == 0.5
    assert embedding_share(10, 10, 100, tied=False) == pytest.approx(2 / 3)


def test_attention_costs_less_per_byte_where_tokens_hold_more():
    assert attention_flops_per_byte(4, 128, 128, 1.0) == 12 * 4 * 128 * 128
    assert attention_flops_per_byte(4, 128, 128, 4.0) == 3 * 4 * 128 * 128


def test_words_are_what_white_space_separates():
    assert count_words("  two\twords\u3000\n") == 2
    assert count_words("one\x1cword") == 1  # U+001C is no white space, whatever str.split says
    assert count_words("") == 0
    every_space = [*map(chr, range(9, 14)), " ", "\x85", "\xa0", "\u1680", *map(chr, range(0x2000, 0x200B))]
    every_space += ["\u2028", "\u2029", "\u202f", "\u205f", "\u3000"]
    assert len(every_space) == 25
    assert count_words("x".join(every_space)) == 24


def test_renyi_efficiency():
    assert renyi_efficiency(np.array([7, 7, 7, 7]), 4) == pytest.approx(1)
    assert renyi_efficiency(np.array([7, 7, 0, 0]), 4) == pytest.approx(0.5)
    assert renyi_efficiency(np.array([9, 0, 0, 0]), 4) == pytest.approx(0)
    p = np.array([0.5, 0.3, 0.2])
    assert renyi_efficiency(np.array([5, 3, 2]), 8) == pytest.approx(math.log2((p**2.5).sum()) / -1.5 / 3)


def test_renyi_efficiency_of_nothing_is_no_number():
    assert math.isnan(renyi_efficiency(np.zeros(4, dtype=np.int64), 4))
    assert math.isnan(renyi_efficiency(np.array([3]), 1))


def test_a_split_is_measured_without_its_separators(encoded, byte_level):
    texts = ["ab ab ab ab", "日本 naïve\n", ""]
    tokenizer = byte_level(END, merges=2, text="ab ab ab ab")
    found = measure_compression(encoded(texts, tokenizer, END), tokenizer)
    assert found.tokens == sum(len(tokenizer.encode(text)) for text in texts)
    assert found.bytes == sum(len(text.encode()) for text in texts)
    assert found.characters == sum(map(len, texts))
    assert (found.words, found.documents, found.vocab_size) == (6, 3, 259)
    assert found.bytes_per_token == found.bytes / found.tokens
    assert found.tokens_per_word == found.tokens / 6
    assert found == measure_compression(encoded(texts, tokenizer), tokenizer)
    json.dumps(found.to_plain())


def test_factor_and_reduction_are_against_characters(encoded, byte_level):
    tokenizer = byte_level(merges=1, text="abab")
    found = measure_compression(encoded(["abababab"], tokenizer), tokenizer)
    assert (found.factor, found.reduction_percent) == (2.0, 50.0)
