"""The difference of two models in bits per byte, document by document."""

import pytest
from measure.toy_models import STORIES, Uniform, Unigram

from minigpt_tok.errors import DataError
from minigpt_tok.measure.bits_per_byte import bits_per_byte, paired_difference


def test_paired_difference_of_a_model_with_itself_is_nothing(encoded, byte_level):
    tokenizer = byte_level()
    score = bits_per_byte(Unigram(256), encoded(STORIES, tokenizer), tokenizer, block_size=8)
    same = paired_difference(score, score)
    assert (same.difference, same.interval.low, same.interval.high) == (0, 0, 0)
    assert not same.is_shown


def test_paired_difference_across_tokenizers(encoded, byte_level, characters_of):
    raw, characters = byte_level(), characters_of(*STORIES)
    a = bits_per_byte(Uniform(256), encoded(STORIES, raw), raw, block_size=8)
    b = bits_per_byte(Uniform(characters.vocab_size), encoded(STORIES, characters), characters, block_size=8)
    found = paired_difference(a, b)
    assert found.difference == pytest.approx(a.bits_per_byte - b.bits_per_byte)
    assert found.interval.low < found.difference < found.interval.high
    assert found.is_shown
    several = paired_difference([a, a], [b, b, b])
    assert several.difference == pytest.approx(found.difference)
    assert several.seeds == (2, 3)


@pytest.mark.parametrize("others", [STORIES[::-1], [story.swapcase() for story in STORIES], STORIES[:-1]])
def test_paired_difference_of_other_documents_is_refused(encoded, byte_level, others):
    tokenizer = byte_level()
    a, b = (
        bits_per_byte(Uniform(256), encoded(texts, tokenizer), tokenizer, block_size=8) for texts in (STORIES, others)
    )
    with pytest.raises(DataError, match="same ones, in the same order"):
        paired_difference(a, b)
