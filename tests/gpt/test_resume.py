"""A run stopped in the middle of an epoch and resumed has the losses of the run that never stopped, bit for bit."""

import itertools
import json
import subprocess
import sys

import pytest
import torch

from minigpt_tok import encode_corpus, train_tokenizer
from minigpt_tok.data.data_module import TokenDataModule

# One script for one process and for two: trains `steps` steps from a checkpoint or from the beginning, writes losses.
SCRIPT = """
import json, sys, warnings
import lightning as L
import torch
from minigpt_tok import MiniGPT, MiniGPTConfig, Tokenizer, TokenDataModule, TokenizerFingerprint

class Lit(L.LightningModule):
    def __init__(self, vocab_size):
        super().__init__()
        torch.manual_seed(0)
        self.model = MiniGPT(MiniGPTConfig(
            vocab_size, block_size=16, embedding_dim=16, num_heads=2, num_layers=1, dropout=0.0))
        self.losses = []
    def training_step(self, batch, index):
        loss = self.model.loss(**{"ids" if k == "inputs" else k: v for k, v in batch.items()}) if isinstance(
            batch, dict) else self.model.loss(*batch)
        self.losses.append(loss.item().hex())
        return loss
    def on_before_optimizer_step(self, optimizer):
        self.losses.append(self.model.token_embedding.weight.grad.double().sum().item().hex())
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

def train(folder, tokenizer, packing, workers, devices, steps, start, end):
    torch.set_num_threads(1)
    tok = Tokenizer.load(tokenizer)
    data = TokenDataModule(folder, 16, 4, tokenizer=tok, packing=packing, num_workers=workers, seed=5)
    lit = Lit(tok.vocab_size)
    trainer = L.Trainer(
        accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", max_epochs=-1, max_steps=steps,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        limit_val_batches=0, callbacks=[TokenizerFingerprint(tok)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(lit, datamodule=data, ckpt_path=start)
    if end:
        trainer.save_checkpoint(end)
    return lit.losses, trainer

if __name__ == "__main__":
    folder, tokenizer, packing, workers, devices, steps, start, end, out = json.loads(sys.argv[1])
    losses, trainer = train(folder, tokenizer, packing, workers, devices, steps, start, end)
    with open(f"{out}{trainer.global_rank}.json", "w") as file:
        json.dump(losses, file)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """(folder of ids, the tokenizer's file)"""
    folder = tmp_path_factory.mktemp("data")
    texts = [f"text {n} of the cat that sat on the mat with number {n * n}. " * (1 + n % 3) for n in range(30)]
    tokenizer = train_tokenizer(texts, 300, special_tokens=["<|endoftext|>"])
    tokenizer.save(folder / "t.json")
    encode_corpus({"train": texts}, tokenizer, folder / "ids")
    return str(folder / "ids"), str(folder / "t.json")


@pytest.fixture(scope="module")
def train():
    space = {"__name__": "script"}
    exec(SCRIPT, space)
    return space["train"]


def opened(folder, tokenizer, packing):
    module = TokenDataModule(folder, 16, 4, tokenizer=tokenizer, packing=packing, seed=5)
    module.setup()
    return module


@pytest.mark.parametrize(
    ("packing", "workers"), [("contiguous", 0), ("contiguous", 2), ("document", 0), ("best_fit", 2)]
)
@pytest.mark.filterwarnings("ignore:.*create 2 worker processes")
def test_in_one_process(data, train, tmp_path, packing, workers):
    folder, tokenizer = data
    blocks = len(opened(folder, tokenizer, packing).datasets["train"])
    epoch = -(-blocks // 4)
    stops = (epoch // 2, epoch + epoch // 3)  # in the middle of the first epoch, and of the second
    end = stops[1] + 5
    whole, _ = train(folder, tokenizer, packing, workers, 1, end, None, None)
    first, _ = train(folder, tokenizer, packing, 0, 1, stops[0], None, tmp_path / "a.ckpt")
    second, _ = train(folder, tokenizer, packing, workers, 1, stops[1], tmp_path / "a.ckpt", tmp_path / "b.ckpt")
    third, _ = train(folder, tokenizer, packing, 0, 1, end, tmp_path / "b.ckpt", None)
    assert len(whole) == 2 * end  # a loss and a sum of gradients each
    assert first + second + third == whole
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert saved["TokenDataModule"]["order"]["position"] == stops[0] * 4
    assert len(saved["data_fingerprint"]) == 64


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_in_two_processes(data, tmp_path, workers):
    """Under DDP with gloo; each rank's own losses are compared."""
    (tmp_path / "run.py").write_text(SCRIPT)

    def run(name, steps, start=None, end=None):
        arguments = [*data, "document", workers, 2, steps, start and str(start), end and str(end), name]
        done = subprocess.run(
            [sys.executable, "run.py", json.dumps(arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return [json.loads((tmp_path / f"{name}{rank}.json").read_text()) for rank in range(2)]

    whole = run("whole", 14)
    first = run("first", 5, end=tmp_path / "a.ckpt")
    second = run("second", 14, start=tmp_path / "a.ckpt")
    assert len(opened(*data, "document").train_dataloader()) // 2 in range(7, 14)  # 5 is in the middle
    for rank in range(2):
        assert first[rank] + second[rank] == whole[rank]
    assert whole[0] != whole[1]  # each rank has batches of its own


@pytest.mark.slow
def test_from_two_processes_to_one_no_block_is_skipped_or_met_again(data, tmp_path):
    folder, tokenizer = data
    (tmp_path / "run.py").write_text(SCRIPT)
    arguments = [folder, tokenizer, "contiguous", 0, 2, 3, None, str(tmp_path / "a.ckpt"), "first"]
    done = subprocess.run(
        [sys.executable, "run.py", json.dumps(arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    order = torch.load(tmp_path / "a.ckpt", weights_only=True)["TokenDataModule"]["order"]
    assert (order["epoch"], order["position"]) == (0, 3 * 2 * 4)
    loader = opened(folder, tokenizer, "contiguous").train_dataloader()
    stream = [inputs.tolist() for inputs, _ in loader]
    loader.load_state_dict(order)
    resumed = [inputs.tolist() for inputs, _ in itertools.islice(loader, 5)]
    assert resumed == stream[6:11]
