"""Tiny models on one thread: these tests share the machine with others."""

import pytest
import torch
from gpt.fingerprinted_runs import OTHER, train, write_ids

from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.model import MiniGPT


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def tiny():
    """Build a tiny model: `tiny(vocab_size=…, …)`; weights from a fixed seed, large enough to give uneven logits."""

    def build(vocab_size=23, *, seed=0, spread=None, **options):
        torch.manual_seed(seed)
        shape = {"block_size": 16, "embedding_dim": 16, "num_heads": 2, "num_layers": 2, "dropout": 0.0} | options
        model = MiniGPT(MiniGPTConfig(vocab_size, **shape)).eval()
        if spread is not None:
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.dim() == 2:
                        parameter.normal_(std=spread)
        return model

    return build


# Of the tests of `TokenizerFingerprint`


@pytest.fixture(scope="module")
def tok():
    return train()


@pytest.fixture(scope="module")
def other():
    return train(OTHER)


@pytest.fixture(scope="module")
def data(tok, tmp_path_factory):
    return write_ids(tmp_path_factory.mktemp("data"), tok)


@pytest.fixture(scope="module")
def other_text(tok, tmp_path_factory):
    """Ids of the same tokenizer of another text."""
    return write_ids(tmp_path_factory.mktemp("other_text"), tok, OTHER)


@pytest.fixture(scope="module")
def other_data(other, tmp_path_factory):
    """Ids of another tokenizer of equal size."""
    return write_ids(tmp_path_factory.mktemp("other_data"), other)
