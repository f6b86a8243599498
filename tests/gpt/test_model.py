import math

import pytest
import torch
from torch.nn import functional as F

from minigpt_tok.errors import ModelError
from minigpt_tok.gpt import loss as loss_module
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.loss import head_loss
from minigpt_tok.gpt.model import GPT2_NAMES, MiniGPT


def some_ids(*shape, vocab_size=23, seed=0):
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def test_logits_have_the_shape_of_the_vocabulary(tiny):
    assert tiny()(some_ids(3, 16)).shape == (3, 16, 23)
    assert tiny(pad_vocab_to=64)(some_ids(3, 5)).shape == (3, 5, 23)


@pytest.mark.parametrize("block_size", [16, 300])
def test_a_later_id_changes_no_earlier_logit(tiny, block_size):
    model = tiny(block_size=block_size, spread=0.3)
    ids = some_ids(2, block_size)
    changed = ids.clone()
    at = block_size // 2
    changed[:, at] = (changed[:, at] + 1) % 23
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :at], after[:, :at])
    assert (before[:, at:] - after[:, at:]).abs().amax(dim=(0, 2)).min() > 0  # every later position looks back at it


def test_positions_matter(tiny):
    logits = tiny(spread=0.3)(torch.full((1, 16), 5))
    assert (logits[0, 1:] - logits[0, :-1]).abs().amax(dim=1).min() > 0


def test_the_head_is_the_embedding(tiny):
    model = tiny()
    assert not any("head" in name for name in model.state_dict())
    hidden = torch.randn(2, 16)
    torch.testing.assert_close(model.head(hidden), hidden @ model.token_embedding.weight.T)
    model.loss(some_ids(1, 8), some_ids(1, 8, seed=1)).backward()
    unseen = sorted(set(range(23)) - set(some_ids(1, 8).flatten().tolist()))
    assert (model.token_embedding.weight.grad[unseen].abs().sum(dim=1) > 0).all()  # rows get a gradient from the head


@pytest.mark.parametrize("chunked", [False, True])
def test_padded_rows_take_neither_probability_nor_gradient(tiny, chunked, monkeypatch):
    monkeypatch.setattr(loss_module, "_PLAIN_UP_TO", 0 if chunked else 10**9)
    plain, padded = tiny(), tiny(pad_vocab_to=64)
    state = plain.state_dict()
    state["token_embedding.weight"] = torch.cat([state["token_embedding.weight"], torch.full((41, 16), 100.0)])
    padded.load_state_dict(state)
    ids, targets = some_ids(2, 16), some_ids(2, 16, seed=1)
    torch.testing.assert_close(padded(ids), plain(ids))
    losses = [model.loss(ids, targets) for model in (plain, padded)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    gradient = padded.token_embedding.weight.grad
    torch.testing.assert_close(gradient[:23], plain.token_embedding.weight.grad)
    assert not gradient[23:].any()


@pytest.mark.parametrize(("tokens", "vocab_size"), [(1, 5), (37, 11), (256, 100)])
@pytest.mark.parametrize("ignored", [False, True])
def test_the_chunked_loss_is_cross_entropy(tokens, vocab_size, ignored, monkeypatch):
    monkeypatch.setattr(loss_module, "_PLAIN_UP_TO", 0)
    monkeypatch.setattr(loss_module, "_CHUNK", 7 * vocab_size)
    torch.manual_seed(0)
    hidden = torch.randn(tokens, 8, requires_grad=True)
    weight = torch.randn(vocab_size, 8, requires_grad=True)
    targets = torch.randint(vocab_size, (tokens,))
    if ignored:
        targets[1::3] = -100
    loss = head_loss(hidden, weight, targets, vocab_size)
    expected = F.cross_entropy(hidden @ weight.T, targets)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss * 0.25, (hidden, weight))
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected * 0.25, (hidden, weight)), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(head_loss(hidden, weight, targets, vocab_size), expected)


def test_the_loss_is_taken_from_logits_and_skips_ignored_targets(tiny):
    model = tiny(spread=0.3)
    ids, targets = some_ids(2, 16), some_ids(2, 16, seed=1)
    targets[0, 3:9] = -100
    kept = targets != -100
    torch.testing.assert_close(model.loss(ids, targets), F.cross_entropy(model(ids)[kept], targets[kept]))


