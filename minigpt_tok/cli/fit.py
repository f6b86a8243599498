"""`minigpt-tok fit`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minigpt_tok.amounts import counted, lasted
from minigpt_tok.cli.encode import TOKENIZER_FILE
from minigpt_tok.cli.fields import values_of, with_fields
from minigpt_tok.cli.options import AsJson, BudgetText, DataFolder, Overwrite
from minigpt_tok.cli.printing import print_facts, print_json, print_table
from minigpt_tok.data.id_file import read_metadata
from minigpt_tok.errors import DataError
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.options import TrainingOptions
from minigpt_tok.progress import is_shown, progress
from minigpt_tok.tokenizer import Tokenizer

if TYPE_CHECKING:
    from minigpt_tok.gpt.training import FitResult

EXAMPLE = "minigpt-tok fit --data data/encoded/wikitext-2/bpe --budget bytes=5e6 -o checkpoints/bpe"


@with_fields({"Model": MiniGPTConfig, "Training": TrainingOptions}, leave_out=("vocab_size",))
def fit(
    data: DataFolder,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The run's folder: last.ckpt, fit.json, logs.",
            show_default="checkpoints/char for characters, else checkpoints/bpe",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer", "-t", metavar="TOKENIZER", help="The one that the ids are of.", show_default="beside them"
        ),
    ] = None,
    budget: BudgetText = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the checkpoint in the folder, with its model, options and budget where none are given.",
            show_default=False,
        ),
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="CHECKPOINT", help="Begin with its weights, of the same tokenizer.", show_default="drawn at random"
        ),
    ] = None,
    logger: Annotated[
        list[str] | None,
        typer.Option(metavar="LOGGER", help="csv, tensorboard or none; may be repeated.", show_default="csv"),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a MiniGPT on id files.

    It trains until the budget is spent. Ten times on the way it saves a checkpoint, which carries the tokenizer. Interrupted,
    it goes on with --resume, as if nothing had been.
    """
    train_split = read_metadata(data / "train.safetensors") if (data / "train.safetensors").is_file() else None
    if train_split is None:
        raise DataError(
            f"{data} has no train.safetensors; encode a corpus into it first: minigpt-tok encode … -o {data}"
        )
    tok = _tokenizer(data, tokenizer, train_split.tokenizer_fingerprint)
    folder = output or Path("checkpoints") / ("char" if tok.unit == "character" else "bpe")
    if budget is None and not resume:
        budget = f"bytes={train_split.n_bytes}"
    from minigpt_tok.gpt.training import CHECKPOINT
    from minigpt_tok.gpt.training import fit as train_model

    before = _settings_before(folder / CHECKPOINT) if resume else {}
    if weights is not None and not before:
        before = {"config": _shape_of(weights)}
    config = {**before.get("config", {}), **values_of(MiniGPTConfig, given)}
    options = {**before.get("options", {}), **values_of(TrainingOptions, given)}
    model_config = MiniGPTConfig.from_plain({"vocab_size": tok.vocab_size, **config})
    training_options = TrainingOptions.from_plain(options)
    if is_shown():
        _say_account(data, tok, model_config.block_size, training_options.packing)
    with progress({f"trained {axis}": f"trained {axis}" for axis in ("bytes", "tokens")}) as report:
        result = train_model(
            data,
            tok,
            folder,
            budget=budget,
            config=model_config,
            options=training_options,
            resume=resume,
            overwrite=overwrite,
            weights=weights,
            logger=None if logger == ["none"] else logger or "csv",
            on_point=_say_point if is_shown() else None,
            progress=report,
        )
    if as_json:
        print_json(_result(result, data, tok))
    else:
        _print_page(_result(result, data, tok))


def _tokenizer(data: Path, given: Path | None, fingerprint: str) -> Tokenizer:
    """The tokenizer given, or the one beside the ids."""
    if given is not None:
        return Tokenizer.load(given)
    beside = data / TOKENIZER_FILE
    if not beside.is_file():
        raise DataError(
            f"{data} has no {TOKENIZER_FILE} beside its ids; give the tokenizer {fingerprint} with --tokenizer"
        )
    return Tokenizer.load(beside)


def _settings_before(checkpoint: Path) -> dict[str, Any]:
    """Model and options of the run to go on with; that it is missing or another kind of file, `fit` says."""
    from minigpt_tok.checkpoint_files import read_checkpoint

    if not checkpoint.is_file():
        return {}
    settings = read_checkpoint(checkpoint, mapped=True).get("hyper_parameters", {})
    return settings if isinstance(settings, dict) else {}


def _shape_of(weights: Path) -> dict[str, Any]:
    """The configuration in a checkpoint; that it has none, or another vocabulary, `fit` says."""
    from minigpt_tok.checkpoint_files import read_checkpoint
    from minigpt_tok.gpt.embedding_rows import config_of

    config = dict(config_of(read_checkpoint(weights, mapped=True)) or {})
    config.pop("vocab_size", None)
    return config


def _say_account(data: Path, tokenizer: Tokenizer, block_size: int, packing: str) -> None:
    """Before training: what an epoch keeps, loses, pads and repeats."""
    from minigpt_tok.data.token_dataset import TokenDataset

    account = TokenDataset(data, block_size, tokenizer=tokenizer, packing=packing).account
    print(f"packing {packing}, an epoch: {account}", file=sys.stderr)


def _say_point(point: dict[str, float]) -> None:
    if "validation_bits_per_byte" in point:
        print(
            f"step {point['step']:,}: training loss {point['train_loss']:.3f}, "
            f"validation {point['validation_bits_per_byte']:.4f} bits per byte",
            file=sys.stderr,
        )


def _result(result: "FitResult", data: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **result.to_plain(),
        "packing": result.options.packing,
        "epoch": None if result.account is None else str(result.account),
        "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
        "checkpoint": result.checkpoint,
        "logs": result.logs,
        "data": data,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
    }


def _print_page(result: dict[str, Any]) -> None:
    spent = result["spent"]
    amounts = f"{counted(spent['bytes'], 'byte')}, {counted(spent['tokens'], 'token')}"
    parameters = ", ".join(f"{result[f'{part}_parameters']:,} in the {part}" for part in ("body", "embedding"))
    points = [point for point in result["curve"] if "validation_bits_per_byte" in point]
    if points:
        header = ("step", "bytes", "tokens", "seconds", "training loss", "validation bits per byte")
        print_table(header, [_row(point) for point in points], left=())
        print()
    print_facts(
        [
            ("model", f"{result['parameters']:,} parameters: {parameters}"),
            ("tokenizer", f"{result['fingerprint']} ({result['vocab_size']:,} ids)"),
            ("budget", result["budget"]),
            ("packing", f"{result['packing']}: {result['epoch']}" if result["epoch"] else None),
            ("trained on", f"{amounts}, in {counted(result['steps'], 'step')}"),
            ("time", f"{lasted(spent['seconds'])}, {result['tokens_per_second']:,.0f} tokens/s"),
            ("checkpoint", result["checkpoint"]),
            ("logs", result["logs"]),
        ]
    )


def _row(point: dict[str, float]) -> tuple[str, ...]:
    return (
        *(f"{point[name]:,.0f}" for name in ("step", "bytes", "tokens", "seconds")),
        f"{point['train_loss']:.4f}",
        f"{point['validation_bits_per_byte']:.4f}",
    )
