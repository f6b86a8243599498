"""The Lightning callback: embeds on every save, verifies on every load, of whatever kind and in whatever stage."""

import copy
import errno
import itertools
import os
import pickle
import shutil
import warnings

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from torch.utils.data import DataLoader, TensorDataset

from minigpt_tok import Tokenizer, TokenizerFingerprint, TokenizerMismatchError
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.checkpoint import embed_fingerprint, load_model, tokenizer_of, verify_checkpoint
from minigpt_tok.data.data_module import TokenDataModule
from minigpt_tok.data.id_file import IdFileMetadata, write_id_file
from minigpt_tok.data.identity import data_fingerprint
from minigpt_tok.data.stream import TokenStream
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError
from minigpt_tok.gpt.checkpoint_io import AtomicCheckpointIO
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.model import MiniGPT

pytestmark = [
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


@pytest.fixture(scope="module")
def tok():
    return train()


@pytest.fixture(scope="module")
def other():
    return train(OTHER)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


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


@pytest.fixture(scope="module")
def data(tok, tmp_path_factory):
    return write_ids(tmp_path_factory.mktemp("data"), tok)


@pytest.fixture(scope="module")
def other_text(tok, tmp_path_factory):
    """Ids of the same tokenizer of another text."""
    return write_ids(tmp_path_factory.mktemp("other_text"), tok, OTHER)


@pytest.fixture(scope="module")
def other_data(other, tmp_path_factory):
    """Ids of another tokenizer of equal size."""
    return write_ids(tmp_path_factory.mktemp("other_data"), other)


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


# Data


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


# Files


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
