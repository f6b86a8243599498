"""Budget arithmetic: what is counted, where it ends, and the learning rate by it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minigpt_tok.errors import ModelError
from minigpt_tok.gpt.budget import AXES, Budget, Clock, Meter, Spent
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.gpt.schedule import learning_rate
from minigpt_tok.tokenizer import Tokenizer

FLOPS = 7


@pytest.fixture(scope="module")
def tok():
    """Bytes by value, then "ab", "é" as one token, the first two bytes of 日, and an end-of-text special."""
    merges = [(b"a", b"b"), (b"\xc3", b"\xa9"), (b"\xe6", b"\x97")]
    vocab = {value: bytes([value]) for value in range(256)}
    vocab |= {256 + n: left + right for n, (left, right) in enumerate(merges)} | {259: b"<|endoftext|>"}
    return Tokenizer.from_vocab_and_merges(vocab, merges, special_tokens=["<|endoftext|>"])


def meter(budget, tok=None):
    return Meter(Budget.parse(budget), flops_per_token=FLOPS, tokenizer=tok)


@pytest.mark.parametrize(
    ("text", "axis", "amount"),
    [
        ("bytes=5e6", "bytes", 5_000_000),
        ("characters=100", "characters", 100),
        ("tokens=1_000_000", "tokens", 1_000_000),
        ("flops=1.5e15", "flops", 1_500_000_000_000_000),
        ("seconds=0.5", "seconds", 0.5),
    ],
)
def test_budgets_are_parsed_and_written_back(text, axis, amount):
    budget = Budget.parse(text)
    assert (budget.axis, budget.amount) == (axis, amount)
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize("text", ["bytes", "bytes=", "bytes=much", "5e6", "bytes=nan", ""])
def test_what_is_no_budget_is_refused_with_an_example(text):
    with pytest.raises(ModelError, match="bytes=5e6"):
        Budget.parse(text)


@pytest.mark.parametrize("text", ["bytes=0", "bytes=-1", "tokens=inf"])
def test_amounts_must_be_above_nothing_and_finite(text):
    with pytest.raises(ModelError, match="above 0"):
        Budget.parse(text)


def test_an_unknown_axis_names_and_explains_those_there_are():
    with pytest.raises(ModelError) as caught:
        Budget.parse("steps=100")
    assert all(f"{axis}: {meaning}" in str(caught.value) for axis, meaning in AXES.items())


def test_all_axes_are_counted_from_the_targets(tok):
    counted = meter("tokens=1e9", tok)
    targets = torch.tensor([[256, 257, 259, -100], [258, 0xA5, ord("z"), 0xC3]])
    assert counted.take(targets) is targets
    spent = counted.spent
    assert spent.tokens == 7  # all but the padding
    assert spent.bytes == 2 + 2 + 0 + 2 + 1 + 1 + 1
    assert spent.characters == 2 + 1 + 0 + 1 + 0 + 1 + 1  # 日 begins in its first two bytes
    assert spent.flops == 7 * FLOPS


def test_bytes_and_characters_of_a_text_are_those_of_the_text(tok):
    text = "abé日本語🙂 zab"
    ids = np.array(tok.encode(text))
    assert tok.byte_lengths[ids].sum() == len(text.encode())
    assert tok.character_lengths[ids].sum() == len(text)


def test_characters_of_a_character_tokenizer():
    tok = Tokenizer.from_json(_character_json())
    assert tok.character_lengths[tok.encode("é日")].tolist() == [1, 1]


def _character_json():
    from minigpt_tok.train import train_tokenizer

    return train_tokenizer(["é日é日ab"], vocab_size=4, recipe="character").to_json()


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        ("bytes=1", [[256, -100, -100], [-100, -100, -100]]),
        ("bytes=2", [[256, -100, -100], [-100, -100, -100]]),
        ("bytes=3", [[256, 259, 97], [-100, -100, -100]]),
        ("bytes=4", [[256, 259, 97], [257, -100, -100]]),
        ("characters=4", [[256, 259, 97], [257, -100, -100]]),
        ("characters=5", [[256, 259, 97], [257, 98, -100]]),
        ("tokens=1", [[256, -100, -100], [-100, -100, -100]]),
        ("tokens=5", [[256, 259, 97], [257, 98, -100]]),
        ("tokens=6", [[256, 259, 97], [257, 98, 99]]),
        (f"flops={2 * FLOPS}", [[256, 259, -100], [-100, -100, -100]]),
        (f"flops={2 * FLOPS + 1}", [[256, 259, 97], [-100, -100, -100]]),
    ],
)
def test_the_last_batch_is_cut_after_the_target_that_reaches_the_budget(tok, budget, kept):
    counted = meter(budget, tok)
    targets = torch.tensor([[256, 259, 97], [257, 98, 99]])
    before = targets.clone()
    assert counted.take(targets).tolist() == kept
    assert torch.equal(targets, before)  # the batch itself is left alone
    assert counted.done
    n_kept = sum(id != -100 for row in kept for id in row)
    assert (counted.last_tokens, counted.last_share) == (n_kept, n_kept / 6)


@given(
    axis=st.sampled_from(["bytes", "characters", "tokens", "flops"]),
    amount=st.integers(1, 400),
    batches=st.lists(st.lists(st.sampled_from([97, 256, 257, 258, 259, -100]), min_size=1, max_size=12), max_size=60),
)
def test_a_budget_is_reached_and_passed_by_less_than_a_token(tok, axis, amount, batches):
    counted = Meter(Budget(axis, amount), flops_per_token=FLOPS, tokenizer=tok)
    largest = {"bytes": 2, "characters": 2, "tokens": 1, "flops": FLOPS}[axis]
    kept = []
    for batch in batches:
        if counted.done:
            break
        kept += [id for id in counted.take(torch.tensor(batch)).tolist() if id != -100]
    spent = getattr(counted.spent, axis)
    assert spent < amount + largest
    assert counted.done == (spent >= amount)
    assert counted.spent.tokens == len(kept)
    assert counted.spent.bytes == tok.byte_lengths[kept].sum()
    everything = [id for batch in batches for id in batch if id != -100]
    assert kept == everything[: len(kept)]
    if not counted.done:
        assert kept == everything


def test_progress_goes_on_from_what_an_earlier_run_spent(tok):
    counted = meter("bytes=10", tok)
    counted.restore(Spent(bytes=4, characters=3, tokens=2, flops=14, seconds=100.0).to_plain())
    assert counted.progress == 0.4
    counted.take(torch.tensor([97]))
    spent = counted.spent
    assert (spent.bytes, spent.characters, spent.tokens, spent.flops) == (5, 4, 3, 21)
    assert spent.seconds == 100.0  # the clock is not running


def test_a_budget_of_bytes_needs_a_tokenizer():
    with pytest.raises(ModelError, match="needs the tokenizer"):
        meter("bytes=5")
    counted = meter("tokens=5")
    counted.take(torch.tensor([1, 2]))
    assert (counted.progress, counted.spent.bytes) == (0.4, 0)


def test_seconds_run_while_training_only(monkeypatch):
    now = [10.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    counted = meter("seconds=8")
    assert counted.progress == 0
    counted.clock.start()
    now[0] += 2
    with counted.clock.paused():
        now[0] += 50
    now[0] += 2
    assert counted.spent.seconds == 4
    assert counted.progress == 0.5
    counted.clock.stop()
    now[0] += 50
    assert counted.clock.seconds == 4
    assert counted.take(torch.tensor([3] * 100)).tolist() == [3] * 100  # never cut
    with Clock().paused() as nothing:
        assert nothing is None
    counted.clock.start()
    now[0] += 4
    assert counted.done


# The schedule


def test_the_rate_rises_in_a_line_and_falls_by_a_cosine():
    rates = {"peak": 2.0, "warmup": 0.1, "floor": 0.2}
    assert learning_rate(0.05, **rates) == pytest.approx(1.0)
    assert learning_rate(0.1, **rates) == pytest.approx(2.0)
    assert learning_rate(0.55, **rates) == pytest.approx(1.1)
    assert learning_rate(1.0, **rates) == pytest.approx(0.2)
    quarter = 0.2 + 1.8 * 0.5 * (1 + math.cos(math.pi / 4))
    assert learning_rate(0.1 + 0.9 / 4, **rates) == pytest.approx(quarter)


@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_the_schedule_at_its_extremes(warmup):
    assert learning_rate(1.0, peak=1.0, warmup=warmup, floor=0.5) == 0.5
    assert learning_rate(1e-9, peak=1.0, warmup=warmup, floor=0.5) == pytest.approx(0.0 if warmup else 1.0, abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"accumulate": 0},
        {"learning_rate": -1.0},
        {"learning_rate": "fast"},
        {"warmup": 1.5},
        {"beta1": True},
        {"precision": ""},
        {"logs": 0},
    ],
)
def test_training_options_out_of_bounds_are_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(ModelError, match=name):
        TrainingOptions(**wrong)


def test_training_options_go_through_plain_types():
    options = TrainingOptions(batch_size=4, precision="bf16-mixed")
    assert TrainingOptions.from_plain(options.to_plain()) == options
    with pytest.raises(ModelError, match="no training options depth"):
        TrainingOptions.from_plain({"depth": 3})
