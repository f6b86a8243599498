"""The Lightning callback and the data: ids of another tokenizer are refused, and so is going on with other data."""

import itertools

import pytest
import torch
from gpt.fingerprinted_runs import OTHER, QUIET, STAGES, TEXT, Lit, loader, make, module, run, trainer, write_ids
from torch.utils.data import DataLoader, TensorDataset

from minigpt_tok import TokenizerFingerprint, TokenizerMismatchError
from minigpt_tok.data.data_module import TokenDataModule
from minigpt_tok.data.identity import data_fingerprint
from minigpt_tok.data.stream import TokenStream
from minigpt_tok.errors import DataError

pytestmark = QUIET


@pytest.mark.parametrize("stage", STAGES)
def test_a_data_module_of_another_tokenizer(tmp_path, tok, other, other_data, stage):
    model = Lit()
    with pytest.raises(TokenizerMismatchError) as caught:
        getattr(trainer(tmp_path, TokenizerFingerprint(tok)), stage)(model, datamodule=module(other_data, other))
    for part in (str(other_data), tok.fingerprint, other.fingerprint):
        assert part in str(caught.value)
    assert not model.was_set_up  # refused before anything else began


@pytest.mark.parametrize("stage", STAGES)
def test_loaders_of_another_tokenizer(tmp_path, tok, other_data, stage):
    model = Lit()
    argument = "train_dataloaders" if stage == "fit" else "dataloaders"
    with pytest.raises(TokenizerMismatchError, match=r"train\.safetensors"):
        getattr(trainer(tmp_path, TokenizerFingerprint(tok)), stage)(model, **{argument: loader(other_data)})
    assert model.steps == 0


def test_a_validation_loader_of_another_tokenizer(tmp_path, tok, data, other_data):
    model = Lit()
    with pytest.raises(TokenizerMismatchError, match=r"validation\.safetensors"):
        trainer(tmp_path, TokenizerFingerprint(tok)).fit(
            model, loader(data, batch_size=16), [loader(data, "validation"), loader(other_data, "validation")]
        )


def test_a_stream_of_another_tokenizer(tmp_path, tok, other):
    with pytest.raises(TokenizerMismatchError) as caught:
        trainer(tmp_path, TokenizerFingerprint(tok)).fit(Lit(), TokenStream([TEXT], other, 8, 2))
    assert other.fingerprint in str(caught.value)
    trainer(tmp_path, TokenizerFingerprint(tok)).fit(Lit(), TokenStream([TEXT], tok, 8, 2))


def test_data_given_of_another_tokenizer(tmp_path, tok, other_data, data):
    with pytest.raises(TokenizerMismatchError, match=r"train\.safetensors"):
        trainer(tmp_path, TokenizerFingerprint(tok, data=other_data)).fit(Lit(), loader(data))


def test_loaders_of_other_things_are_not_our_concern(tmp_path, tok):
    ids = torch.randint(0, 270, (6, 8))
    running = trainer(tmp_path, TokenizerFingerprint(tok))
    running.fit(Lit(), DataLoader(TensorDataset(ids, ids), batch_size=2))
    running.save_checkpoint(tmp_path / "c.ckpt")
    assert "data_fingerprint" not in torch.load(tmp_path / "c.ckpt", weights_only=True)


def test_the_data_of_loaders_is_named_too(tmp_path, tok, data):
    running = trainer(tmp_path, TokenizerFingerprint(tok))
    running.fit(Lit(), loader(data))
    running.save_checkpoint(tmp_path / "c.ckpt")
    assert torch.load(tmp_path / "c.ckpt", weights_only=True)["data_fingerprint"] == data_fingerprint(data)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("by_module", [True, False])
def test_resuming_with_other_data(tmp_path, tok, data, other_text, given, by_module):
    path = make(tmp_path, tok, data, by_module=by_module)
    source = {"datamodule": module(other_text, tok)} if by_module else {"train_dataloaders": loader(other_text)}
    model = Lit()
    with pytest.raises(DataError) as caught:
        run(tmp_path, "fit", TokenizerFingerprint(tok, other_text if given else None), path, model, **source)
    assert data_fingerprint(data) in str(caught.value)
    assert data_fingerprint(other_text) in str(caught.value)
    assert "allow_other_data=True" in str(caught.value)
    assert model.steps == 0


