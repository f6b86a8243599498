"""`TokenizerFingerprint`: binds whatever a Lightning trainer saves and loads to one tokenizer.

What is checked, and where it is hooked in (read from the source of Lightning 2.6):

| when | what | how |
| --- | --- | --- |
| `setup`, every stage | `data` and the data module's id files are of this tokenizer | `setup` |
| the same | the model's embedding has a row for every id | `setup`; on start, for `configure_model` |
| a stage starts | the loaders' id files are of this tokenizer | `on_train_start`, `on_validation_start`, … |
| every save | tokenizer, fingerprint and the data's fingerprint go in | the strategy's checkpoint IO, `on_save_checkpoint` |
| every load: fit, validate, test, predict | `verify_checkpoint` | the strategy's checkpoint IO, `on_load_checkpoint` |
| resuming a fit | the data is that of the checkpoint | after loading, or when training starts |

A callback's own hooks would not do. `on_load_checkpoint` is called in all four stages, but after the weights have been
loaded, so another vocabulary size ends in torch's words about shapes; and neither it nor `on_save_checkpoint` is called
for checkpoints of weights alone (`save_weights_only=True`). Hence the checkpoint IO; the hooks remain for strategies
that go past it (FSDP, DeepSpeed).

Where a strategy runs the stages in processes of their own (`ddp_spawn`, `ddp_fork`), the parent is not set up: call
`trainer.save_checkpoint(weights_only=True)` there, after a fit, and nothing is embedded. What `ModelCheckpoint` saves is.

`LightningModule.load_from_checkpoint` knows no trainer, and so no callbacks. `LitMiniGPT` checks by itself there; for
modules of your own use `minigpt_tok.checkpoint.load_model`, or call `verify_checkpoint` first.
"""

import warnings
from typing import Any

import lightning as L
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.trainer.states import TrainerFn

from minigpt_tok.checkpoint import verify_content
from minigpt_tok.checkpoint_binding import DATA_KEY, embed
from minigpt_tok.checkpoint_files import refuse_other_types
from minigpt_tok.data.identity import data_fingerprint, id_metadata
from minigpt_tok.data.stream import TokenStream
from minigpt_tok.errors import DataError, FormatError, TokenizerMismatchError
from minigpt_tok.files import StrPath
from minigpt_tok.gpt.checkpoint_io import AtomicCheckpointIO, GuardedCheckpointIO
from minigpt_tok.gpt.embedding_rows import check_rows, config_of, embedding_rows, module_checkpoint
from minigpt_tok.tokenizer import Tokenizer


