"""Tiny models on one thread: these tests share the machine with others."""

import pytest
import torch

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
