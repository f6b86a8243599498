"""`Texts` is a sequence of bytes like a list, and encodes as one."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe import fast
from minigpt_tok.bpe.texts import Texts, grouped
from minigpt_tok.errors import TokenizerError

LISTS = st.lists(st.text(max_size=5).map(str.encode), max_size=12)


@pytest.fixture
def tokenizer(core_or_pure):
    return train_tokenizer(["the cat sat on the mat"] * 3, vocab_size=270, special_tokens=["<|endoftext|>"])


@given(LISTS, st.data())
def test_it_is_the_list(texts, data):
    these = Texts.of(texts)
    assert list(these) == texts
    assert [these[at] for at in range(-len(texts), len(texts))] == texts + texts
    first, last = data.draw(st.integers(-14, 14)), data.draw(st.integers(-14, 14))
    part = these[first:last]
    assert list(part) == texts[first:last]
    assert part.n_bytes == sum(map(len, texts[first:last]))
    assert list(Texts.together([part, these, part])) == [*texts[first:last], *texts, *texts[first:last]]
    assert list(pickle.loads(pickle.dumps(part))) == texts[first:last]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), dtype=bool)
    assert list(these.chosen(mask)) == [text for text, chosen in zip(texts, mask, strict=True) if chosen]


@pytest.mark.parametrize("at", [2, -3])
def test_there_is_nothing_beside_it(at):
    with pytest.raises(IndexError):
        Texts.of([b"a", b"b"])[at]


@given(LISTS, st.integers(1, 20))
def test_groups_hold_so_many_bytes(texts, n_bytes):
    groups = list(grouped(iter(texts), n_bytes))
    assert [text for group in groups for text in group] == texts
    assert all(group.n_bytes >= n_bytes > group[:-1].n_bytes for group in groups[:-1])


@pytest.mark.parametrize("are_utf8", [False, True])
def test_it_encodes_as_the_list(tokenizer, are_utf8):
    raws = ["the cat", "", "naïve 日本語", "<|endoftext|> is text"]
    texts = Texts.of([text.encode("utf-8") for text in raws])
    for these in (Texts(texts.joined, texts.sizes, are_utf8=are_utf8), texts[1:], texts[:0]):
        for separator in (None, tokenizer.special_tokens["<|endoftext|>"]):
            found = tokenizer.encode_batch_to_numpy(these, separator_id=separator)
            expected = tokenizer.encode_batch_to_numpy(list(these), separator_id=separator)
            assert found.ids.tolist() == expected.ids.tolist()
            assert found.offsets.tolist() == expected.offsets.tolist()


def test_which_text_is_no_text(tokenizer):
    # Each is seen by itself: two halves of a character beside each other are none.
    with pytest.raises(TokenizerError, match=r"texts\[1\].*byte 1"):
        tokenizer.encode_batch_to_numpy(Texts.of([b"a", b"b\xc3", b"\xa9"]))


def test_sizes_beyond_the_memory_are_refused():
    if fast.core is None:
        pytest.skip("there is no core")
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 3, vocab_size=270)
    for sizes in ([3, 1], [-1, 2], [1 << 62, 1 << 62]):
        with pytest.raises(IndexError, match="do not fit"):
            tokenizer.encode_batch_to_numpy(Texts(b"abc", np.array(sizes, dtype=np.int64)))
