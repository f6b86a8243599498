import logging
import subprocess
import sys
import warnings

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from minigpt_tok import encode_corpus
from minigpt_tok.data.data_module import TokenDataModule
from minigpt_tok.data.order import ResumableSampler
from minigpt_tok.errors import DataError, TokenizerMismatchError


class Watcher(L.LightningModule):
    """A model of next to nothing that remembers which blocks it was given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen, self.seen_in_validation = [], []

    def training_step(self, batch, batch_index):
        inputs, targets = batch
        self.seen.append(inputs.tolist())
        return self.weight * targets.float().mean()

    def validation_step(self, batch, batch_index):
        self.seen_in_validation.append(batch[0].tolist())

    def test_step(self, batch, batch_index):
        self.seen_in_validation.append(batch[0].tolist())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    out = tmp_path_factory.mktemp("ids")
    texts = [f"text {n} of the cat that sat on the mat with number {n * n}.\n" for n in range(40)]
    encode_corpus({"train": texts, "validation": texts[:9], "test": texts[9:12]}, tokenizer, out)
    return out


def module_of(folder, tokenizer, **options):
    return TokenDataModule(folder, 16, 4, tokenizer=tokenizer, seed=3, **options)


def fit(model, module, tmp_path, *, ckpt_path=None, callbacks=(), **options):
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, "accelerator": "cpu", **options}
    trainer = L.Trainer(
        logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        enable_checkpointing=bool(callbacks), callbacks=list(callbacks), log_every_n_steps=1, **options,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*not resumable.*")
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        trainer.fit(model, datamodule=module, ckpt_path=ckpt_path)
    return trainer


def expected(dataset, epoch, **options):
    sampler = ResumableSampler(len(dataset), 4, seed=3, **options)
    sampler.set_epoch(epoch)
    return [[dataset[i][0].tolist() for i in batch] for batch in sampler]


def test_training_is_shuffled_by_epoch_and_validation_is_in_order(folder, tokenizer, tmp_path):
    module, model = module_of(folder, tokenizer), Watcher()
    fit(model, module, tmp_path)
    train = module.datasets["train"]
    assert len(train) > 20
    assert model.seen == expected(train, 0) + expected(train, 1)
    validation = expected(module.datasets["validation"], 0, shuffle=False)
    assert model.seen_in_validation == validation * 2
    assert model.seen_in_validation[0][0] == module.datasets["validation"][0][0].tolist()


@pytest.mark.parametrize(("every", "num_workers"), [(1, 0), (3, 0), (5, 0), (3, 2)])
def test_a_resumed_run_sees_what_the_whole_run_would_have_seen(folder, tokenizer, tmp_path, every, num_workers):
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=every, save_top_k=-1)
    whole = Watcher()
    fit(whole, module_of(folder, tokenizer), tmp_path, callbacks=[saver])
    steps = len(expected(module_for(folder, tokenizer).datasets["train"], 0))
    assert len(whole.seen) == 2 * steps
    saved = sorted(tmp_path.glob("step=*.ckpt"), key=lambda path: int(path.stem.split("=")[1]))
    assert len(saved) == 2 * steps // every
    for path in saved[:-1]:
        step = int(path.stem.split("=")[1])
        if num_workers and step not in (3, 6):
            continue
        model = Watcher()
        fit(model, module_of(folder, tokenizer, num_workers=num_workers), tmp_path, ckpt_path=path)
        assert model.seen == whole.seen[step:], f"resumed after step {step} of {steps} in an epoch"
        assert torch.equal(model.weight, whole.weight)


def module_for(folder, tokenizer):
    module = module_of(folder, tokenizer)
    module.setup()
    return module


def test_checkpoints_at_the_end_of_an_epoch_and_within_validation(folder, tokenizer, tmp_path):
    saver = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    whole = Watcher()
    trainer = fit(whole, module_of(folder, tokenizer), tmp_path, callbacks=[saver], max_epochs=3)
    steps = trainer.num_training_batches
    for epoch in (0, 1):
        model = Watcher()
        fit(model, module_of(folder, tokenizer), tmp_path, ckpt_path=tmp_path / f"epoch={epoch}.ckpt", max_epochs=3)
        assert model.seen == whole.seen[(epoch + 1) * steps :]


def test_stopped_by_steps_and_gone_on_with_more(folder, tokenizer, tmp_path):
    whole, first, second = Watcher(), Watcher(), Watcher()
    fit(whole, module_of(folder, tokenizer), tmp_path, max_epochs=-1, max_steps=20)
    trainer = fit(first, module_of(folder, tokenizer), tmp_path, max_epochs=-1, max_steps=13)
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    fit(
        second, module_of(folder, tokenizer), tmp_path, ckpt_path=tmp_path / "stopped.ckpt", max_epochs=-1, max_steps=20
    )
    assert first.seen + second.seen == whole.seen


def test_what_is_saved_is_plain(folder, tokenizer, tmp_path):
    module = module_of(folder, tokenizer)
    trainer = fit(Watcher(), module, tmp_path, max_steps=2)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    state = torch.load(tmp_path / "x.ckpt", weights_only=True)["TokenDataModule"]
    assert state["tokenizer_fingerprint"] == tokenizer.fingerprint
    assert state["order"]["position"] == 8
    assert state["data_fingerprint"] == module.datasets["train"].fingerprint
    assert module_of(folder, tokenizer).state_dict() == {}


def test_other_data_is_not_gone_on_with(folder, tokenizer, tmp_path):
    trainer = fit(Watcher(), module_of(folder, tokenizer), tmp_path, max_steps=2)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    other = TokenDataModule(folder, 15, 4, tokenizer=tokenizer)
    with pytest.raises(DataError, match="other text, tokenizer, packing, block size or stride"):
        fit(Watcher(), other, tmp_path, ckpt_path=tmp_path / "x.ckpt")


def test_every_split_must_be_of_the_tokenizer(folder, tokenizer, other_tokenizer, tmp_path):
    with pytest.raises(TokenizerMismatchError, match=r"train\.safetensors"):
        module_of(folder, other_tokenizer).setup()
    mixed = tmp_path / "mixed"
    encode_corpus({"train": ["some text " * 50]}, tokenizer, mixed)
    encode_corpus({"train": ["some text " * 50]}, other_tokenizer, tmp_path / "other")
    (tmp_path / "other" / "train.safetensors").rename(mixed / "test.safetensors")
    with pytest.raises(TokenizerMismatchError, match=r"test\.safetensors"):
        module_of(mixed, tokenizer).setup()


def test_splits_with_other_separators_and_of_other_corpora(tokenizer, tmp_path, caplog):
    text = ["some text " * 50]
    encode_corpus({"train": text}, tokenizer, tmp_path / "a")
    encode_corpus({"train": text, "test": text}, tokenizer, tmp_path / "b", separator=None)
    (tmp_path / "b" / "test.safetensors").rename(tmp_path / "a" / "test.safetensors")
    with pytest.raises(DataError, match="different separators"):
        module_of(tmp_path / "a", tokenizer).setup()


def test_missing_splits(tokenizer, tmp_path):
    with pytest.raises(DataError, match=r"no such id file|has no train\.safetensors"):
        module_of(tmp_path, tokenizer).setup()
    encode_corpus(["some text " * 50], tokenizer, tmp_path)
    module, model = module_of(tmp_path, tokenizer), Watcher()
    fit(model, module, tmp_path, max_epochs=1)
    assert model.seen
    assert model.seen_in_validation == []
    with pytest.raises(DataError, match="has no test split; it has train"):
        module.test_dataloader()


def test_the_test_split(folder, tokenizer, tmp_path):
    module, model = module_of(folder, tokenizer), Watcher()
    trainer = L.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu", default_root_dir=tmp_path)
    trainer.test(model, datamodule=module, verbose=False)
    assert model.seen_in_validation == expected(module.datasets["test"], 0, shuffle=False)


def test_a_tokenizers_file_does_too(folder, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "t.json")
    assert module_of(folder, tmp_path / "t.json").tokenizer == tokenizer


def test_overfitting_and_limits_of_lightning_work(folder, tokenizer, tmp_path):
    model = Watcher()
    fit(model, module_of(folder, tokenizer), tmp_path, overfit_batches=2, max_epochs=2)
    assert len(model.seen) == 4
    assert model.seen[:2] == model.seen[2:]
    limited, whole = Watcher(), Watcher()
    fit(limited, module_of(folder, tokenizer), tmp_path, limit_train_batches=5, max_epochs=4)
    fit(whole, module_of(folder, tokenizer), tmp_path)
    assert limited.seen == whole.seen[:20]  # no block is skipped


TWO_RANKS = """
import json, sys
import lightning as L
import torch
from minigpt_tok.data.data_module import TokenDataModule

