"""The Lightning callback and the files of checkpoints: how they are written, and what else is pickled."""

import copy
import errno
import os
import pickle
import shutil
import warnings

import pytest
import torch
from gpt.fingerprinted_runs import QUIET, Lit, make, module, trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

from minigpt_tok import TokenizerFingerprint
from minigpt_tok.checkpoint import verify_checkpoint
from minigpt_tok.errors import DataError
from minigpt_tok.gpt.checkpoint_io import AtomicCheckpointIO

pytestmark = QUIET


def test_a_failed_save_leaves_the_last_good_checkpoint(tmp_path, tok, data, monkeypatch):
    model = Lit()
    running = trainer(tmp_path, TokenizerFingerprint(tok))
    running.fit(model, datamodule=module(data, tok))
    path = tmp_path / "saved" / "last.ckpt"
    running.save_checkpoint(path)
    before = path.read_bytes()

    def full_disk(value, file, *args, **kwargs):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        running.save_checkpoint(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["last.ckpt"]


def test_no_file_is_moved_between_file_systems(tmp_path, tok, data, monkeypatch):
    """Lightning's own way writes to the system's temporary folder and copies from there where that is another disk."""

    def move(*args, **kwargs):
        raise AssertionError("not atomic")

    monkeypatch.setattr(shutil, "move", move)
    verify_checkpoint(make(tmp_path, tok, data), tok)


def test_other_ways_of_writing_are_kept(tmp_path, tok, other, data):
    class Counting(TorchCheckpointIO):
        saved = loaded = removed = torn_down = 0

        def save_checkpoint(self, checkpoint, path, storage_options=None):
            self.saved += 1
            assert checkpoint["tokenizer_fingerprint"] == tok.fingerprint
            super().save_checkpoint(checkpoint, path, storage_options)

        def load_checkpoint(self, path, map_location=None, weights_only=None):
            self.loaded += 1
            return super().load_checkpoint(path, map_location, weights_only)

        def remove_checkpoint(self, path):
            self.removed += 1
            super().remove_checkpoint(path)

        def teardown(self):
            self.torn_down += 1

    counting = Counting()
    model = Lit()
    saving = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=1)
    running = trainer(tmp_path, TokenizerFingerprint(tok), saving, plugins=[counting], enable_checkpointing=True)
    running.fit(model, datamodule=module(data, tok))
    assert (counting.saved, counting.removed) == (2, 1)
    running.test(model, datamodule=module(data, tok), ckpt_path="best")
    assert counting.loaded == 1
    assert counting.torn_down == 2
    running.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    assert counting.saved == 3


def test_saving_in_another_thread(tmp_path, tok, other, data):
    model = Lit()
    saving = ModelCheckpoint(tmp_path / "saved")
    running = trainer(
        tmp_path,
        TokenizerFingerprint(tok),
        saving,
        plugins=[AsyncCheckpointIO(AtomicCheckpointIO())],
        enable_checkpointing=True,
    )
    running.fit(model, datamodule=module(data, tok))
    verify_checkpoint(saving.best_model_path, tok)


def test_hyper_parameters_that_cannot_be_read_back_are_said_once(tmp_path, tok, data):
    running = trainer(tmp_path, TokenizerFingerprint(tok))
    running.fit(Lit(odd=object()), datamodule=module(data, tok))
    with pytest.warns(UserWarning, match=r"hyper_parameters.*odd.*object"):
        running.save_checkpoint(tmp_path / "1.ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        running.save_checkpoint(tmp_path / "2.ckpt")
    assert (tmp_path / "2.ckpt").is_file()


def test_it_can_be_pickled_and_copied(tok, data):
    callback = TokenizerFingerprint(tok, data=data, allow_unverified=True)
    for again in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert again.tokenizer == tok
        assert again.state_dict() == callback.state_dict()
        assert again.state_key == callback.state_key == "TokenizerFingerprint"


def test_a_trainer_that_has_run_can_be_pickled(tmp_path, tok, data):
    running = trainer(tmp_path, TokenizerFingerprint(tok))
    running.fit(Lit(), datamodule=module(data, tok))
    pickle.loads(pickle.dumps(running.strategy.checkpoint_io))


def test_what_it_is_given_is_checked_at_once(tok, tmp_path):
    with pytest.raises(TypeError, match="tokenizer"):
        TokenizerFingerprint("tokenizer.json")
    with pytest.raises(DataError):
        TokenizerFingerprint(tok, data=tmp_path)
