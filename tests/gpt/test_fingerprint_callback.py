"""The Lightning callback: embeds on every save, verifies on every load, of whatever kind and in whatever stage."""

import copy
import os
import warnings

import lightning as L
import pytest
import torch
from gpt.fingerprinted_runs import QUIET, STAGES, Lit, make, module, run, trainer, write_ids
from lightning.pytorch.callbacks import ModelCheckpoint

from minigpt_tok import TokenizerFingerprint, TokenizerMismatchError
from minigpt_tok.checkpoint import embed_fingerprint, load_model, tokenizer_of, verify_checkpoint
from minigpt_tok.data.identity import data_fingerprint
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.model import MiniGPT

pytestmark = QUIET


# Saving


@pytest.mark.parametrize("weights_only", [False, True])
def test_a_checkpoint_carries_its_tokenizer(tmp_path, tok, data, weights_only):
    path = make(tmp_path, tok, data, weights_only=weights_only)
    checkpoint = torch.load(path, weights_only=True)
    assert ("optimizer_states" in checkpoint) is not weights_only
    assert checkpoint["tokenizer_fingerprint"] == tok.fingerprint
    assert checkpoint["tokenizer_fingerprint_version"] == 1
    assert checkpoint["vocab_size"] == 270
    assert checkpoint["data_fingerprint"] == data_fingerprint(data)
    assert tokenizer_of(path).training == tok.training
    verify_checkpoint(path, tok)


@pytest.mark.parametrize("weights_only", [False, True])
def test_model_checkpoint_saves_it_as_well(tmp_path, tok, data, weights_only):
    saving = ModelCheckpoint(tmp_path / "saved", save_last=True, save_weights_only=weights_only)
    trainer(tmp_path, TokenizerFingerprint(tok), saving, enable_checkpointing=True).fit(
        Lit(), datamodule=module(data, tok)
    )
    names = os.listdir(tmp_path / "saved")
    assert len(names) == 2
    for name in names:
        verify_checkpoint(tmp_path / "saved" / name, tok)


def test_a_model_is_loaded_from_it(tmp_path, tok, data):
    model, tokenizer = load_model(make(tmp_path, tok, data, pad_vocab_to=64))
    assert tokenizer == tok
    assert model.config.pad_vocab_to == 64
    assert model(torch.arange(4)[None]).shape == (1, 4, 270)


def test_the_callback_is_missed_where_it_is_missing(tmp_path, tok, data):
    path = make(tmp_path, tok, data)
    with pytest.warns(UserWarning, match="TokenizerFingerprint"):
        run(tmp_path, "fit", None, path, datamodule=module(data, tok))


# Loading