def test_gpt2_initialisation():
    torch.manual_seed(0)
    model = MiniGPT(MiniGPTConfig(1000, embedding_dim=128, num_layers=8))
    for name, parameter in model.named_parameters():
        if name.endswith(("projection.weight", "project.weight")):
            assert parameter.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.03), name
        elif parameter.dim() == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.03), name
        elif "norm.weight" in name:
            assert (parameter == 1).all(), name
        else:
            assert name.endswith("bias"), name
            assert not parameter.any(), name
    model.eval()
    ids = some_ids(4, 64, vocab_size=1000)
    assert model.loss(ids, ids.roll(1, 1)).item() == pytest.approx(math.log(1000), abs=0.2)


def test_parameter_counts_and_flops():
    config = MiniGPTConfig(8000, embedding_dim=128, num_layers=4, block_size=128)
    model = MiniGPT(config)
    assert model.embedding_parameters == 8000 * 128 == 1_024_000
    assert model.position_parameters == 128 * 128
    per_block = (128 * 384 + 384) + (128 * 128 + 128) + (128 * 512 + 512) + (512 * 128 + 128) + 4 * 128
    assert model.body_parameters == 4 * per_block + 2 * 128
    counts = model.body_parameters + model.embedding_parameters + model.position_parameters
    assert counts == sum(parameter.numel() for parameter in model.parameters())
    assert model.flops_per_token == 6 * (model.body_parameters + 1_024_000)
    assert model.attention_flops_per_token == 12 * 4 * 128 * 128
    assert MiniGPT(MiniGPTConfig(500, pad_vocab_to=64)).embedding_parameters == 512 * 128


@pytest.mark.parametrize("steps", [[1] * 16, [16], [7, 1, 1, 7], [3, 13]])
@pytest.mark.parametrize("batch", [1, 3])
def test_logits_are_the_same_with_a_cache(tiny, steps, batch):
    model = tiny(spread=0.3)
    ids = some_ids(batch, 16)
    cache, at, got = model.new_cache(batch), 0, []
    with torch.inference_mode():
        for step in steps:
            got.append(model(ids[:, at : at + step], cache))
            at += step
            assert cache.length == at
        torch.testing.assert_close(torch.cat(got, dim=1), model(ids), rtol=1e-4, atol=1e-5)


def test_a_mask_and_positions_make_documents_independent(tiny):
    model = tiny(spread=0.3)
    ids = some_ids(1, 12)
    document = torch.tensor([[0] * 5 + [1] * 7])
    positions = torch.tensor([[*range(5), *range(7)]])
    logits = model(ids, positions=positions, mask=document[:, :, None] == document[:, None, :])
    apart = torch.cat([model(ids[:, :5]), model(ids[:, 5:])], dim=1)
    torch.testing.assert_close(logits, apart, rtol=1e-4, atol=1e-5)


def test_ids_that_do_not_fit_are_refused(tiny):
    model = tiny()
    with pytest.raises(ModelError, match="17 ids in a window of 16"):
        model(some_ids(1, 17))
    with pytest.raises(ModelError, match="batch, time"):
        model(some_ids(4))
    cache = model.new_cache()
    model(some_ids(1, 10), cache)
    with pytest.raises(ModelError, match="17 ids"):
        model(some_ids(1, 7), cache)
    assert cache.length == 10


def test_dropout_works_in_training_alone(tiny):
    model = tiny(dropout=0.5, spread=0.3)
    ids = some_ids(2, 16)
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


def test_it_learns_a_repeated_text(tiny):
    torch.manual_seed(0)
    model = tiny().train()
    ids = some_ids(1, 17).repeat(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_every_parameter_has_a_name_in_gpt2(tiny):
    last = {name.rsplit(".", 1)[0] for name in tiny().state_dict()}
    for name in last:
        inner = ".".join(part for part in name.split(".") if part != "blocks" and not part.isdigit())
        assert inner in GPT2_NAMES, name
