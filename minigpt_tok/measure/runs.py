"""One training run of a comparison: fitted, or taken up from where it was left, then scored and asked for a sample."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from minigpt_tok.checkpoint import read_checkpoint
from minigpt_tok.checkpoint_binding import DATA_KEY
from minigpt_tok.data.identity import data_fingerprint
from minigpt_tok.errors import ModelError
from minigpt_tok.gpt.budget import Budget
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.generation import generate
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.gpt.training import CHECKPOINT, FitResult, fit
from minigpt_tok.measure.bits_per_byte import bits_per_byte
from minigpt_tok.measure.comparison import CurvePoint, Run
from minigpt_tok.measure.token_text import EncodedSplit
from minigpt_tok.progress import Report
from minigpt_tok.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How models are scored and sampled, the same for all.

    Attributes:
        context, stride, own_context: see `bits_per_byte`.
        batch_size: windows at a time; no score depends on it.
        prompt: what the samples begin with.
        sample_bytes: about how long they are, prompt excluded.
        temperature, top_k: of the samples.
    """

    context: str = "sliding"
    stride: int | None = None
    own_context: bool = False
    batch_size: int = 32
    prompt: str = ""
    sample_bytes: int = 300
    temperature: float = 0.8
    top_k: int | None = None


def train_and_score(
    folder: Path,
    data_dir: Path,
    tokenizer: Tokenizer,
    *,
    config: MiniGPTConfig,
    options: TrainingOptions,
    budget: Budget,
    validation: EncodedSplit,
    curve_sample: EncodedSplit,
    evaluation: Evaluation,
    bytes_per_token: float,
    root: Path,
    overwrite: bool,
    progress: Report | None,
) -> tuple[Run, MiniGPT]:
    """Train one model and score it; a run with the same settings that `folder` has already is gone on with.

    Args:
        folder: of the run.
        data_dir: the encoded corpus.
        tokenizer: that made the ids.
        config, options, budget: as `fit` takes them.
        validation: what the score is on.
        curve_sample: what the curve is on.
        evaluation: how.
        bytes_per_token: of the validation text, for the sample's length.
        root: of the comparison, which paths are relative to.
        overwrite: replace a run with other settings.
        progress: of training and scoring.

    Raises:
        ModelError: `folder` has a run with other settings, and `overwrite` is not set; or training diverged.
    """

    def score(model: MiniGPT, split: EncodedSplit, progress: Report | None = None) -> Any:
        return bits_per_byte(
            model,
            split,
            tokenizer,
            context=evaluation.context,
            stride=evaluation.stride,
            own_context=evaluation.own_context,
            batch_size=evaluation.batch_size,
            progress=progress,
        )

    resume = _can_resume(folder / CHECKPOINT, data_dir, config, options, budget, overwrite=overwrite)
    fitted = fit(
        data_dir,
        tokenizer,
        folder,
        budget=budget,
        config=config,
        options=options,
        resume=resume,
        overwrite=overwrite,
        evaluate=lambda model: float(score(model, curve_sample).bits_per_byte),
        progress=progress,
    )
    model = fitted.model.to(evaluation_device(options.accelerator))
    final = score(model, validation, progress)
    model.cpu()
    sample = generate(
        model,
        tokenizer,
        evaluation.prompt,
        max_new_tokens=max(1, round(evaluation.sample_bytes / bytes_per_token)),
        temperature=evaluation.temperature,
        top_k=evaluation.top_k,
        seed=options.seed,
    )
    run = Run(
        seed=options.seed,
        score=final,
        curve=_curve(fitted),
        bytes=fitted.spent.bytes,
        tokens=fitted.spent.tokens,
        flops=float(fitted.spent.flops),
        seconds=fitted.seconds,
        sample=evaluation.prompt + sample.text,
        checkpoint=fitted.checkpoint.resolve().relative_to(root.resolve()).as_posix(),
    )
    return run, model


def evaluation_device(accelerator: str) -> torch.device:
    """Where a model is scored that was trained with this accelerator of Lightning's."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _can_resume(
    checkpoint: Path,
    data_dir: Path,
    config: MiniGPTConfig,
    options: TrainingOptions,
    budget: Budget,
    *,
    overwrite: bool,
) -> bool:
    """Whether the folder has a run with these very settings on this very data."""
    if not checkpoint.is_file():
        return False
    before = read_checkpoint(checkpoint, mapped=True)
    was = before.get("hyper_parameters", {})
    wanted = {"config": config.to_plain(), "budget": str(budget), "options": options.to_plain()}
    other = [name for name, value in wanted.items() if was.get(name) != value]
    if before.get(DATA_KEY) != data_fingerprint(data_dir):
        other.append("data")
    if other and not overwrite:
        raise ModelError(
            f"{checkpoint.parent} holds a run with another {', '.join(other)}; choose another folder for this comparison, "
            "or replace what is there with overwrite=True"
        )
    return not other


def _curve(fitted: FitResult) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(
            bytes=int(point["bytes"]),
            tokens=int(point["tokens"]),
            flops=float(point["flops"]),
            seconds=float(point["seconds"]),
            bits_per_byte=float(point["validation_bits_per_byte"]),
        )
        for point in fitted.curve
        if "validation_bits_per_byte" in point
    )
