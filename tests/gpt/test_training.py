"""`fit` on a tiny corpus: budgets, determinism, resuming, accumulation, checkpoints that survive a crash."""

import csv
import json
import math
import random
import warnings

import lightning as L
import pytest
import torch

from minigpt_tok import checkpoint_files
from minigpt_tok.checkpoint import load_model, verify_checkpoint
from minigpt_tok.data.data_module import TokenDataModule
from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.errors import DataError, MissingDependencyError, ModelError, TokenizerMismatchError
from minigpt_tok.files import sha256_of
from minigpt_tok.gpt import training
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.lightning_module import LitMiniGPT
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.gpt.training import fit
from minigpt_tok.train import train_tokenizer
from minigpt_tok.transplant import transplant

TEXT = "the quick brown fox jumps over a lazy dog while it rains in spain and nobody cares 日本語 café"
BLOCK = 16


def documents(n, seed):
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(TEXT.split(), k=drawn.randrange(20, 60))) for _ in range(n)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """(folder of id files with train and validation, tokenizer)"""
    folder = tmp_path_factory.mktemp("data")
    text = folder / "text"
    text.mkdir()
    for split, n in (("train", 40), ("validation", 6)):
        (text / f"{split}.txt").write_text("<|endoftext|>".join(documents(n, split)), encoding="utf-8")
    tok = train_tokenizer(documents(40, "train"), vocab_size=280, special_tokens=["<|endoftext|>"])
    encode_corpus(str(text), tok, folder / "ids")
    return folder / "ids", tok


@pytest.fixture
def run(data, tmp_path):
    """Fit a tiny model: `run(name, budget, **options and arguments of fit)`."""

    def start(name="run", budget="tokens=2000", *, body=None, arguments=None, **options):
        folder, tok = data
        shape = {"block_size": BLOCK, "embedding_dim": 16, "num_heads": 2, "num_layers": 1} | (body or {})
        arguments = {"logger": None, "budget": budget} | (arguments or {})
        if not arguments.get("resume"):
            arguments["config"] = MiniGPTConfig(tok.vocab_size, **shape)
            options = {"batch_size": 4, "learning_rate": 1e-2, "accelerator": "cpu"} | options
            arguments["options"] = TrainingOptions(**options)
        return fit(folder, tok, tmp_path / name, **arguments)

    return start


class Stops(L.Callback):
    """Stops the run, as a crash would, after so many batches."""

    def __init__(self, after, error=RuntimeError):
        self.after = after
        self.error = error

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.after -= 1
        if self.after == 0:
            raise self.error("stopped by the test")


def weights(result):
    return result.model.state_dict()


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_time(curve):
    return [{name: value for name, value in point.items() if name != "seconds"} for point in curve]


def test_it_learns(run, data):
    result = run(budget="bytes=60000")
    first, last = result.curve[0], result.curve[-1]
    assert last["train_loss"] < 0.6 * first["train_loss"]
    assert result.validation_bits_per_byte < 2
    assert not result.model.training
    _, tok = data
    untrained = LitMiniGPT(result.config, budget="tokens=1").model
    quick = training.QuickValidation(training._in_order(_module(data), 4), tok, 10**9)
    assert quick(result.model) == pytest.approx(result.validation_bits_per_byte, rel=1e-6)
    per_token = math.log2(tok.vocab_size) * quick.tokens / quick.bytes
    assert quick(untrained) == pytest.approx(per_token, rel=0.02)


def _module(data):
    folder, tok = data
    module = TokenDataModule(folder, BLOCK, 4, tokenizer=tok)
    module.setup()
    return module


@pytest.mark.parametrize("axis", ["bytes", "characters", "tokens", "flops"])
def test_a_run_spends_its_budget_and_less_than_a_token_more(run, data, axis):
    _, tok = data
    amount = {"flops": 10**9}.get(axis, 3001)
    result = run(budget=f"{axis}={amount}")
    most = {"flops": result.model.flops_per_token, "tokens": 1}.get(axis, int(tok.byte_lengths.max()))
    assert amount <= getattr(result.spent, axis) < amount + most
    assert result.spent.flops == result.spent.tokens * result.model.flops_per_token
    assert result.steps == math.ceil(result.spent.tokens / (4 * BLOCK))
    assert result.tokens_per_second > 0


