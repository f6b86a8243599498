import json
from dataclasses import FrozenInstanceError, fields

import pytest

from minigpt_tok.errors import ModelError
from minigpt_tok.gpt.config import MiniGPTConfig


def test_the_defaults_are_those_of_the_interface():
    assert MiniGPTConfig(100).to_plain() == {
        "vocab_size": 100,
        "block_size": 128,
        "embedding_dim": 128,
        "num_heads": 4,
        "num_layers": 4,
        "expansion_factor": 4,
        "dropout": 0.1,
        "pad_vocab_to": 1,
    }


def test_it_is_frozen_and_takes_all_but_the_vocabulary_by_name():
    config = MiniGPTConfig(vocab_size=7)
    with pytest.raises(FrozenInstanceError):
        config.vocab_size = 8
    with pytest.raises(TypeError):
        MiniGPTConfig(7, 128)


def test_every_field_documents_itself():
    assert all(len(item.metadata["help"]) > 10 for item in fields(MiniGPTConfig))


def test_it_goes_through_json_and_back():
    config = MiniGPTConfig(500, dropout=0.0, pad_vocab_to=64, num_layers=2)
    assert MiniGPTConfig.from_plain(json.loads(json.dumps(config.to_plain()))) == config


@pytest.mark.parametrize(
    ("vocab_size", "pad_vocab_to", "rows"),
    [(500, 1, 500), (500, 64, 512), (512, 64, 512), (1, 64, 64), (50257, 64, 50304)],
)
def test_rows_are_padded_up(vocab_size, pad_vocab_to, rows):
    assert MiniGPTConfig(vocab_size, pad_vocab_to=pad_vocab_to).embedding_rows == rows


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocab_size": 0},
        {"vocab_size": 10.0},
        {"vocab_size": True},
        {"block_size": 0},
        {"num_layers": -1},
        {"num_heads": 3},
        {"expansion_factor": 0},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"dropout": float("nan")},
        {"dropout": "0.1"},
        {"pad_vocab_to": 0},
    ],
)
def test_a_wrong_value_is_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(ModelError, match=name):
        MiniGPTConfig(**({"vocab_size": 10} | wrong))


def test_unknown_and_missing_names_are_refused():
    with pytest.raises(ModelError, match="no depth"):
        MiniGPTConfig.from_plain({"vocab_size": 10, "depth": 3})
    with pytest.raises(ModelError, match="needs vocab_size"):
        MiniGPTConfig.from_plain({})