class TokenizerFingerprint(L.Callback):
    """Embeds the tokenizer in every checkpoint that a trainer saves, and verifies every one that it loads.

    Attributes:
        tokenizer: the one whose ids the model sees.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        data: Any = None,
        allow_unverified: bool = False,
        *,
        allow_other_data: bool = False,
    ) -> None:
        """Nothing is hooked in before a trainer runs.

        Args:
            tokenizer: the one whose ids the model sees.
            data: what it is trained on, as `minigpt_tok.data.identity.id_metadata` takes it: the folder of an encoded
                corpus, say. `None`: what the trainer's data module or train loader has.
            allow_unverified: accept checkpoints without a fingerprint, with a warning.
            allow_other_data: go on with a fit on other data than that of the checkpoint, with a warning.

        Raises:
            DataError, FormatError, FileNotFoundError: `data` leads to no id file.
        """
        if not isinstance(tokenizer, Tokenizer):
            raise TypeError(f"tokenizer is {type(tokenizer).__name__}, not a Tokenizer; see Tokenizer.load")
        self.tokenizer = tokenizer
        self.allow_unverified = allow_unverified
        self.allow_other_data = allow_other_data
        self._text = tokenizer.to_json()  # once, and now: a tokenizer that has no such form is said before training
        self._data = data
        self._given = None if data is None else data_fingerprint(data)
        self._trains_on: str | None = self._given
        self._resumes_from: str | None = None  # the data fingerprint of a loaded checkpoint, until it is compared
        self._model_config: dict[str, Any] | None = None
        self._fitting = self._model_checked = self._loaded = self._said = False

    @property
    def state_key(self) -> str:
        """Where a checkpoint keeps this callback's state: one name, also for subclasses."""
        return "TokenizerFingerprint"

    def state_dict(self) -> dict[str, Any]:
        """Not read back; that there is any makes Lightning say so where this callback is missing at load."""
        return {"tokenizer_fingerprint": self.tokenizer.fingerprint}

    # Before anything runs

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Check data and model, and stand in the way of checkpoints.

        Raises:
            TokenizerMismatchError: ids of another tokenizer, or an embedding that does not fit.
        """
        self._fitting = trainer.state.fn == TrainerFn.FITTING
        self._trains_on, self._resumes_from = self._given, None
        self._model_checked = self._loaded = False
        self._check_ids(self._data)
        data_module = getattr(trainer, "datamodule", None)
        self._check_ids(data_module)
        if self._trains_on is None and id_metadata(data_module):
            self._trains_on = data_fingerprint(data_module)
        self._check_model(pl_module)
        inner = trainer.strategy.checkpoint_io
        if isinstance(inner, GuardedCheckpointIO):
            inner = inner.inner
        if type(inner) is TorchCheckpointIO:
            inner = AtomicCheckpointIO()
        trainer.strategy.checkpoint_io = GuardedCheckpointIO(inner, self._save, self._load)

    def _check_ids(self, data: Any) -> None:
        if isinstance(data, TokenStream) and data.tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise TokenizerMismatchError(
                f"the batches are tokenized with {data.tokenizer.fingerprint}, and this run's tokenizer is "
                f"{self.tokenizer.fingerprint}: give both the same"
            )
        for path, metadata in id_metadata(data).items():
            if metadata.tokenizer_fingerprint != self.tokenizer.fingerprint:
                raise TokenizerMismatchError(
                    f"{path} was encoded with another tokenizer than this run's\n"
                    f"  the ids'     {metadata.tokenizer_fingerprint} ({metadata.vocab_size:,} ids)\n"
                    f"  this run's   {self.tokenizer.fingerprint} ({self.tokenizer.vocab_size:,} ids)\n"
                    "To train on these ids, give the tokenizer that made them. To use this tokenizer, encode the corpus with it."
                )

    def _check_model(self, pl_module: L.LightningModule) -> None:
        if self._model_checked:
            return
        content = module_checkpoint(pl_module)
        self._model_checked = bool(embedding_rows(content["state_dict"]))
        self._model_config = content.get("config")
        check_rows(content, self.tokenizer.vocab_size, "the model")

    # Once the loaders are there

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the train loaders' ids, and that a resumed run goes on with its data."""
        self._check_model(pl_module)
        self._check_ids(trainer.train_dataloader)
        if id_metadata(trainer.train_dataloader):
            found = data_fingerprint(trainer.train_dataloader)
            if self._given is not None and found != self._given:
                raise DataError(
                    f"the batches to train on come from the data {found}, and TokenizerFingerprint was told "
                    f"{self._given}: give it the same data, or none"
                )
            self._trains_on = found
        self._check_resumed_data()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the validation loaders' ids."""
        self._check_model(pl_module)
        self._check_ids(trainer.val_dataloaders)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the test loaders' ids."""
        self._check_model(pl_module)
        self._check_ids(trainer.test_dataloaders)

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Check the loaders' ids."""
        self._check_model(pl_module)
        self._check_ids(trainer.predict_dataloaders)

    # Checkpoints

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Embed; called for checkpoints that hold more than weights."""
        self._save(checkpoint)

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Verify, unless the checkpoint IO did; called for checkpoints that hold more than weights."""
        if not self._loaded:
            self._load(checkpoint, "the checkpoint")

    def _save(self, checkpoint: dict[str, Any]) -> None:
        embed(checkpoint, self.tokenizer, self._text, self._trains_on)
        if self._model_config is not None and config_of(checkpoint) is None:
            checkpoint["config"] = self._model_config  # it declares padding, and load_model needs it
        if self._said:
            return
        try:
            refuse_other_types(checkpoint)
        except FormatError as error:
            self._said = True
            warnings.warn(
                f"{error}. Until then torch.load(weights_only=True) cannot read this run's checkpoints", stacklevel=2
            )

    def _load(self, checkpoint: dict[str, Any], path: StrPath) -> None:
        verify_content(checkpoint, self.tokenizer, str(path), allow_unverified=self.allow_unverified)
        self._loaded = True
        if self._fitting:
            self._resumes_from = checkpoint.get(DATA_KEY)
            self._check_resumed_data()

    def _check_resumed_data(self) -> None:
        """Once both are known, compare the checkpoint's data with this run's."""
        if self._resumes_from is None or self._trains_on is None:
            return
        before, self._resumes_from = self._resumes_from, None
        if before == self._trains_on:
            return
        what = f"the checkpoint was trained on the data {before}, and this run goes on with {self._trains_on}"
        if not self.allow_other_data:
            raise DataError(
                f"{what}. Resume with the same data; or, to go on with other data on purpose, give the trainer "
                "TokenizerFingerprint(…, allow_other_data=True)"
            )
        warnings.warn(what, stacklevel=2)
