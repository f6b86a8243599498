"""The readable trainer's own calls."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import CHAT_TOKENS, get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.compat.readable import PATTERN, BPETokenizer, merge, pair_counts, train_bpe
from minigpt_tok.errors import CorpusError, TokenizerError
from minigpt_tok.tokenizer import Tokenizer

SENTENCE = "the cat sat on the mat. the cat ate the rat."


def test_merges_and_vocabulary_of_the_sentence():
    merges, vocab = train_bpe([SENTENCE], 6)
    assert list(merges.values()) == [256, 257, 258, 259, 260, 261]
    assert [vocab[id] for id in range(256, 262)] == [b"at", b"th", b"the", b" the", b" c", b" cat"]
    assert list(merges)[:2] == [(97, 116), (116, 104)]
    assert vocab[65] == b"A"
    assert len(vocab) == 262


def test_one_text_is_a_list_of_one():
    assert train_bpe(SENTENCE, 6) == train_bpe([SENTENCE], 6)


def test_it_stops_where_no_pair_is_left():
    merges, vocab = train_bpe(["ab"], 100)
    assert merges == {(97, 98): 256}
    assert len(vocab) == 257
    assert train_bpe(["ab"], 0) == ({}, {id: bytes([id]) for id in range(256)})


def test_verbose_prints_every_merge(capsys):
    train_bpe([SENTENCE], 2)
    assert capsys.readouterr().out == ""
    train_bpe([SENTENCE], 2, verbose=True)
    assert capsys.readouterr().out == (
        "merge 1: (97, 116) -> 256 'at', 6 times\nmerge 2: (116, 104) -> 257 'th', 4 times\n"
    )


def test_bad_arguments():
    with pytest.raises(TokenizerError, match="n_merges is -1"):
        train_bpe(["ab"], -1)
    with pytest.raises(CorpusError, match="nothing to train on"):
        train_bpe([], 5)
    with pytest.raises(TokenizerError, match="vocab_size is 263"):
        BPETokenizer().train(["ab"], 263)


def naive(texts, n_merges):
    """Counts over again for every merge; the first of equal counts, as `max` takes it."""
    pieces = [list(piece.encode()) for text in texts for piece in get_pretokenizer("digits1").pieces(text)]
    merges = {}
    for new_id in range(256, 256 + n_merges):
        counts = pair_counts(pieces)
        if not counts:
            break
        best = max(counts, key=counts.get)
        merges[best] = new_id
        pieces = [merge(piece, best, new_id) for piece in pieces]
    return merges


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab c1é'", max_size=30), min_size=1, max_size=4).filter(any), st.integers(0, 25))
def test_merges_are_those_of_its_own_functions(texts, n_merges):
    assert train_bpe(texts, n_merges)[0] == naive(texts, n_merges)


def test_pair_counts():
    assert pair_counts([1, 2, 1, 2]) == {(1, 2): 2, (2, 1): 1}
    assert list(pair_counts([3, 1, 2])) == [(3, 1), (1, 2)]
    assert pair_counts([1, 1, 1]) == {(1, 1): 2}
    assert pair_counts([[1, 2], [1, 2], [3]]) == {(1, 2): 2}
    assert pair_counts({(1, 2, 3): 5, (2, 3): 1}) == {(1, 2): 5, (2, 3): 6}
    assert pair_counts(b"aa") == {(97, 97): 1}
    assert pair_counts([b"ab", b"ab"]) == {(97, 98): 2}
    assert pair_counts([]) == Counter()


def test_merge():
    assert merge([1, 1, 1], (1, 1), 9) == [9, 1]
    assert merge([1, 1, 1, 1], (1, 1), 9) == [9, 9]
    assert merge([1, 2, 3, 1, 2], (1, 2), 9) == [9, 3, 9]
    assert merge((2, 1), (1, 2), 9) == [2, 1]
    assert merge([], (1, 2), 9) == []


def test_the_pattern_is_the_published_expression():
    assert get_pretokenizer(PATTERN).name == "digits1"


def test_specials_are_eight_and_last():
    tokenizer = BPETokenizer().train([SENTENCE], 256 + 6 + 8)
    assert list(tokenizer.special_tokens) == list(CHAT_TOKENS)
    assert list(tokenizer.special_tokens.values()) == list(range(262, 270))
    assert tokenizer.vocab_size == 270
    assert tokenizer.vocab[262] == b"<|endoftext|>"
    assert list(tokenizer.merges.values()) == list(range(256, 262))
    ids = tokenizer.encode("the cat ate the hat.<|endoftext|>")
    assert ids == [258, 261, 32, 256, 101, 259, 32, 104, 256, 46, 262]
    assert tokenizer.decode(ids) == "the cat ate the hat.<|endoftext|>"


def test_other_specials_and_none():
    assert BPETokenizer(["<s>"]).train(["ab"], 258).special_tokens == {"<s>": 257}
    assert BPETokenizer([]).train(["ab"], 257).special_tokens == {}


def test_training_prints_only_when_asked(capsys):
    BPETokenizer().train([SENTENCE], 270)
    assert capsys.readouterr().out == ""
    BPETokenizer().train([SENTENCE], 270, verbose=True)
    assert capsys.readouterr().out.count("\n") == 6


def test_before_training_there_is_nothing():
    with pytest.raises(TokenizerError, match="not trained"):
        BPETokenizer().encode("text")


def test_replaying_merges_in_order_gives_the_same_ids():
    tokenizer = BPETokenizer().train([SENTENCE * 3, "it's 1234"], 300)
    for text in (SENTENCE, "the hat's 12 cats  \n", "é日本"):
        ids = []
        for piece in get_pretokenizer(PATTERN).pieces(text):
            part = list(piece.encode())
            for pair, new_id in tokenizer.merges.items():
                part = merge(part, pair, new_id)
            ids += part
        assert tokenizer.encode(text) == ids


def test_the_production_layout_and_back():
    """8 specials, 256 bytes, then merges: of 32,768 ids, 32,504 are merges."""
    assert 32_768 - 8 - 256 == 32_504
    recipe = get_recipe("readable", id_order="specials_first")
    production = Tokenizer(*train_model([SENTENCE], 270, recipe, CHAT_TOKENS))
    readable = BPETokenizer().train([SENTENCE], 270)
    assert readable.production_layout() == production
    assert BPETokenizer.from_tokenizer(production).tokenizer == readable.tokenizer
    assert production.special_tokens["<|endoftext|>"] == 0
    assert production.merges == readable.tokenizer.merges
    assert production.fingerprint != readable.tokenizer.fingerprint
    text = "the cat<|endoftext|>"
    assert production.decode(production.encode(text, allowed_special="all")) == text
    assert [production.token_bytes(id) for id in production.encode(text, allowed_special="all")] == [
        readable.vocab[id] for id in readable.encode(text)
    ]
