"""The four recipes' switches, and every value that they refuse, by name."""

import pytest

from minigpt_tok.bpe.recipes import CHAT_TOKENS, RECIPES, SWITCHES, check_special_tokens, get_recipe
from minigpt_tok.errors import TokenizerError


@pytest.mark.parametrize(
    ("name", "unit", "pattern", "tie", "id_order", "min_frequency"),
    [
        ("hf", "byte", "gpt2", "lowest_ids", "specials_first", 2),
        ("cs336", "byte", "gpt2", "greatest_bytes", "bytes_first", 1),
        ("readable", "byte", "digits1", "first_seen", "specials_last", 1),
        ("character", "character", "none", "first_seen", "characters", 2),
    ],
)
def test_the_published_switches(name, unit, pattern, tie, id_order, min_frequency):
    recipe = get_recipe(name)
    assert (recipe.unit, recipe.pattern, recipe.tie) == (unit, pattern, tie)
    assert (recipe.id_order, recipe.min_frequency) == (id_order, min_frequency)
    assert recipe.max_token_length is None
    assert recipe.limit_alphabet is None
    assert recipe.base_characters is None
    assert not recipe.initial_alphabet


def test_there_are_these_four():
    assert list(RECIPES) == ["hf", "cs336", "readable", "character"]
    assert CHAT_TOKENS[0] == "<|endoftext|>"
    assert len(set(CHAT_TOKENS)) == 8


def test_every_switch_can_be_set_by_its_name():
    recipe = get_recipe("hf", tie="first_seen", min_frequency=5, max_token_length=3, pattern="none")
    assert (recipe.tie, recipe.min_frequency, recipe.max_token_length, recipe.pattern) == ("first_seen", 5, 3, "none")
    assert {"unit", "pattern", "tie", "id_order", "min_frequency", "base_characters"} <= SWITCHES


def test_another_unit_brings_its_own_order_of_ids():
    assert get_recipe("hf", unit="character").id_order == "characters"
    assert get_recipe("character", unit="byte").id_order == "specials_first"
    assert get_recipe("character", unit="byte", id_order="bytes_first").id_order == "bytes_first"


@pytest.mark.parametrize(
    ("name", "switches", "named"),
    [
        ("gpt", {}, "recipe is 'gpt'"),
        ("hf", {"tied": "first_seen"}, "no recipe has a switch tied"),
        ("hf", {"unit": "word"}, "unit is 'word'"),
        ("hf", {"tie": "random"}, "tie is 'random'"),
        ("hf", {"id_order": "any"}, "id_order is 'any'"),
        ("hf", {"id_order": "characters"}, "id_order is 'characters' with unit='byte'"),
        ("character", {"id_order": "bytes_first"}, "id_order is 'bytes_first' with unit='character'"),
        ("hf", {"min_frequency": 0}, "min_frequency is 0"),
        ("hf", {"min_frequency": -3}, "min_frequency is -3"),
        ("hf", {"min_frequency": 1.5}, "min_frequency is 1.5"),
        ("hf", {"min_frequency": True}, "min_frequency is True"),
        ("hf", {"max_token_length": 0}, "max_token_length is 0"),
        ("hf", {"max_token_length": "4"}, "max_token_length is '4'"),
        ("hf", {"limit_alphabet": 255}, "limit_alphabet is 255"),
        ("character", {"limit_alphabet": 0}, "limit_alphabet is 0"),
        ("hf", {"base_characters": "ab"}, "base_characters is for unit='character'"),
        ("character", {"base_characters": ["ab"]}, "base_characters has 'ab'"),
        ("character", {"base_characters": "a\ud800"}, "base_characters has '\\\\ud800'"),
        ("character", {"initial_alphabet": ["", "a"]}, "initial_alphabet has ''"),
        ("hf", {"pattern": 3}, "pattern is 3"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name(name, switches, named):
    with pytest.raises(TokenizerError, match=named.replace("(", "\\(")):
        get_recipe(name, **switches)


def test_what_is_equal_to_the_alphabet_is_no_limit():
    assert get_recipe("hf", limit_alphabet=256).limit_alphabet == 256
    assert get_recipe("character", limit_alphabet=1).limit_alphabet == 1


@pytest.mark.parametrize(
    ("name", "special_tokens", "named"),
    [
        ("hf", ("<s>", ""), "empty"),
        ("hf", ("<s>", "<s>"), "'<s>' twice"),
        ("hf", ("a",), "'a', which is a base token"),
        ("cs336", ("\n",), "base token"),
        ("readable", ("\ud800x",), "lone surrogate"),
        ("character", ("<s>",), "'<s>', but a character tokenizer has none"),
    ],
)
def test_a_special_token_that_cannot_be_is_named(name, special_tokens, named):
    with pytest.raises(TokenizerError, match=named) as error:
        check_special_tokens(get_recipe(name), special_tokens)
    assert "special_tokens" in str(error.value)
    assert isinstance(error.value, ValueError)


def test_a_special_of_one_character_and_several_bytes_is_fine():
    check_special_tokens(get_recipe("hf"), ("é", "<s>"))
    check_special_tokens(get_recipe("character"), ())
