"""`fit`: train a MiniGPT on encoded text, with Lightning, until a budget is spent.

A run's folder holds

| file | what |
| --- | --- |
| `last.ckpt` | the last checkpoint; at the end, the trained model. Always whole: it is replaced, never written over |
| `fit.json` | once the run is done: the configuration, what was spent, the curve |
| `logs/` | `metrics.csv` and `hparams.yaml`, and the events of TensorBoard if asked for |

A checkpoint has all that a run goes on from: weights, optimizer, place in the data's order, random numbers, what is
spent, the curve. On a CPU a run that was interrupted and resumed ends with the same weights, bit for bit, as one that
was not (with as many threads, and a budget other than seconds).

What Lightning's loop adds to a step is below 1 ms. Everything that is not a step (validation, logs, checkpoints)
happens at shares of the budget, see `milestones`, and stops the clock.
"""

import contextlib
import importlib.util
import json
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from minigpt_tok.checkpoint import load_model, read_checkpoint
from minigpt_tok.checkpoint_binding import TRANSPLANT_KEY
from minigpt_tok.data.blocks import Account
from minigpt_tok.data.data_module import TokenDataModule
from minigpt_tok.data.token_dataset import BlockBatch
from minigpt_tok.errors import MissingDependencyError, ModelError, TokenizerMismatchError
from minigpt_tok.files import StrPath, sha256_of, write_text
from minigpt_tok.gpt.budget import Budget, Spent
from minigpt_tok.gpt.checkpoint_io import AtomicCheckpointIO
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.fingerprint_callback import TokenizerFingerprint
from minigpt_tok.gpt.lightning_module import LitMiniGPT
from minigpt_tok.gpt.milestones import Milestones, Point, Report
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.gpt.validation import QuickValidation
from minigpt_tok.tokenizer import Tokenizer

CHECKPOINT = "last.ckpt"
SUMMARY = "fit.json"
LOGS = "logs"
LOGGERS = ("csv", "tensorboard")


@dataclass(frozen=True, kw_only=True, eq=False)
class FitResult:
    """A finished run.

    Attributes:
        model: the trained model, on the CPU and in evaluation mode.
        checkpoint: the file it was saved to.
        logs: the folder of the logs, or `None`.
        config, options, budget: what was trained and how.
        spent: on every axis of budgets.
        steps: of the optimizer.
        curve: points of the run, see `minigpt_tok.gpt.milestones`.
        account: what an epoch keeps, loses, pads and repeats; `None` where nothing was left to train.
    """

    model: MiniGPT
    checkpoint: Path
    logs: Path | None
    config: MiniGPTConfig
    options: TrainingOptions
    budget: Budget
    spent: Spent
    steps: int
    curve: tuple[Point, ...]
    account: Account | None = None

    @property
    def seconds(self) -> float:
        """Of training; validation, logs and checkpoints apart."""
        return self.spent.seconds

    @property
    def tokens_per_second(self) -> float:
        """Targets trained on, per second of training."""
        return self.spent.tokens / self.spent.seconds if self.spent.seconds else 0.0

    @property
    def validation_bits_per_byte(self) -> float | None:
        """The last quick look at the validation text, if there was one."""
        looks = [point["validation_bits_per_byte"] for point in self.curve if "validation_bits_per_byte" in point]
        return looks[-1] if looks else None

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "checkpoint": self.checkpoint.name,
            "config": self.config.to_plain(),
            "options": self.options.to_plain(),
            "budget": str(self.budget),
            "spent": self.spent.to_plain(),
            "steps": self.steps,
            "tokens_per_second": self.tokens_per_second,
            "validation_bits_per_byte": self.validation_bits_per_byte,
            "body_parameters": self.model.body_parameters,
            "embedding_parameters": self.model.embedding_parameters,
            "flops_per_token": self.model.flops_per_token,
            "attention_flops_per_token": self.model.attention_flops_per_token,
            "account": None if self.account is None else asdict(self.account),
            "curve": list(self.curve),
        }