@pytest.mark.parametrize("by_module", [True, False])
def test_resuming_with_other_data_on_purpose(tmp_path, tok, data, other_text, by_module):
    path = make(tmp_path, tok, data, by_module=by_module)
    callback = TokenizerFingerprint(tok, allow_other_data=True)
    running = trainer(tmp_path, callback, steps=3)
    source = {"datamodule": module(other_text, tok)} if by_module else {"train_dataloaders": loader(other_text)}
    model = Lit()
    with pytest.warns(UserWarning, match=data_fingerprint(data)):
        running.fit(model, ckpt_path=path, **source)
    assert model.steps == 1
    running.save_checkpoint(tmp_path / "new.ckpt")
    assert torch.load(tmp_path / "new.ckpt", weights_only=True)["data_fingerprint"] == data_fingerprint(other_text)


def test_other_data_is_begun_at_its_beginning_however_little_it_is(tmp_path, tok, data, other_text):
    saved, short = tmp_path / "saved.ckpt", tmp_path / "short"
    fitting = trainer(tmp_path, TokenizerFingerprint(tok), steps=5)
    fitting.fit(Lit(), datamodule=module(data, tok))
    fitting.save_checkpoint(saved)
    short.mkdir()
    write_ids(short, tok, OTHER[:60])

    class Watching(Lit):
        def __init__(self):
            super().__init__()
            self.seen = []

        def training_step(self, batch, batch_idx):
            self.seen.append(batch[0].tolist())
            return super().training_step(batch, batch_idx)

    for folder in (short, other_text):
        model = Watching()
        source = module(folder, tok)
        source.setup()
        assert (len(source.datasets["train"]) < 10) == (folder == short)
        with pytest.warns(UserWarning, match="trained on from its beginning"):
            trainer(tmp_path, TokenizerFingerprint(tok, allow_other_data=True), steps=8).fit(
                model, datamodule=source, ckpt_path=saved
            )
        assert model.seen == [inputs.tolist() for inputs, _ in itertools.islice(stream(source), 3)]


def stream(source):
    """Batches of the train split from the beginning of its order on, epoch after epoch."""
    fresh = TokenDataModule(source.data_dir, 8, 2, tokenizer=source.tokenizer)
    loader = fresh.train_dataloader()
    while True:
        yield from loader


@pytest.mark.parametrize("stage", STAGES[1:])
def test_evaluating_on_other_data_is_in_order(tmp_path, tok, data, other_text, stage):
    path = make(tmp_path, tok, data, by_module=False)
    for source in ({"datamodule": module(other_text, tok)}, {"dataloaders": loader(other_text, "test")}):
        assert run(tmp_path, stage, TokenizerFingerprint(tok), path, **source) == 1


def test_the_data_given_is_the_data_trained_on(tmp_path, tok, data, other_text):
    model = Lit()
    with pytest.raises(DataError) as caught:
        trainer(tmp_path, TokenizerFingerprint(tok, data=other_text)).fit(model, loader(data))
    assert data_fingerprint(data) in str(caught.value)
    assert data_fingerprint(other_text) in str(caught.value)
    assert model.steps == 0


def test_one_callback_for_one_fit_after_another(tmp_path, tok, data, other_text):
    """What was learned of one run's data does not stick to the next."""
    callback = TokenizerFingerprint(tok)
    for folder in (data, other_text):
        running = trainer(tmp_path, callback)
        running.fit(Lit(), loader(folder))
        running.save_checkpoint(tmp_path / "c.ckpt")
        assert torch.load(tmp_path / "c.ckpt", weights_only=True)["data_fingerprint"] == data_fingerprint(folder)


def test_one_callback_resumes_another_run(tmp_path, tok, data, other_text):
    callback = TokenizerFingerprint(tok)
    trainer(tmp_path, callback).fit(Lit(), datamodule=module(data, tok))
    path = make(tmp_path, tok, other_text)
    assert run(tmp_path, "fit", callback, path, datamodule=module(other_text, tok)) == 1