@pytest.mark.parametrize("stage", STAGES)
def test_the_same_tokenizer_is_silent(tmp_path, tok, data, stage):
    path = make(tmp_path, tok, data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run(tmp_path, stage, TokenizerFingerprint(tok), path, datamodule=module(data, tok)) == 1
    assert not [warning for warning in caught if "fingerprint" in str(warning.message)]


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_another_tokenizer_of_equal_size_is_refused_everywhere(
    tmp_path, tok, other, data, other_data, stage, weights_only
):
    path = make(tmp_path, tok, data, weights_only=weights_only)
    model = Lit()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(TokenizerMismatchError) as caught:
        run(tmp_path, stage, TokenizerFingerprint(other), path, model, datamodule=module(other_data, other))
    for part in (str(path), tok.fingerprint, other.fingerprint, "the merge at rank 0: '", "of 270 ids change meaning"):
        assert part in str(caught.value)
    assert model.steps == 0
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("stage", STAGES)
def test_another_size_is_named_before_torch_complains_of_shapes(tmp_path, tok, data, stage):
    path = make(tmp_path, tok, data)
    small = tok.truncated(260)
    folder = write_ids(tmp_path / "small", small)
    with pytest.raises(TokenizerMismatchError, match=r"the vocabulary size: 270 in .*, 260 in"):
        run(tmp_path, stage, TokenizerFingerprint(small), path, Lit(260), datamodule=module(folder, small))


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_no_fingerprint(tmp_path, tok, data, stage, weights_only):
    if stage == "fit" and weights_only:
        pytest.skip("Lightning itself cannot resume from weights alone")
    path = make(tmp_path, tok, data, callback=False, weights_only=weights_only)
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint"):
        run(tmp_path, stage, TokenizerFingerprint(tok), path, datamodule=module(data, tok))
    with pytest.warns(UserWarning, match="has no tokenizer fingerprint") as caught:
        steps = run(
            tmp_path, stage, TokenizerFingerprint(tok, allow_unverified=True), path, datamodule=module(data, tok)
        )
    assert steps == 1
    assert len([warning for warning in caught if "has no tokenizer fingerprint" in str(warning.message)]) == 1


@pytest.mark.parametrize("stage", STAGES)
def test_a_tampered_checkpoint(tmp_path, tok, other, data, stage):
    path = make(tmp_path, tok, data)
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["tokenizer"] = other.to_json()
    torch.save(checkpoint, path)
    with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
        run(tmp_path, stage, TokenizerFingerprint(tok, allow_unverified=True), path, datamodule=module(data, tok))


def test_rows_in_the_checkpoint_that_do_not_fit(tmp_path, tok, data):
    path = make(tmp_path, tok, data)
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"]["model.token_embedding.weight"] = torch.zeros(300, 8)
    torch.save(checkpoint, path)
    with pytest.raises(TokenizerMismatchError, match=r"model\.token_embedding\.weight has 300 rows.*270 ids"):
        run(tmp_path, "test", TokenizerFingerprint(tok), path, datamodule=module(data, tok))


def test_best_and_last_are_verified_too(tmp_path, tok, other, data):
    saving = ModelCheckpoint(tmp_path / "saved")
    callback = TokenizerFingerprint(tok)
    model = Lit()
    running = trainer(tmp_path, callback, saving, enable_checkpointing=True)
    running.fit(model, datamodule=module(data, tok))
    running.test(model, datamodule=module(data, tok), ckpt_path="best")
    torch.save(
        embed_fingerprint({"state_dict": model.state_dict(), "pytorch-lightning_version": L.__version__}, other),
        saving.best_model_path,
    )
    with pytest.raises(TokenizerMismatchError, match="rank 0"):
        running.test(model, datamodule=module(data, tok), ckpt_path="best")


def test_hooks_alone_do_the_same(tmp_path, tok, other):
    """Strategies that write sharded checkpoints go past the trainer's checkpoint IO; the hooks are called there."""
    running, model = trainer(tmp_path), Lit()
    checkpoint = {"state_dict": model.state_dict()}
    TokenizerFingerprint(tok).on_save_checkpoint(running, model, checkpoint)
    verify_checkpoint(checkpoint, tok)
    TokenizerFingerprint(tok).on_load_checkpoint(running, model, checkpoint)
    with pytest.raises(TokenizerMismatchError, match="rank 0"):
        TokenizerFingerprint(other).on_load_checkpoint(running, model, checkpoint)


# The model


@pytest.mark.parametrize("stage", STAGES)
def test_a_model_of_another_size(tmp_path, tok, data, stage):
    with pytest.raises(TokenizerMismatchError, match=r"280.*270 ids"):
        getattr(trainer(tmp_path, TokenizerFingerprint(tok)), stage)(Lit(280), datamodule=module(data, tok))


def test_a_model_padded_to_a_multiple(tmp_path, tok, data):
    path = make(tmp_path, tok, data, pad_vocab_to=64)
    verify_checkpoint(path, tok)
    running = trainer(tmp_path, TokenizerFingerprint(tok), steps=3)
    running.fit(Lit(pad_vocab_to=64), datamodule=module(data, tok), ckpt_path=path)


class LateLit(Lit):
    """Makes its layers when the trainer says so."""

    def __init__(self, rows):
        super().__init__()
        del self.model
        self.rows = rows

    def configure_model(self):
        if not hasattr(self, "model"):
            self.model = MiniGPT(
                MiniGPTConfig(self.rows, block_size=8, embedding_dim=8, num_heads=2, num_layers=1, dropout=0.0)
            )


@pytest.mark.parametrize("stage", STAGES)
def test_a_model_that_is_made_late(tmp_path, tok, data, stage):
    with pytest.raises(TokenizerMismatchError, match=r"280.*270 ids"):
        getattr(trainer(tmp_path, TokenizerFingerprint(tok)), stage)(LateLit(280), datamodule=module(data, tok))
    getattr(trainer(tmp_path, TokenizerFingerprint(tok)), stage)(LateLit(270), datamodule=module(data, tok))
