"""`encode_batch_to_numpy` on texts that are UTF-8 already, and with a separator after each; with the core and without."""

import dataclasses

import numpy as np
import pytest

from minigpt_tok import train_tokenizer
from minigpt_tok.errors import TokenizerError
from minigpt_tok.tokenizer import Tokenizer

TEXTS = ["", "the cat's sat", "naïve 日本語 \U0001f600\n\n", "<|endoftext|> is text", "a" * 3000]


@pytest.fixture
def tokenizer(core_or_pure):
    texts = ["the cat sat on the mat, the naïve cat"] * 3
    return train_tokenizer(texts, vocab_size=270, special_tokens=["<|endoftext|>"])


def flat(tokenizer, texts, **options):
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, **options)
    assert ids.dtype == tokenizer.dtype
    assert offsets.dtype == np.int64
    return ids.tolist(), offsets.tolist()


@pytest.mark.parametrize("special", [(), "all"])
def test_bytes_give_the_ids_of_their_text(tokenizer, special):
    raws = [text.encode("utf-8") for text in TEXTS]
    assert flat(tokenizer, raws, allowed_special=special) == flat(tokenizer, TEXTS, allowed_special=special)
    assert flat(tokenizer, []) == ([], [0])


def test_a_separator_follows_each_text(tokenizer):
    end = tokenizer.special_tokens["<|endoftext|>"]
    each = [[*tokenizer.encode(text), end] for text in TEXTS]
    expected = [id for ids in each for id in ids], np.cumsum([0, *map(len, each)]).tolist()
    for texts in (TEXTS, [text.encode("utf-8") for text in TEXTS]):
        for special in (True, False):  # this tokenizer's file asks for nothing around a text
            assert flat(tokenizer, texts, separator_id=end, add_special_tokens=special) == expected
    assert flat(tokenizer, [], separator_id=end) == ([], [0])


@pytest.mark.parametrize("id", [-1, 270, 70_000])
def test_a_separator_outside_the_vocabulary(tokenizer, id):
    with pytest.raises(TokenizerError, match=rf"separator_id is {id}"):
        tokenizer.encode_batch_to_numpy(["a"], separator_id=id)


@pytest.mark.parametrize("thing", [1.0, "1", b"1", [1]])
def test_a_separator_that_is_no_id(tokenizer, thing):
    with pytest.raises(TokenizerError, match=r"^separator_id is .*; it must be an integer, or None for no separator$"):
        tokenizer.encode_batch_to_numpy(["a"], separator_id=thing)


def test_a_separator_in_a_hole(tokenizer):
    tokens = (*tokenizer.model.tokens, None, b"an end")
    holed = Tokenizer(dataclasses.replace(tokenizer.model, tokens=tokens))
    with pytest.raises(TokenizerError, match="separator_id is 270, which is a hole in the vocabulary"):
        holed.encode_batch_to_numpy(["a"], separator_id=270)
    assert flat(holed, ["a"], separator_id=271)[0][-1] == 271


@pytest.mark.parametrize(
    ("bad", "place"),
    [(b"ab\xff", 2), (b"\xc3", 0), (b"a\xed\xa0\x80", 1), (b"a\xe2\x82", 1), (b"\xf4\x90\x80\x80", 0)],
)
@pytest.mark.parametrize("options", [{}, {"allowed_special": "all"}, {"disallowed_special": "all"}])
def test_bytes_that_are_no_text_are_said_with_their_place(tokenizer, bad, place, options):
    with pytest.raises(TokenizerError, match=rf"^texts\[1\]: the text is not UTF-8 at byte {place}$"):
        tokenizer.encode_batch_to_numpy([b"good", bad, b"good"], **options)


@pytest.mark.parametrize("texts", [[b"a", b"x<|endoftext|>"], ["a", "x<|endoftext|>"]])
def test_a_special_token_that_is_not_allowed_is_said_with_its_text(tokenizer, texts):
    said = r"^texts\[1\]: the text has the special token '<\|endoftext\|>' at character 1"
    with pytest.raises(TokenizerError, match=said):
        tokenizer.encode_batch_to_numpy(texts, disallowed_special="all")
    with pytest.raises(
        TokenizerError, match=said if isinstance(texts[0], str) else r"^texts\[1\]: |^texts\[0\] is bytes"
    ):
        tokenizer.encode_batch(texts, disallowed_special="all")
    with pytest.raises(TokenizerError, match=r"^disallowed_special is the string 'some'"):
        tokenizer.encode_batch_to_numpy(texts, disallowed_special="some")


@pytest.mark.parametrize("thing", [None, 5, bytearray(b"a")])
@pytest.mark.parametrize("disallowed", [(), "all"])
def test_what_is_neither(tokenizer, thing, disallowed):
    with pytest.raises(TokenizerError, match=rf"^texts\[1\] is {type(thing).__name__}, not str"):
        tokenizer.encode_batch_to_numpy(["a", thing], disallowed_special=disallowed)
