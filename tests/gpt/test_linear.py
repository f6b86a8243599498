"""The fast product is `F.linear`, with its gradients, for every shape and dtype."""

import pytest
import torch
from torch.nn import functional as F

from minigpt_tok.gpt import linear as linear_module
from minigpt_tok.gpt.linear import Linear, linear


@pytest.fixture(params=[True, False], ids=["convolution", "plain"])
def chosen(request, monkeypatch):
    """Whether convolutions are taken; they compute the same everywhere, only slower where they are not chosen."""
    monkeypatch.setattr(linear_module, "_FAST_CONVOLUTIONS", request.param)
    calls = []
    convolve = F.conv2d
    monkeypatch.setattr(linear_module.F, "conv2d", lambda *a, **k: calls.append(1) or convolve(*a, **k))
    return request.param, calls


@pytest.mark.parametrize(
    ("shape", "fast"),
    [
        ((64, 5), True),
        ((32, 128, 5), True),
        ((4, 4, 4, 5), True),
        ((1, 1, 5), False),
        ((63, 5), False),
        ((72, 5), False),
    ],
)
@pytest.mark.parametrize("biased", [True, False])
def test_it_is_the_linear_layer(chosen, shape, fast, biased):
    convolutions, calls = chosen
    torch.manual_seed(0)
    tensors = [torch.randn(shape), torch.randn(7, 5)] + ([torch.randn(7)] if biased else [])
    results = []
    for product in (linear, F.linear):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        y = product(*leaves)
        assert y.shape == (*shape[:-1], 7)
        assert y.is_contiguous()
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert bool(calls) == (convolutions and fast)


def test_inputs_that_lie_otherwise_in_memory(chosen):
    x = torch.randn(5, 64).T
    weight = torch.randn(5, 7).T
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight), rtol=1e-5, atol=1e-5)
    part = torch.randn(70, 12)[3:67, 2:7]
    torch.testing.assert_close(linear(part, weight), F.linear(part, weight), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_take_the_plain_product(chosen, dtype):
    _, calls = chosen
    x, weight = torch.randn(64, 5, dtype=dtype), torch.randn(7, 5, dtype=dtype)
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x.float(), weight.float()).dtype == torch.bfloat16
    assert not calls


def test_the_layer_has_the_parameters_of_a_linear_layer():
    torch.manual_seed(0)
    plain = torch.nn.Linear(5, 7)
    layer = Linear(5, 7)
    layer.load_state_dict(plain.state_dict())
    x = torch.randn(3, 64, 5)
    torch.testing.assert_close(layer(x), plain(x), rtol=1e-5, atol=1e-5)