torch.set_num_threads(1)

class Watcher(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen, self.seen_in_validation = [], []
    def training_step(self, batch, index):
        self.seen += batch[0].tolist()
        return self.weight * batch[1].float().mean()
    def validation_step(self, batch, index):
        self.seen_in_validation += batch[0].tolist()
    def on_fit_end(self):
        with open(f"seen{self.global_rank}.json", "w") as file:
            json.dump([self.seen, self.seen_in_validation], file)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

if __name__ == "__main__":
    module = TokenDataModule(sys.argv[1], 16, 4, tokenizer="t.json", seed=3)
    L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, num_sanity_val_steps=0,
    ).fit(Watcher(), datamodule=module)
"""


def test_two_processes_train_on_different_blocks_and_all_of_them(folder, tokenizer, tmp_path):
    import json

    tokenizer.save(tmp_path / "t.json")
    (tmp_path / "run.py").write_text(TWO_RANKS)
    done = subprocess.run([sys.executable, "run.py", folder], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"seen{rank}.json").read_text()) for rank in range(2)]
    module = module_for(folder, tokenizer)
    for part, split in ((0, "train"), (1, "validation")):
        every_block = sorted(inputs.tolist() for inputs, _ in module.datasets[split])
        given = sorted(ranks[0][part] + ranks[1][part])
        left_out = ResumableSampler(len(every_block), 4, world_size=2).n_left_out if split == "train" else 0
        assert len(given) == len(every_block) - left_out
        assert all(block in every_block for block in given)
        if not left_out:
            assert given == every_block


def test_it_says_when_splits_are_of_several_corpora(tokenizer, tmp_path, caplog):
    text = ["some text " * 50]
    encode_corpus({"train": text}, tokenizer, tmp_path / "a")
    from minigpt_tok.data.corpora import open_corpus

    encode_corpus(open_corpus({"train": text, "test": text}, name="elsewhere"), tokenizer, tmp_path / "b")
    (tmp_path / "b" / "test.safetensors").rename(tmp_path / "a" / "test.safetensors")
    with caplog.at_level(logging.WARNING):
        module_of(tmp_path / "a", tokenizer).setup()
    assert "several corpora: elsewhere, texts" in caplog.text