def test_repeats_are_counted(run, data):
    epoch = _module(data).datasets["train"].account
    result = run(budget=f"tokens={3 * epoch.tokens.kept}")
    assert result.spent.bytes == 3 * epoch.bytes.kept


def test_seconds_stop_after_the_step_that_passes_them(run):
    result = run(budget="seconds=0.3")
    assert 0.3 <= result.seconds < 2
    assert result.curve[-1]["step"] == result.steps > 1
    assert result.curve[-1]["learning_rate"] < 0.5e-2


def test_one_seed_gives_one_run_and_the_callers_random_numbers_go_on(run):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    a, b, other = run("a"), run("b"), run("c", seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert same(weights(a), weights(b))
    assert without_time(a.curve) == without_time(b.curve)
    assert not same(weights(a), weights(other))


def test_logging_and_validating_more_often_changes_nothing_in_the_model(run):
    assert same(weights(run("a", logs=1, validations=1)), weights(run("b", logs=500, validations=20)))


def test_points_of_the_curve_are_at_equal_shares(run, data):
    assert _module(data).datasets["train"].account.blocks >= 80
    result = run(budget=f"tokens={20 * 4 * BLOCK}", logs=10, validations=5)
    assert [point["tokens"] for point in result.curve] == [2 * n * 4 * BLOCK for n in range(1, 11)]
    assert [point["step"] for point in result.curve] == [2 * n for n in range(1, 11)]
    assert ["validation_bits_per_byte" in point for point in result.curve] == [False, True] * 5
    assert result.curve[-1]["learning_rate"] == pytest.approx(1e-3)
    seconds = [point["seconds"] for point in result.curve]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_resumed_run_is_bit_for_bit_the_one_that_was_not_interrupted(run, data, accumulate, num_workers):
    if num_workers and accumulate > 1:
        pytest.skip("one of both is enough")
    options = {"accumulate": accumulate, "num_workers": num_workers, "body": {"dropout": 0.2}, "validations": 7}
    whole = run("whole", "bytes=30000", **options)
    assert whole.spent.tokens > 2 * _module(data).datasets["train"].account.tokens.kept  # over the ends of epochs
    for after in (61, 118):  # each time from the last checkpoint before
        with pytest.raises(RuntimeError, match="stopped by the test"):
            run(
                "parts",
                "bytes=30000",
                arguments={"callbacks": [Stops(after)], "resume": after == 118},
                **options,
            )
    parts = run("parts", None, arguments={"resume": True})
    assert same(weights(whole), weights(parts))
    assert without_time(whole.curve) == without_time(parts.curve)
    assert parts.steps == whole.steps
    assert parts.spent.bytes == whole.spent.bytes


def test_accumulated_batches_are_one_large_batch(run):
    large = run("large", "tokens=1280", batch_size=8, body={"dropout": 0.0})
    small = run("small", "tokens=1280", batch_size=2, accumulate=4, body={"dropout": 0.0})
    assert small.steps == large.steps == 10
    for name, value in weights(large).items():
        torch.testing.assert_close(weights(small)[name], value, rtol=1e-3, atol=2e-5)


def test_a_budget_that_ends_between_steps_still_takes_the_step(run):
    result = run(budget=f"tokens={4 * BLOCK * 6}", accumulate=4)
    assert result.steps == 2
    assert result.spent.tokens == 4 * BLOCK * 6


def test_a_finished_run_is_not_trained_again_and_a_larger_budget_goes_on(run):
    first = run(budget="tokens=1000")
    summary = first.checkpoint.with_name("fit.json")
    written = json.loads(summary.read_text())
    summary.unlink()  # as if it had crashed after the last checkpoint
    again = run(budget=None, arguments={"resume": True})
    assert same(weights(again), weights(first))
    assert (again.steps, again.spent.bytes, again.curve) == (first.steps, first.spent.bytes, first.curve)
    assert json.loads(summary.read_text())["curve"] == written["curve"]
    more = run(budget="tokens=1500", arguments={"resume": True})
    assert more.spent.tokens == 1500
    assert more.curve[: len(first.curve)] == first.curve


def test_checkpoints_are_plain_and_carry_everything(run, data):
    _, tok = data
    result = run(budget="bytes=3000", body={"pad_vocab_to": 64})
    content = torch.load(result.checkpoint, weights_only=True)
    assert content["tokenizer_fingerprint"] == tok.fingerprint
    assert content["hyper_parameters"]["config"] == result.config.to_plain()
    assert content["spent"]["bytes"] == result.spent.bytes
    assert content["curve"] == list(result.curve)
    verify_checkpoint(result.checkpoint, tok)
    model, _ = load_model(result.checkpoint)
    assert same(model.state_dict(), weights(result))
    lit = LitMiniGPT.load_from_checkpoint(result.checkpoint, tokenizer=tok, weights_only=True)
    assert same(lit.model.state_dict(), weights(result))
    summary = json.loads((result.checkpoint.parent / "fit.json").read_text())
    assert summary == json.loads(json.dumps(result.to_plain()))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_crash_in_the_middle_of_saving_leaves_the_last_good_checkpoint(run, monkeypatch, tmp_path, error):
    whole = run("whole")
    good = run("run", "tokens=1000")
    before = good.checkpoint.read_bytes()
    save = torch.save

    def torn(value, target, *args, **kwargs):
        save(value, target, *args, **kwargs)
        with open(target, "rb+") if not hasattr(target, "write") else target as file:
            file.truncate(1000)
        raise error

    monkeypatch.setattr(checkpoint_files.torch, "save", torn)
    with pytest.raises((OSError, KeyboardInterrupt, ModelError)):
        run("run", "tokens=2000", arguments={"resume": True})
    monkeypatch.undo()
    assert good.checkpoint.read_bytes() == before
    assert sorted(path.name for path in good.checkpoint.parent.iterdir()) == ["last.ckpt"]
    assert run("run", "tokens=2000", arguments={"resume": True}).spent.tokens == whole.spent.tokens


def test_ctrl_c_is_a_keyboard_interrupt_and_works_again(run):
    import signal

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(arguments={"callbacks": [Stops(3, KeyboardInterrupt)]})
    assert signal.getsignal(signal.SIGINT) is handler


def test_csv_logs_hold_the_whole_curve_also_after_a_resume(run, tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        run(arguments={"logger": "csv", "callbacks": [Stops(20)]}, logs=10, validations=5)
    result = run(arguments={"logger": "csv", "resume": True}, budget=None)
    with open(tmp_path / "run" / "logs" / "metrics.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [point["step"] for point in result.curve]
    for row, point in zip(rows, result.curve, strict=True):
        assert {name: float(value) for name, value in row.items() if value} == pytest.approx(point)


def test_tensorboard_logs(run, tmp_path):
    result = run(arguments={"logger": ["csv", "tensorboard"]})
    assert list(result.logs.glob("events.*"))
    assert (result.logs / "metrics.csv").is_file()


def test_a_missing_tensorboard_names_the_extra(run, monkeypatch):
    monkeypatch.setattr(training.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"minigpt-tok\[tensorboard\]"):
        run(arguments={"logger": "tensorboard"})


def test_a_folder_with_a_run_is_not_overwritten_unasked(run):
    first = run(budget="tokens=500")
    with pytest.raises(ModelError, match=r"resume.*another folder.*overwrite"):
        run(budget="tokens=500")
    second = run(budget="tokens=600", arguments={"overwrite": True})
    assert second.checkpoint == first.checkpoint
    assert second.spent.tokens == 600


def test_what_cannot_be_resumed_is_said(run, data, tmp_path):
    _, tok = data
    with pytest.raises(ModelError, match=r"no .*last\.ckpt to resume"):
        run("nothing", arguments={"resume": True})
    result = run(budget="tokens=500")
    other = MiniGPTConfig(tok.vocab_size, block_size=BLOCK, embedding_dim=32)
    with pytest.raises(ModelError, match=r"another shape: embedding_dim 32 \(the checkpoint: 16\)"):
        run(budget="tokens=900", arguments={"resume": True, "config": other})
    torch.save({"state_dict": {}}, result.checkpoint)
    with pytest.raises(ModelError, match="not saved by fit"):
        run(budget="tokens=900", arguments={"resume": True})


def test_another_tokenizer_is_refused_before_training(data, tmp_path):
    folder, tok = data
    other = train_tokenizer(documents(40, "other"), vocab_size=280, special_tokens=["<|endoftext|>"])
    with pytest.raises(TokenizerMismatchError):
        fit(folder, other, tmp_path / "run", budget="tokens=100")
    with pytest.raises(TokenizerMismatchError, match="281"):
        fit(folder, tok, tmp_path / "run", budget="tokens=100", config=MiniGPTConfig(281))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"budget": None}, ModelError, "no budget"),
        ({"budget": "steps=3"}, ModelError, "no budget by 'steps'"),
        ({"logger": "paper"}, ModelError, "no logger 'paper'"),
    ],
)
def test_requests_that_cannot_work_are_refused(run, arguments, error, message):
    with pytest.raises(error, match=message):
        run(arguments=arguments)


