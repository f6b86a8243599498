"""What has no bits per byte: ids, models and options that do not belong together are refused, never scored wrong."""

import copy
import math

import numpy as np
import pytest
import torch
from measure.toy_models import END, STORIES, Uniform, WholeContext

from minigpt_tok.errors import DataError, ModelError, TokenizerMismatchError
from minigpt_tok.measure.bits_per_byte import bits_per_byte


def test_ids_of_another_tokenizer_are_refused(encoded, byte_level):
    tokenizer, other = byte_level(), byte_level(END)
    with pytest.raises(TokenizerMismatchError, match=f"(?s){tokenizer.fingerprint}.*{other.fingerprint}"):
        bits_per_byte(Uniform(257), encoded(STORIES, tokenizer), other, block_size=8)


def test_model_of_another_vocabulary_is_refused(encoded, byte_level):
    tokenizer = byte_level()
    split = encoded(STORIES, tokenizer)
    with pytest.raises(TokenizerMismatchError, match="300 ids"):
        bits_per_byte(WholeContext(300, 8), split, tokenizer)
    with pytest.raises(ModelError, match=r"\(8, 8, 200\)"):
        bits_per_byte(Uniform(200), split, tokenizer, block_size=8)


def test_bytes_that_the_tokens_lack_are_an_error_not_a_better_score(encoded, byte_level):
    tokenizer = byte_level()
    split = copy.deepcopy(encoded(STORIES, tokenizer))
    split.document_bytes[3] += 1
    with pytest.raises(DataError, match="document 3 has"):
        bits_per_byte(Uniform(256), split, tokenizer, block_size=8)


def test_bytes_moved_between_documents_are_noticed_although_the_sum_is_right(encoded, byte_level):
    tokenizer = byte_level()
    split = copy.deepcopy(encoded(STORIES, tokenizer))
    split.document_ends[3] += 1
    with pytest.raises(DataError, match="document 3 has"):
        bits_per_byte(Uniform(256), split, tokenizer, block_size=8)


def test_ids_outside_the_vocabulary_and_ids_without_a_document(encoded, byte_level):
    tokenizer = byte_level()
    split = copy.deepcopy(encoded(STORIES, tokenizer))
    split.ids[4] = 256
    with pytest.raises(DataError, match="id 256 is outside"):
        bits_per_byte(Uniform(256), split, tokenizer, block_size=8)
    split = copy.deepcopy(encoded(STORIES, tokenizer))
    split.ids = np.append(split.ids, split.ids[:1])
    with pytest.raises(DataError, match="the ids at"):
        bits_per_byte(Uniform(256), split, tokenizer, block_size=8)


def test_nothing_to_score_is_an_error(encoded, byte_level):
    tokenizer = byte_level(END)
    for split in (encoded([], tokenizer), encoded([""], tokenizer), encoded([""], tokenizer, END)):
        with pytest.raises(DataError, match="no text"):
            bits_per_byte(Uniform(257), split, tokenizer, block_size=8)


def test_logits_that_are_no_numbers_are_named(encoded, characters_of):
    tokenizer = characters_of("ab")

    def broken(ids: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, 2)
        logits[:, 3] = torch.nan
        return logits

    with pytest.raises(ModelError, match="token 4 of fake, validation"):
        bits_per_byte(broken, encoded(["abababab"], tokenizer), tokenizer, block_size=4)


def test_impossible_text_costs_infinitely_much(encoded, characters_of):
    tokenizer = characters_of("ab")
    score = bits_per_byte(
        lambda ids: torch.tensor([0.0, -torch.inf]).expand(*ids.shape, 2),
        encoded(["ab"], tokenizer),
        tokenizer,
        block_size=4,
    )
    assert score.bits_per_byte == math.inf


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"context": "window"}, DataError, "'sliding' or 'blocks'"),
        ({"context": "blocks", "stride": 3}, DataError, "side by side"),
        ({"stride": 0}, DataError, "stride is 0"),
        ({"stride": 13}, DataError, "stride is 13"),
        ({"batch_size": 0}, DataError, "batch_size"),
        ({"block_size": 13}, ModelError, "block_size is 13"),
        ({"block_size": 0}, ModelError, "block_size is 0"),
        ({"part": (2, 2)}, DataError, "part is"),
    ],
)
def test_options_that_make_no_sense_are_named(encoded, byte_level, options, error, message):
    tokenizer = byte_level()
    with pytest.raises(error, match=message):
        bits_per_byte(WholeContext(256, 12), encoded(STORIES, tokenizer), tokenizer, **options)


def test_model_without_a_block_size_needs_one(encoded, byte_level):
    tokenizer = byte_level()
    with pytest.raises(ModelError, match="give block_size"):
        bits_per_byte(Uniform(256), encoded(STORIES, tokenizer), tokenizer)