def fit(
    data_dir: StrPath,
    tokenizer: Tokenizer | StrPath,
    out_dir: StrPath,
    *,
    budget: Budget | str | None = None,
    config: MiniGPTConfig | None = None,
    options: TrainingOptions | None = None,
    resume: bool = False,
    overwrite: bool = False,
    weights: StrPath | None = None,
    logger: str | Sequence[str] | None = "csv",
    evaluate: Callable[[MiniGPT], float] | None = None,
    on_point: Callable[[Point], None] | None = None,
    progress: Report | None = None,
    callbacks: Sequence[L.Callback] = (),
    trainer_options: Mapping[str, Any] | None = None,
) -> FitResult:
    """Train a MiniGPT on the train split of an encoded corpus.

    Args:
        data_dir: the folder that `encode_corpus` filled.
        tokenizer: the one that the ids are of, or its file.
        out_dir: the run's folder.
        budget: how much to train on, `"bytes=5e6"`; `minigpt_tok.gpt.budget` says where exactly it ends.
        config: the model's shape; by default `MiniGPTConfig` of the tokenizer's vocabulary.
        options: everything else about the run.
        resume: go on from the checkpoint in `out_dir`. Budget, config and options are then those of the checkpoint
            where none are given; a larger budget trains on (and the learning rate rises to where it is at this share).
        weights: a checkpoint of the same tokenizer whose weights the run begins with, instead of drawing them; the shape
            is then the checkpoint's, but for the dropout. Nothing else of it is taken up. A resumed run goes on with its
            own.
        overwrite: begin anew though `out_dir` has a checkpoint, which stays until the first of this run.
        logger: `csv`, `tensorboard`, several of them, or `None`.
        evaluate: bits per byte of the model on validation text, for the curve; by default `QuickValidation` of the
            beginning of the validation split, if there is one.
        on_point: called with each point of the curve as it comes.
        progress: called some times a second with (stage, done, of how much).
        callbacks: Lightning's, besides.
        trainer_options: for `L.Trainer`, over what is set here.

    Raises:
        ModelError: a value out of its bounds, a folder that holds a run, nothing to resume, or diverged training.
        TokenizerMismatchError: ids, model or checkpoint are of another tokenizer.
        DataError: there is no train split, or the checkpoint is of other data.
        MissingDependencyError: a logger whose library is not installed.
    """
    tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(tokenizer)
    folder = Path(out_dir)
    checkpoint = folder / CHECKPOINT
    before = _checkpoint_before(checkpoint, resume=resume, overwrite=overwrite)
    if before is not None:
        budget, config, options = _resumed_settings(before, checkpoint, budget, config, options)
    if budget is None:
        raise ModelError("there is no budget; give one, such as budget='bytes=5e6'")
    budget = Budget.parse(budget) if isinstance(budget, str) else budget
    initial = None if weights is None or before is not None else load_model(weights, tokenizer)[0]
    if initial is not None and weights is not None:
        config = _same_shape(initial.config, config, weights)
    config = config or MiniGPTConfig(tokenizer.vocab_size)
    options = options or TrainingOptions()
    if config.vocab_size != tokenizer.vocab_size:
        raise TokenizerMismatchError(
            f"the model's vocab_size is {config.vocab_size:,}, and the tokenizer has {tokenizer.vocab_size:,} ids; set "
            "vocab_size to the tokenizer's (pad_vocab_to pads the embedding)"
        )
    loggers = _loggers(logger, folder)
    logs = folder / LOGS if loggers else None
    if before is not None and _is_spent(before, budget):
        model, _ = load_model(checkpoint, tokenizer)
        return _finished(
            model=model,
            checkpoint=checkpoint,
            logs=logs,
            config=config,
            options=options,
            budget=budget,
            spent=Spent(**before["spent"]),
            steps=before["global_step"],
            curve=tuple(before["curve"]),
        )

    data = TokenDataModule(
        data_dir,
        config.block_size,
        options.batch_size,
        tokenizer=tokenizer,
        packing=options.packing,
        # The validation text is looked at in its own order, none of it left out; but a model that never saw several
        # documents at once is not shown any.
        evaluation_packing="document" if options.packing == "document" else "contiguous",
        num_workers=options.num_workers,
        seed=options.seed,
    )
    data.setup()
    if evaluate is None and "validation" in data.datasets and options.validation_bytes:
        quick = QuickValidation(_in_order(data, options.batch_size), tokenizer, options.validation_bytes)
        evaluate = None if quick.is_empty else quick
    milestones = Milestones(
        checkpoint=checkpoint,
        evaluate=evaluate,
        logs=options.logs,
        validations=options.validations,
        on_point=on_point,
        progress=progress,
    )
    settings: dict[str, Any] = {
        "accelerator": options.accelerator,
        "devices": 1,
        "precision": options.precision,
        "max_epochs": -1,
        "accumulate_grad_batches": options.accumulate,
        "gradient_clip_val": options.gradient_clip or None,
        "logger": loggers or False,
        "callbacks": [TokenizerFingerprint(tokenizer), milestones, *callbacks],
        "plugins": [AtomicCheckpointIO()],
        "default_root_dir": folder,
        "limit_val_batches": 0,
        "num_sanity_val_steps": 0,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }
    with _quiet_lightning(), _interruptible(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(options.seed)
        module = LitMiniGPT(config, budget=budget, tokenizer=tokenizer, options=options)
        if initial is not None and weights is not None:
            module.model.load_state_dict(initial.state_dict())
            module.began_with = {
                "checkpoint_sha256": sha256_of(weights),
                TRANSPLANT_KEY: read_checkpoint(weights, mapped=True).get(TRANSPLANT_KEY),
            }
        trainer = L.Trainer(**{**settings, **(trainer_options or {})})
        if trainer.world_size != 1:
            raise ModelError(
                f"the budget is counted on one device, and the trainer has {trainer.world_size}; train on one"
            )
        # Read with weights_only: a checkpoint from elsewhere cannot run anything.
        (folder / SUMMARY).unlink(missing_ok=True)  # of a run that is replaced, or of a smaller budget
        trainer.fit(module, datamodule=data, ckpt_path=checkpoint if before is not None else None, weights_only=True)
    return _finished(
        model=module.model.cpu().eval(),
        checkpoint=checkpoint,
        logs=logs,
        config=config,
        options=options,
        budget=budget,
        spent=module.meter.spent,
        steps=trainer.global_step,
        curve=tuple(module.curve),
        account=data.datasets["train"].account,
    )


def _finished(**parts: Any) -> FitResult:
    """The result, written down as well."""
    result = FitResult(**parts)
    write_text(result.checkpoint.with_name(SUMMARY), json.dumps(result.to_plain(), indent=1) + "\n")
    return result


def _checkpoint_before(path: Path, *, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """The checkpoint to go on from, or `None` to begin."""
    if resume:
        if not path.is_file():
            raise ModelError(f"there is no {path} to resume; begin the run without resume=True")
        return read_checkpoint(path, mapped=True)
    if path.exists() and not overwrite:
        raise ModelError(
            f"{path.parent} holds a run already. To go on with it, pass resume=True; to keep it, choose another "
            "folder; to replace it, pass overwrite=True"
        )
    return None


def _resumed_settings(
    before: Mapping[str, Any],
    path: Path,
    budget: Budget | str | None,
    config: MiniGPTConfig | None,
    options: TrainingOptions | None,
) -> tuple[Budget | str, MiniGPTConfig, TrainingOptions]:
    """Those of the checkpoint where none are given."""
    was = before.get("hyper_parameters", {})
    if not {"config", "budget", "options"} <= set(was) or "spent" not in before:
        raise ModelError(f"{path} was not saved by fit, so it cannot be resumed; begin a run of its own")
    old = MiniGPTConfig.from_plain(was["config"])
    if config is not None and config != old:
        raise ModelError(
            f"{path} has a model of another shape: {_differing(old, config)}. Resume with its own, or begin a new run"
        )
    return budget or was["budget"], old, options or TrainingOptions.from_plain(was["options"])


def _same_shape(inside: MiniGPTConfig, wanted: MiniGPTConfig | None, path: StrPath) -> MiniGPTConfig:
    """The configuration to train a checkpoint's weights with."""
    if wanted is None or replace(inside, dropout=wanted.dropout) == wanted:
        return wanted or inside
    raise ModelError(
        f"the weights in {path} are of a model of another shape: {_differing(inside, wanted)}. Leave the shape to the "
        "checkpoint, or begin without weights"
    )


def _differing(old: MiniGPTConfig, new: MiniGPTConfig) -> str:
    return ", ".join(
        f"{name} {mine} (the checkpoint: {value})"
        for (name, value), mine in zip(old.to_plain().items(), new.to_plain().values(), strict=True)
        if mine != value
    )


def _is_spent(before: Mapping[str, Any], budget: Budget) -> bool:
    return bool(before["spent"][budget.axis] >= budget.amount)


def _in_order(data: TokenDataModule, batch_size: int) -> Iterator[BlockBatch]:
    """Batches of the validation split in the order of the text."""
    dataset = data.datasets["validation"]
    for start in range(0, len(dataset), batch_size):
        yield dataset.__getitems__(range(start, min(start + batch_size, len(dataset))))


def _loggers(names: str | Sequence[str] | None, folder: Path) -> list[Logger]:
    chosen = (names,) if isinstance(names, str) else tuple(names or ())
    loggers: list[Logger] = []
    for name in chosen:
        if name == "csv":
            loggers.append(CSVLogger(folder, name="", version=LOGS, flush_logs_every_n_steps=1))
        elif name == "tensorboard":
            if not any(importlib.util.find_spec(module) for module in ("tensorboard", "tensorboardX")):
                raise MissingDependencyError(
                    "logging to TensorBoard needs the tensorboard library, which is not installed. Install it with "
                    "pip install 'minigpt-tok[tensorboard]', or log to csv"
                )
            # A resumed run logs its whole curve again, in place of what is there.
            loggers.append(TensorBoardLogger(folder, name="", version=LOGS, default_hp_metric=False, purge_step=0))
        else:
            raise ModelError(f"there is no logger {name!r}; choose from {', '.join(LOGGERS)}")
    return loggers


@contextlib.contextmanager
def _quiet_lightning() -> Iterator[None]:
    """No banners, tips and advice that does not apply; real warnings stay."""
    names = ("lightning.pytorch", "lightning.fabric")
    levels = [logging.getLogger(name).level for name in names]
    with warnings.catch_warnings():
        for message in (
            ".*does not have many workers.*",
            ".*exists and is not empty.*",
            ".*is smaller than the logging interval.*",
            ".*GPU available but not used.*",
            ".*have no `validation_step`.*",
            ".*LeafSpec.*is deprecated.*",
            ".*overridden `on_before_batch_transfer` in `LightningModule`.*",
        ):
            warnings.filterwarnings("ignore", message=message)
        try:
            for name in names:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
        finally:
            for name, level in zip(names, levels, strict=True):
                logging.getLogger(name).setLevel(level)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, as everywhere; Lightning would exit with 1 and leave Ctrl-C switched off."""
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        if error.code is None:  # Lightning's answer to SIGTERM, which would end the process as if all were well
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