def test_no_data_is_said(data, tmp_path):
    with pytest.raises(DataError, match="no train"):
        fit(tmp_path, data[1], tmp_path / "run", budget="tokens=100")


def test_diverged_training_is_said_and_not_saved(run, tmp_path):
    with pytest.raises(ModelError, match="training loss is"):
        run(budget="tokens=20000", learning_rate=1e12, gradient_clip=0.0, warmup=0.0, logs=10)
    assert not (tmp_path / "run" / "last.ckpt").exists() or math.isfinite(
        torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["curve"][-1]["train_loss"]
    )


def test_progress_and_points_are_reported(run, monkeypatch):
    monkeypatch.setattr("minigpt_tok.gpt.milestones._REPORTS", 0.0)
    reports, points = [], []
    result = run(
        budget="bytes=3000",
        arguments={"progress": lambda *report: reports.append(report), "on_point": points.append},
    )
    assert points == list(result.curve)
    assert {(stage, total) for stage, _, total in reports} == {("trained bytes", 3000)}
    done = [report[1] for report in reports]
    assert done == sorted(done)
    assert done[-1] == 3000


def test_an_evaluation_of_ones_own_takes_the_place_of_the_quick_look(run):
    result = run(arguments={"evaluate": lambda model: 1.5}, validations=2)
    assert [p["validation_bits_per_byte"] for p in result.curve if "validation_bits_per_byte" in p] == [1.5, 1.5]


