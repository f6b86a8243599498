"""Tokenizers from tokenizers: fewer merges, other ids, more specials."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.encoder import Encoder
from minigpt_tok.bpe.model import ALL_BYTES, BPEModel
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.renumber import truncated, with_id_order, with_special_tokens
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.errors import TokenizerError

TEXT = ["the cat sat on the mat. the cat ate the rat", "it's 1234 o'clock", "<s>日本 café"] * 2
ORDERS = {"hf": "specials_first", "cs336": "bytes_first", "readable": "specials_last"}


@pytest.mark.parametrize("recipe", ORDERS)
@pytest.mark.parametrize("target", ORDERS)
def test_every_order_of_ids_leads_to_every_other(recipe, target):
    """Renumbering gives what training with that order gives (where ties do not look at ids)."""
    options = {"tie": "first_seen", "pattern": "gpt2", "min_frequency": 2}
    model, _ = train_model(TEXT, 290, get_recipe(recipe, **options), ("<s>", "<t>"))
    direct, _ = train_model(TEXT, 290, get_recipe(target, **options), ("<s>", "<t>"))
    assert with_id_order(model, ORDERS[target]) == direct


@pytest.mark.parametrize("order", ORDERS.values())
@settings(max_examples=30, deadline=None)
@given(text=st.text("the cat<s> 日本12'", max_size=40))
def test_pieces_stay_the_same_under_other_ids(order, text):
    model, _ = train_model(TEXT, 290, get_recipe("hf"), ("<s>",))
    other = with_id_order(model, order)

    def pieces(model):
        ids = Encoder(model).encode(text, allowed_special="all")
        return [model.tokens[id] for id in ids]

    assert pieces(other) == pieces(model)


def test_characters_have_one_order():
    model, _ = train_model(["low lower lowest"], 20, get_recipe("character"))
    assert with_id_order(model, "characters") == model


@pytest.mark.parametrize(
    ("recipe", "order", "named"),
    [
        ("hf", "characters", "'characters', which a tokenizer of bytes"),
        ("character", "specials_last", "'specials_last', which a tokenizer of characters"),
        ("hf", "sideways", "order is 'sideways'"),
    ],
)
def test_an_order_that_cannot_be_is_refused(recipe, order, named):
    model, _ = train_model(["low lower"], 270, get_recipe(recipe))
    with pytest.raises(TokenizerError, match=named):
        with_id_order(model, order)


def test_specials_that_come_last_move_to_the_end_of_the_smaller_one():
    model, _ = train_model(TEXT, 290, get_recipe("readable"), ("<s>", "<t>"))
    smaller = truncated(model, 270)
    assert [(token.content, token.id) for token in smaller.added_tokens] == [("<s>", 268), ("<t>", 269)]
    assert smaller.tokens[268:] == (None, None)


@pytest.mark.parametrize("size", [257, 291, 0, -1])
def test_a_size_that_cannot_be_is_refused_with_the_bounds(size):
    model, _ = train_model(TEXT, 290, get_recipe("hf"), ("<s>", "<t>"))
    with pytest.raises(TokenizerError, match=f"vocab_size is {size}, .* 258 .* 290"):
        truncated(model, size)
    assert truncated(model, 258).merges == ()
    assert truncated(model, 290) == model


def test_ranks_can_be_truncated_and_renumbered():
    tokens = (*ALL_BYTES, b"ab", b"abc", b"bd")
    ranks = BPEModel(tokens=tokens, rank_rule="bytes", whole_piece=True, pattern="gpt2")
    smaller = truncated(ranks, 257)
    assert smaller.tokens[-1] == b"ab"
    other = with_id_order(ranks, "specials_first")
    assert [other.tokens[id] for id in Encoder(other).encode("abcbd abd")] == [
        ranks.tokens[id] for id in Encoder(ranks).encode("abcbd abd")
    ]


def test_several_merges_of_one_token_are_kept_together():
    tokens = (*ALL_BYTES, b"ab", b"bc", b"abc")
    a, b, c = b"abc"
    merges = ((a, b), (b, c), (256, c), (a, 257))
    model = BPEModel(tokens=tokens, merges=merges, merge_results=(256, 257, 258, 258), pattern="none")
    assert truncated(model, 259) == model
    assert truncated(model, 258).merges == merges[:2]


def test_more_specials_stand_at_the_end():
    model, _ = train_model(TEXT, 290, get_recipe("hf"), ("<s>",))
    more = with_special_tokens(model, ("<u>", "<v>"))
    assert more.vocab_size == 292
    assert [(token.content, token.id) for token in more.added_tokens] == [("<s>", 0), ("<u>", 290), ("<v>", 291)]
    encoder = Encoder(more)
    assert encoder.encode("a<v>", allowed_special="all")[-1] == 291
    assert encoder.encode("a<v>") == Encoder(model).encode("a<v>")


@pytest.mark.parametrize(
    ("recipe", "tokens", "named"),
    [
        ("hf", ("<s>",), "'<s>', which this tokenizer has already"),
        ("hf", ("<u>", "<u>"), "'<u>' twice"),
        ("hf", ("",), "empty"),
        ("hf", ("a",), "base token"),
        ("character", ("<u>",), "a character tokenizer has none"),
    ],
)
def test_specials_that_cannot_be_added_are_refused(recipe, tokens, named):
    model, _ = train_model(["low lower"], 290, get_recipe(recipe), () if recipe == "character" else ("<s>",))
    with pytest.raises(TokenizerError, match=named):
        with_special_tokens(model, tokens)
