"""`LitMiniGPT`: what Lightning needs to know to train a MiniGPT against a budget.

It may be given to any `L.Trainer`: it counts every batch before it goes to the device, sets each step's learning rate by
the budget's progress, and asks the trainer to stop when the budget is spent. `fit` in `minigpt_tok.gpt.training` wires
it to data, logs and checkpoints.

Nothing here waits for the device in a step: counts are taken from the batch on the CPU, and losses are added up where
they are, to be read at milestones.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any, cast

import lightning as L
import torch
from torch import Tensor

from minigpt_tok.checkpoint import embed_fingerprint, tokenizer_of, verify_content
from minigpt_tok.checkpoint_binding import FINGERPRINT_KEY, unverified
from minigpt_tok.errors import DataError, ModelError, TokenizerMismatchError
from minigpt_tok.gpt.budget import Budget, Meter
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.fingerprint_callback import TokenizerFingerprint
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.gpt.schedule import learning_rate
from minigpt_tok.tokenizer import Tokenizer

# (inputs, targets), int64 (batch, time) each, or a dict of these, `documents` and `positions`
Batch = tuple[Tensor, Tensor] | list[Tensor] | dict[str, Tensor]


class LitMiniGPT(L.LightningModule):
    """A MiniGPT and how it is trained.

    Attributes:
        model: the `MiniGPT`.
        options: how it is trained.
        meter: its budget, and what is spent.
        curve: points of the run so far, each a dict of plain numbers, see `minigpt_tok.gpt.milestones`.
        finished: whether the step at hand, or the one just taken, is the last.
        began_with: what is known of the weights that the run began with, as plain values; `None`: they were drawn.
    """

    def __init__(
        self,
        config: MiniGPTConfig | Mapping[str, Any],
        *,
        budget: Budget | str,
        tokenizer: Tokenizer | None = None,
        options: TrainingOptions | Mapping[str, Any] | None = None,
        allow_unverified: bool = False,
    ) -> None:
        """Draw the model's weights from PyTorch's global generator.

        Args:
            config: the model's shape.
            budget: how much to train on; `"bytes=5e6"`.
            tokenizer: that made the ids; needed to count bytes and characters. Checkpoints are bound to it, and
                `load_from_checkpoint(path, tokenizer=…)` refuses those of another.
            options: how to train.
            allow_unverified: load checkpoints without a tokenizer's fingerprint, with a warning.

        Raises:
            ModelError: a value out of its bounds, or a budget of bytes without a tokenizer.
        """
        super().__init__()
        config = config if isinstance(config, MiniGPTConfig) else MiniGPTConfig.from_plain(config)
        budget = Budget.parse(budget) if isinstance(budget, str) else budget
        if not isinstance(options, TrainingOptions):
            options = TrainingOptions.from_plain(options or {})
        # Plain types, so that a checkpoint can be read with weights_only=True.
        self.save_hyperparameters(
            {"config": config.to_plain(), "budget": str(budget), "options": options.to_plain()}, logger=True
        )
        self.options = options
        self._tokenizer = tokenizer
        self._allow_unverified = allow_unverified
        self.model = MiniGPT(config)
        self.meter = Meter(budget, flops_per_token=self.model.flops_per_token, tokenizer=tokenizer)
        self.curve: list[dict[str, float]] = []
        self.finished = False
        self.began_with: dict[str, Any] | None = None
        self._nats: Tensor | None = None  # Σ of nats since they were last read, on the device
        self._nats_tokens = 0
        self._random_state: dict[str, Any] | None = None

    def forward(self, ids: Tensor) -> Tensor:
        """Logits `(batch, time, vocab_size)` of ids, int64 `(batch, time)`."""
        return cast(Tensor, self.model(ids))

    # A step

    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Count the batch and, where the budget ends in it, cut it; it is still on the CPU."""
        if not self.trainer.training:
            return batch
        if isinstance(batch, dict) and {"inputs", "targets"} <= batch.keys():
            return {**batch, "targets": self.meter.take(batch["targets"])}
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise DataError(
                f"a batch is {type(batch).__name__}, neither (inputs, targets) nor a dict with these keys; take the "
                "batches of a TokenDataset"
            )
        return batch[0], self.meter.take(batch[1])

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Where the budget ends with this batch, tell Lightning that it is the last."""
        if self.meter.budget.axis != "seconds" and self.meter.done:
            self.finished = self.trainer.should_stop = True
            # So that it takes the step though fewer batches than `accumulate` have been added up.
            self.trainer.fit_loop.epoch_loop.batch_progress.is_last_batch = True

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of a batch in nats per token, weighted by the share of it that is within the budget; a scalar."""
        loss = batch_loss(self.model, batch)
        nats = loss.detach() * self.meter.last_tokens
        self._nats = nats if self._nats is None else self._nats + nats
        self._nats_tokens += self.meter.last_tokens
        return loss if self.meter.last_share == 1.0 else loss * self.meter.last_share

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Set the learning rate by the budget, then step. By seconds, stop after the step that ends past the budget."""
        rate = self.learning_rate
        for group in optimizer.param_groups:
            group["lr"] = rate
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self.meter.budget.axis == "seconds" and self.meter.done:
            self.finished = self.trainer.should_stop = True

    @property
    def is_between_steps(self) -> bool:
        """Whether gradients of batches since the last step are waiting for more."""
        return bool(self.trainer.fit_loop._should_accumulate())

    @property
    def learning_rate(self) -> float:
        """Of the step at hand."""
        peak = self.options.learning_rate
        return learning_rate(
            self.meter.progress,
            peak=peak,
            warmup=self.options.warmup,
            floor=peak * self.options.final_learning_rate,
        )

    def read_loss(self) -> float:
        """Mean training loss since this was last read, in nats per token; waits for the device. NaN: no batches.

        Raises:
            ModelError: the loss is no number, so that training has failed.
        """
        if self._nats is None:
            return math.nan
        loss = float(self._nats) / self._nats_tokens
        self._nats, self._nats_tokens = None, 0
        if not math.isfinite(loss):
            raise ModelError(
                f"the training loss is {loss} by step {self.trainer.global_step:,}: training has diverged. Use a lower "
                f"learning_rate than {self.options.learning_rate:g}, clip gradients (gradient_clip=1), or train with "
                "precision='32-true'; the last checkpoint is from before"
            )
        return loss

    # Around the steps

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW, in its fused form where the precision allows; weight decay on matrices alone."""
        matrices = [parameter for parameter in self.model.parameters() if parameter.dim() >= 2]
        others = [parameter for parameter in self.model.parameters() if parameter.dim() < 2]
        return torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": self.options.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=self.options.learning_rate,
            betas=(self.options.beta1, self.options.beta2),
            # Under mixed precision Lightning does not clip for it, since it could unscale gradients itself.
            fused="mixed" not in self.options.precision,
        )

    def on_train_start(self) -> None:
        """Go on with the random numbers where a resumed run stopped, and start the clock."""
        if self._random_state is not None:
            set_random_state(self._random_state)
            self._random_state = None
        if self.meter.done:
            raise ModelError(
                f"the checkpoint has spent its budget, {self.meter.budget}; to train on, give a larger one"
            )
        self.meter.clock.start()

    def on_train_end(self) -> None:
        """Stop the clock."""
        self.meter.clock.stop()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what is spent, the curve and the state of the random generators, all as plain types; and the tokenizer."""
        if self._tokenizer is not None and not self._is_guarded:
            embed_fingerprint(checkpoint, self._tokenizer)
        checkpoint["spent"] = self.meter.spent.to_plain()
        checkpoint["curve"] = [dict(point) for point in self.curve]
        checkpoint["random_state"] = random_state()
        if self.began_with is not None:
            checkpoint["began_with"] = self.began_with

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take them up again, past the check of the tokenizer; this comes before weights are loaded.

        Raises:
            TokenizerMismatchError: the checkpoint is of another tokenizer, damaged, or without a fingerprint.
        """
        if not self._is_guarded:
            self._verify(checkpoint)
        self.meter.restore(checkpoint["spent"])
        self.curve = [dict(point) for point in checkpoint["curve"]]
        self._random_state = checkpoint["random_state"]
        self.began_with = checkpoint.get("began_with")

    @property
    def _is_guarded(self) -> bool:
        """Whether the trainer has a `TokenizerFingerprint`, which sees checkpoints before they come here."""
        callbacks = getattr(self._trainer, "callbacks", None) or ()
        return any(isinstance(callback, TokenizerFingerprint) for callback in callbacks)

    def _verify(self, checkpoint: dict[str, Any]) -> None:
        """As the guard does; `load_from_checkpoint` knows no trainer, and so no callbacks."""
        tokenizer, where = self._tokenizer, "the checkpoint"
        if tokenizer is None and checkpoint.get(FINGERPRINT_KEY) is not None:
            tokenizer = tokenizer_of(checkpoint)  # it must at least belong to what it carries
        if tokenizer is not None:
            verify_content(checkpoint, tokenizer, where, allow_unverified=self._allow_unverified, stacklevel=4)
        elif self._allow_unverified:
            warnings.warn(f"{unverified(where)}: taken as it is (allow_unverified=True)", stacklevel=4)
        else:
            raise TokenizerMismatchError(
                f"{unverified(where)}. If you know it, load with tokenizer=… and allow_unverified=True, and save it again"
            )


def batch_loss(model: MiniGPT, batch: Batch) -> Tensor:
    """The loss of a batch of any packing, documents kept apart where it says which; a scalar."""
    if not isinstance(batch, dict):
        return model.loss(batch[0], batch[1])
    return model.loss(
        batch["inputs"], batch["targets"], positions=batch.get("positions"), documents=batch.get("documents")
    )


def random_state() -> dict[str, Any]:
    """The state of PyTorch's generators, which dropout draws from: uint8 tensors."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Go on from a state; that of GPUs only where there are as many."""
    torch.set_rng_state(state["cpu"].cpu())
    cuda = state.get("cuda", [])
    if cuda and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([part.cpu() for part in cuda])
