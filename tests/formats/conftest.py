"""Small tokenizers to write and read."""

import pytest

from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.tokenizer import Tokenizer

TEXTS = ["the cat sat on the mat. the cat ate the rat,", "it's 1234 o'clock\n\n", "café 日本 don't"] * 2


def trained(recipe="hf", size=300, specials=("<|endoftext|>", "<|é|>"), **switches):
    return Tokenizer(*train_model(TEXTS, size, get_recipe(recipe, **switches), specials))


@pytest.fixture(scope="session")
def make():
    """Trains a small tokenizer by a recipe."""
    return trained


@pytest.fixture(scope="session")
def byte_tokenizer():
    return trained()


@pytest.fixture(scope="session")
def character_tokenizer():
    return trained("character", 60, ())


@pytest.fixture(scope="session")
def hard_texts():
    return [
        "",
        "the cat's 99 hats\n\n  ate  ",
        "<|endoftext|>the<|é|>",
        "日本 café 🤷🏽‍♀️ \x00\u200b é é",
        "\r\n\t \u3000 \u00a0x",
        "don't DON'T 'ſ ½²",
    ]
