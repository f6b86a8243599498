"""What happens between steps, at equal shares of the budget: points of the curve, validation, checkpoints.

Shares of the budget rather than numbers of steps, so that curves of models that take other numbers of steps for one
budget have their points at the same places. A step in between costs one comparison.

A point is a dict of plain numbers: `step`; `bytes`, `characters`, `tokens`, `flops` and `seconds` spent; `train_loss`,
the mean since the last point in nats per token; `learning_rate` of the last step; and where it was validated,
`validation_bits_per_byte`.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from minigpt_tok.gpt.lightning_module import LitMiniGPT
from minigpt_tok.gpt.model import MiniGPT

Point = dict[str, float]
Report = Callable[[str, int, int | None], None]  # (stage, done, of how much)

_REPORTS = 0.25  # seconds between two reports of progress


class Milestones(Checkpoint):
    """Logs, validates and saves while a `LitMiniGPT` trains.

    A checkpoint is written right after a point of the curve, so a run that goes on from it has the same curve as one
    that was never interrupted.
    """

    def __init__(
        self,
        *,
        checkpoint: Path | None = None,
        evaluate: Callable[[MiniGPT], float] | None = None,
        logs: int = 100,
        validations: int = 10,
        on_point: Callable[[Point], None] | None = None,
        progress: Report | None = None,
    ) -> None:
        """Remember what to do.

        Args:
            checkpoint: the file that is replaced by each checkpoint; `None` saves none.
            evaluate: bits per byte of a model on validation text; `None`: it is not validated.
            logs: points in a run.
            validations: how often to validate and save; the end is always one of them.
            on_point: called with every point.
            progress: called some times a second with what is spent, see `minigpt_tok.progress`.
        """
        self._checkpoint = checkpoint
        self._evaluate = evaluate
        self._logs = logs
        self._validations = validations
        self._on_point = on_point
        self._progress = progress
        self._next_log = self._next_validation = self._next_report = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look ahead from where the run is; log what a resumed run has behind it once more, so that logs are whole."""
        lit = cast(LitMiniGPT, pl_module)
        self._look_ahead(lit)
        for point in lit.curve:
            self._log(trainer, point)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Do what is due, after a whole step only."""
        lit = cast(LitMiniGPT, pl_module)
        if self._progress is not None and time.monotonic() >= self._next_report:
            self._report(self._progress, lit)
        if lit.meter.progress < min(self._next_log, self._next_validation) and not lit.finished:
            return
        if lit.is_between_steps:
            return
        with lit.meter.clock.paused():
            self._stop_at(trainer, lit)

    def _stop_at(self, trainer: L.Trainer, lit: LitMiniGPT) -> None:
        validates = lit.finished or lit.meter.progress >= self._next_validation
        point: Point = {"step": trainer.global_step, **lit.meter.spent.to_plain()}
        point["train_loss"] = lit.read_loss()
        point["learning_rate"] = trainer.optimizers[0].param_groups[0]["lr"]
        if validates and self._evaluate is not None:
            with trainer.precision_plugin.forward_context():
                point["validation_bits_per_byte"] = self._evaluate(lit.model)
        lit.curve.append(point)
        self._look_ahead(lit)
        self._log(trainer, point)
        if self._on_point is not None:
            self._on_point(point)
        if validates and self._checkpoint is not None:
            trainer.save_checkpoint(self._checkpoint)
        if lit.finished and self._progress is not None:
            self._report(self._progress, lit)

    def _look_ahead(self, lit: LitMiniGPT) -> None:
        progress = lit.meter.progress
        self._next_log = (math.floor(progress * self._logs) + 1) / self._logs
        self._next_validation = (math.floor(progress * self._validations) + 1) / self._validations

    def _report(self, progress: Report, lit: LitMiniGPT) -> None:
        self._next_report = time.monotonic() + _REPORTS
        budget = lit.meter.budget
        done = min(float(getattr(lit.meter.spent, budget.axis)), budget.amount)
        progress(f"trained {budget.axis}", int(done), int(budget.amount))

    @staticmethod
    def _log(trainer: L.Trainer, point: Point) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(
                {name: value for name, value in point.items() if name != "step"}, step=int(point["step"])
            )
