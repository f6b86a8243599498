"""The three forms of attention against a direct computation, and dropout against its definition."""

import math

import pytest
import torch

from minigpt_tok.gpt import attention as attention_module
from minigpt_tok.gpt.attention import attention
from minigpt_tok.gpt.dropout import dropout


def by_definition(q, k, v, allowed):
    scores = q.double() @ k.double().transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~allowed, -math.inf).softmax(dim=-1) @ v.double()


def parts(time, context, *, batch=2, heads=3, width=8):
    torch.manual_seed(time * 100 + context)
    return [torch.randn(batch, heads, n, width, requires_grad=True) for n in (time, context, context)]


@pytest.fixture(params=["math", "fused"])
def form(request, monkeypatch):
    monkeypatch.setattr(attention_module, "FUSED_FROM", 10**9 if request.param == "math" else 1)


@pytest.mark.parametrize(("time", "context"), [(1, 1), (1, 9), (9, 9), (4, 9), (150, 150), (70, 100)])
@pytest.mark.usefixtures("form")
def test_each_form_is_causal_attention(time, context):
    q, k, v = parts(time, context)
    allowed = torch.ones(time, context, dtype=torch.bool).tril(context - time)
    torch.testing.assert_close(attention(q, k, v).double(), by_definition(q, k, v, allowed), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("time", "context"), [(1, 6), (6, 6), (2, 6), (150, 150), (70, 90)])
@pytest.mark.usefixtures("form")
def test_a_mask_keeps_documents_apart_besides(time, context):
    q, k, v = parts(time, context)
    document = torch.stack([torch.arange(context) // 4, torch.arange(context) // (context - 1)])
    mask = document[:, None, -time:, None] == document[:, None, None, :]
    allowed = mask & torch.ones(time, context, dtype=torch.bool).tril(context - time)
    torch.testing.assert_close(
        attention(q, k, v, mask=mask).double(), by_definition(q, k, v, allowed), rtol=1e-5, atol=1e-6
    )


def test_forms_agree_in_their_gradients(monkeypatch):
    gradients = []
    for fused_from in (1, 10**9):
        monkeypatch.setattr(attention_module, "FUSED_FROM", fused_from)
        q, k, v = parts(150, 150)
        attention(q, k, v).square().sum().backward()
        gradients.append([q.grad, k.grad, v.grad])
    for fused, math_form in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, math_form, rtol=1e-4, atol=1e-5)


def test_dropped_weights_come_out_in_the_mean():
    q, k, v = parts(5, 5, batch=1, heads=1)
    torch.manual_seed(1)
    with torch.no_grad():
        mean = torch.stack([attention(q, k, v, dropout_p=0.3) for _ in range(4000)]).mean(dim=0)
        torch.testing.assert_close(mean, attention(q, k, v), rtol=0, atol=0.08)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout_drops_its_share_and_scales_the_rest(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(401, 499, dtype=dtype, requires_grad=True)
    y = dropout(x, p)
    assert y.dtype == dtype
    kept = y != 0
    torch.testing.assert_close(y[kept].double(), torch.full_like(y[kept], 1 / (1 - p)).double(), rtol=1e-2, atol=0)
    deviation = math.sqrt(p * (1 - p) / x.numel())
    assert abs((~kept).double().mean().item() - p) < 5 * deviation + 2**-17
    y.sum().backward()
    assert torch.equal(x.grad != 0, kept)


def test_dropped_places_are_independent_of_each_other():
    torch.manual_seed(0)
    kept = (dropout(torch.ones(1 << 18), 0.5) != 0).double() - 0.5
    for lag in (1, 2, 3, 4, 8):
        assert abs((kept[lag:] * kept[:-lag]).mean().item() * 4) < 5 / math.sqrt(1 << 18)


def test_dropout_of_nothing_is_the_same_tensor_and_seeds_repeat():
    x = torch.ones(7)
    assert dropout(x, 0.0) is x
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(dropout(torch.ones(1001), 0.2))
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], dropout(torch.ones(1001), 0.2))