def test_nothing_is_printed_and_nothing_warned_of(run, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(arguments={"logger": "csv"})
        run(arguments={"logger": "csv", "overwrite": True})
        run(arguments={"logger": "csv", "resume": True}, budget="tokens=3000")
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_bfloat16_trains_too(run):
    result = run(precision="bf16-mixed")
    assert result.curve[-1]["train_loss"] < result.curve[0]["train_loss"]
    assert result.validation_bits_per_byte is not None


def test_weights_alone_decay(data):
    lit = LitMiniGPT(MiniGPTConfig(50, num_layers=1), budget="tokens=1", options={"weight_decay": 0.3})
    optimizer = lit.configure_optimizers()
    decayed, others = optimizer.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert {parameter.dim() for parameter in decayed["params"]} == {2}
    assert {parameter.dim() for parameter in others["params"]} == {1}
    assert len(decayed["params"]) + len(others["params"]) == len(list(lit.model.parameters()))


def test_a_plain_trainer_of_lightning_will_do(data):
    folder, tok = data
    torch.manual_seed(0)
    lit = LitMiniGPT(
        MiniGPTConfig(tok.vocab_size, block_size=BLOCK, embedding_dim=16, num_heads=2, num_layers=1),
        budget="bytes=2000",
        tokenizer=tok,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=-1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        trainer.fit(lit, datamodule=TokenDataModule(folder, BLOCK, 4, tokenizer=tok))
    assert lit.meter.spent.bytes >= 2000
    assert lit.finished


# What is loaded without a trainer


def test_load_from_checkpoint_is_guarded(run, data):
    _, tok = data
    saved = run().checkpoint
    lit = LitMiniGPT.load_from_checkpoint(saved, tokenizer=tok)
    assert same(lit.model.state_dict(), load_model(saved)[0].state_dict())
    other = train_tokenizer(documents(40, "other"), vocab_size=280, special_tokens=["<|endoftext|>"], min_frequency=1)
    with pytest.raises(TokenizerMismatchError, match=other.fingerprint):
        LitMiniGPT.load_from_checkpoint(saved, tokenizer=other)
    with pytest.raises(TokenizerMismatchError, match=other.fingerprint):
        LitMiniGPT.load_from_checkpoint(saved, tokenizer=other, allow_unverified=True)


def test_load_from_checkpoint_without_a_tokenizer_looks_at_the_one_inside(run, data, tmp_path):
    _, tok = data
    checkpoint = torch.load(run().checkpoint, weights_only=True)
    path = tmp_path / "edited.ckpt"
    torch.save(checkpoint, path)
    assert LitMiniGPT.load_from_checkpoint(path, tokenizer=None).meter.budget.axis == "tokens"
    torch.save({**checkpoint, "tokenizer_fingerprint": "0" * 64}, path)
    with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
        LitMiniGPT.load_from_checkpoint(path)
    for key in ("tokenizer", "tokenizer_fingerprint", "tokenizer_fingerprint_version", "vocab_size"):
        del checkpoint[key]
    torch.save(checkpoint, path)
    for arguments in ({}, {"tokenizer": tok}):
        with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint"):
            LitMiniGPT.load_from_checkpoint(path, **arguments)
        with pytest.warns(UserWarning, match="taken as it is"):
            LitMiniGPT.load_from_checkpoint(path, allow_unverified=True, **arguments)


def test_a_plain_trainers_checkpoints_carry_the_tokenizer_too(data, tmp_path):
    folder, tok = data
    lit = LitMiniGPT(
        MiniGPTConfig(tok.vocab_size, block_size=BLOCK, embedding_dim=16, num_heads=2, num_layers=1),
        budget="bytes=2000",
        tokenizer=tok,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            accelerator="cpu", max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, limit_val_batches=0,
        )  # fmt: skip
        trainer.fit(lit, datamodule=TokenDataModule(folder, BLOCK, 4, tokenizer=tok))
        trainer.save_checkpoint(tmp_path / "c.ckpt")
    verify_checkpoint(tmp_path / "c.ckpt", tok)


# Packings


@pytest.mark.parametrize("packing", ["document", "best_fit", "bos_aligned"])
def test_every_packing_trains_and_resumes(run, data, packing):
    whole = run("whole", "tokens=3000", packing=packing)
    assert whole.curve[-1]["train_loss"] < whole.curve[0]["train_loss"]
    assert 0 < whole.validation_bits_per_byte < 8
    with pytest.raises(RuntimeError, match="stopped by the test"):
        run("parts", "tokens=3000", arguments={"callbacks": [Stops(30)]}, packing=packing)
    parts = run("parts", None, arguments={"resume": True})
    assert same(weights(whole), weights(parts))
    assert whole.options.packing == parts.options.packing == packing
    assert 3000 <= whole.spent.tokens < 3001


# Weights to begin with


def test_a_run_begins_with_given_weights(run, tmp_path):
    first = run("first")
    given = {"weights": first.checkpoint}
    one_step = run("second", "tokens=1", arguments=given, learning_rate=0.0)
    assert same(weights(one_step), weights(first))
    content = torch.load(one_step.checkpoint, weights_only=True)
    assert content["began_with"] == {"checkpoint_sha256": sha256_of(first.checkpoint), "transplant": None}
    assert one_step.steps == 1
    with pytest.raises(ModelError, match=r"another shape: num_layers 2 \(the checkpoint: 1\)"):
        run("third", arguments=given, body={"num_layers": 2})
    assert run("fourth", "tokens=64", arguments=given, body={"dropout": 0.3}).config.dropout == 0.3
    other = train_tokenizer(documents(40, "other"), vocab_size=280, special_tokens=["<|endoftext|>"], min_frequency=1)
    transplant(first.checkpoint, other, tmp_path / "other.ckpt")
    with pytest.raises(TokenizerMismatchError):
        run("fifth", arguments={"weights": tmp_path / "other.ckpt"})
    assert not (tmp_path / "fifth").exists()


def test_a_resumed_run_knows_what_it_began_with(run):
    first = run("first", "tokens=500")
    whole = run("whole", arguments={"weights": first.checkpoint})
    with pytest.raises(RuntimeError, match="stopped by the test"):
        run("parts", arguments={"weights": first.checkpoint, "callbacks": [Stops(20)]})
    parts = run("parts", None, arguments={"resume": True})
    assert same(weights(whole), weights(parts))
    assert "began_with" in torch.load(parts.checkpoint, weights_only=True)
