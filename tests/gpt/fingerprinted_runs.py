"""Small Lightning runs with the callback `TokenizerFingerprint`: ids, a model, a trainer, checkpoints, for the tests of it."""

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from minigpt_tok import Tokenizer, TokenizerFingerprint
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.data.data_module import TokenDataModule
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.model import MiniGPT

QUIET = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]
TEXT = "the cat sat on the mat. the cat ate the rat. " * 8
OTHER = "the dog dug in the bog. a fog and a frog dig. " * 8
STAGES = ("fit", "validate", "test", "predict")


def train(text=TEXT, size=270):
    return Tokenizer(*train_model([text], size, get_recipe("hf", min_frequency=1)))


def write_ids(folder, tokenizer, text=TEXT):
    for split in ("train", "validation", "test"):
        metadata = IdFileMetadata(
            tokenizer_fingerprint=tokenizer.fingerprint,
            tokenizer_fingerprint_version=1,
            vocab_size=tokenizer.vocab_size,
            corpus="c",
            split=split,
        )
        write_id_file(folder / f"{split}.safetensors", [(text, tokenizer.encode_to_numpy(text))], metadata)
    return folder


class Lit(L.LightningModule):
    def __init__(self, vocab_size=270, pad_vocab_to=1, **hparams):
        super().__init__()
        if hparams:
            self.save_hyperparameters(hparams)
        torch.manual_seed(0)
        self.model = MiniGPT(
            MiniGPTConfig(
                vocab_size, block_size=8, embedding_dim=8, num_heads=2, num_layers=1, pad_vocab_to=pad_vocab_to
            )
        )
        self.steps = 0
        self.was_set_up = False

    def setup(self, stage):
        self.was_set_up = True

    def training_step(self, batch, batch_idx):
        self.steps += 1
        return self.model.loss(*batch)

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.steps += 1
        self.log("loss", self.model.loss(*batch))

    def test_step(self, batch, batch_idx):
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch, batch_idx):
        self.steps += 1
        return self.model(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Predicting(TokenDataModule):
    def predict_dataloader(self):
        return self.test_dataloader()


def module(folder, tokenizer):
    return Predicting(folder, 8, 2, tokenizer=tokenizer)


def loader(folder, split="train", batch_size=2):
    return DataLoader(TokenDataset(folder, 8, split=split), batch_size=batch_size)


def trainer(tmp_path, *callbacks, steps=2, **settings):
    return L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        limit_val_batches=1,
        limit_test_batches=1,
        limit_predict_batches=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        **{"enable_checkpointing": False} | settings,
    )


def make(tmp_path, tokenizer, folder, weights_only=False, callback=True, by_module=True, **settings):
    """A checkpoint of two steps of training."""
    callbacks = [TokenizerFingerprint(tokenizer)] if callback else []
    fitting = trainer(tmp_path, *callbacks)
    source = {"datamodule": module(folder, tokenizer)} if by_module else {"train_dataloaders": loader(folder)}
    fitting.fit(Lit(tokenizer.vocab_size, **settings), **source)
    fitting.save_checkpoint(tmp_path / "c.ckpt", weights_only=weights_only)
    return tmp_path / "c.ckpt"


def run(tmp_path, stage, callback, path, model=None, **source):
    """One stage from a checkpoint; gives the steps that the model made."""
    model = model or Lit()
    running = trainer(tmp_path, *([callback] if callback else []), steps=3)
    getattr(running, stage)(model, ckpt_path=path, **source)
    return model.steps
