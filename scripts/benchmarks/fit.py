"""What `fit` costs over a plain PyTorch loop, and how fast it trains beside nanoGPT's model of the same body.

Three contestants see the same batches, the blocks of the `pydocs` train split in `fit`'s own order:

* nanogpt: a model as nanoGPT has it, in a plain loop;
* plain: `MiniGPT` in the same plain loop;
* fit: `minigpt_tok.gpt.training.fit`, with a line of its log for every step and a checkpoint at the end (a run makes a
  hundred lines and ten checkpoints, however long it is; validation is left out).

A plain loop is: batch, loss, backward, clip, set the learning rate, step, drop the gradients. All have AdamW in its
fused form. Rounds are interleaved, so that a busy moment hits all alike; tokens per second are medians over rounds, and
ratios are medians of each round's ratio. `plain` and `fit` must end with the same weights, bit for bit, or there is no
result.

Goals: fit takes at most 5% longer than plain, and trains at least as many tokens per second as nanogpt.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

OUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
CONTESTANTS = ("nanogpt", "plain", "fit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen; the defaults are those of the goal."""
    parser.add_argument("--steps", type=int, default=40, help="in a round, for each contestant (default 40)")
    parser.add_argument("--rounds", type=int, default=5, help="after one that is not counted (default 5)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--block-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.0, 0.1])
    parser.add_argument(
        "--vocab-size", nargs="+", default=["characters", "8192"], help="of BPE, or `characters` (default both)"
    )
    parser.add_argument("--threads", type=int, help="of PyTorch (default: its own choice)")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for fit.json and fit.md")


def run(arguments: argparse.Namespace) -> None:
    """Measure every vocabulary and dropout, print the table and write both files."""
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    result: dict[str, Any] = {
        "machine": machine("torch", "lightning") | {"threads": torch.get_num_threads()},
        "settings": {
            name: value for name, value in vars(arguments).items() if name not in ("run", "out", "command", "threads")
        },
        "cases": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for vocab_size in arguments.vocab_size:
            data, tokenizer = _encoded(vocab_size, Path(folder) / vocab_size)
            for dropout in arguments.dropout:
                case = _measure(arguments, data, tokenizer, dropout, Path(folder))
                result["cases"].append({"vocabulary": vocab_size, "vocab_size": tokenizer.vocab_size, **case})
                print(_rows(result["cases"][-1:]), end="", flush=True)
    result["machine"]["load_after"] = machine()["load"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "fit.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "fit.md").write_text(_page(result), encoding="utf-8")
    print(f"written to {arguments.out / 'fit.json'} and fit.md")


def _encoded(vocab_size: str, folder: Path) -> tuple[Path, Any]:
    """(folder of id files, tokenizer) of `pydocs`."""
    from minigpt_tok import encode_corpus, train_tokenizer
    from minigpt_tok.data.corpora import open_corpus
    from minigpt_tok.measure.contenders import character_baseline

    corpus = open_corpus("pydocs")
    if vocab_size == "characters":
        tokenizer = character_baseline(corpus)
    else:
        tokenizer = train_tokenizer(corpus, vocab_size=int(vocab_size), special_tokens=["<|endoftext|>"])
    encode_corpus(corpus, tokenizer, folder)
    return folder, tokenizer


def _measure(arguments: argparse.Namespace, data: Path, tokenizer: Any, dropout: float, folder: Path) -> dict[str, Any]:
    import torch
    from benchmarks.nanogpt import NanoGPT

    from minigpt_tok.data.data_module import TokenDataModule
    from minigpt_tok.gpt.config import MiniGPTConfig
    from minigpt_tok.gpt.lightning_module import LitMiniGPT
    from minigpt_tok.gpt.options import TrainingOptions
    from minigpt_tok.gpt.training import fit

    tokens = arguments.steps * arguments.batch_size * arguments.block_size
    budget = f"tokens={tokens}"
    options = TrainingOptions(
        batch_size=arguments.batch_size, accelerator="cpu", validation_bytes=0, logs=arguments.steps, validations=1
    )
    config = MiniGPTConfig(
        tokenizer.vocab_size,
        block_size=arguments.block_size,
        embedding_dim=arguments.width,
        num_heads=arguments.heads,
        num_layers=arguments.layers,
        dropout=dropout,
    )
    module = TokenDataModule(data, arguments.block_size, arguments.batch_size, tokenizer=tokenizer)
    module.setup()
    batches = list(itertools.islice(module.train_dataloader(), arguments.steps))
    if len(batches) < arguments.steps or batches[-1][0].shape[0] < arguments.batch_size:
        raise SystemExit(f"an epoch has fewer than {arguments.steps} whole batches; take fewer steps")
    rates = _learning_rates(options, arguments.steps)

    def plain(model: Any) -> float:
        optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": options.weight_decay},
                {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
            ],
            betas=(options.beta1, options.beta2),
            fused=True,
        )
        # In the optimizer's order, as Lightning clips: the norm is a sum, whose last bit depends on it.
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        model.train()
        started = time.perf_counter()
        for (inputs, targets), rate in zip(batches, rates, strict=True):
            loss = model.loss(inputs, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, options.gradient_clip)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - started

    ends: dict[str, dict[str, torch.Tensor]] = {}
    inside: list[float] = []  # of fit: seconds of steps alone

    def with_nanogpt() -> float:
        torch.manual_seed(options.seed)
        return plain(
            NanoGPT(
                tokenizer.vocab_size,
                arguments.block_size,
                arguments.width,
                arguments.heads,
                arguments.layers,
                dropout,
            )
        )

    def with_plain() -> float:
        torch.manual_seed(options.seed)
        lit = LitMiniGPT(config, budget=budget, tokenizer=tokenizer, options=options)
        seconds = plain(lit.model)
        ends["plain"] = lit.model.state_dict()
        return seconds

    def with_fit() -> float:
        clocks = _Clocks()
        result = fit(
            data,
            tokenizer,
            folder / "run",
            budget=budget,
            config=config,
            options=options,
            overwrite=True,
            callbacks=[clocks.callback()],
        )
        ends["fit"] = result.model.state_dict()
        inside.append(result.seconds)
        return clocks.seconds

    contestants: dict[str, Callable[[], float]] = dict(
        zip(CONTESTANTS, (with_nanogpt, with_plain, with_fit), strict=True)
    )
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(arguments.rounds + 1):
        for name, contestant in contestants.items():
            taken = contestant()
            if round_number:
                seconds[name].append(taken)
        differing = [name for name, value in ends["plain"].items() if not torch.equal(value, ends["fit"][name])]
        if differing:
            raise SystemExit(f"plain and fit end with other weights ({differing[0]}), so their times do not compare")

    def ratio(a: list[float], b: list[float]) -> float:
        return statistics.median(x / y for x, y in zip(a, b, strict=True))

    return {
        "dropout": dropout,
        "tokens": tokens,
        "seconds": seconds | {"fit_steps_alone": inside[1:]},
        "tokens_per_second": {name: tokens / statistics.median(values) for name, values in seconds.items()},
        "fit_over_plain": ratio(seconds["fit"], seconds["plain"]),
        "fit_steps_over_plain": ratio(inside[1:], seconds["plain"]),
        "nanogpt_over_fit": ratio(seconds["nanogpt"], seconds["fit"]),
    }


class _Clocks:
    """Wall seconds from the start of training to its end, logs and checkpoints included."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def callback(self) -> Any:
        """For Lightning."""
        import lightning as L

        clocks = self

        class _Callback(L.Callback):
            def on_train_start(self, *_: Any) -> None:
                self.started = time.perf_counter()

            def on_train_end(self, *_: Any) -> None:
                clocks.seconds = time.perf_counter() - self.started

        return _Callback()


def _learning_rates(options: Any, steps: int) -> list[float]:
    from minigpt_tok.gpt.schedule import learning_rate

    peak = options.learning_rate
    floor = peak * options.final_learning_rate
    return [learning_rate((step + 1) / steps, peak=peak, warmup=options.warmup, floor=floor) for step in range(steps)]


def _rows(cases: list[dict[str, Any]]) -> str:
    lines = []
    for case in cases:
        rates = case["tokens_per_second"]
        lines.append(
            f"| {case['vocabulary']} ({case['vocab_size']:,}) | {case['dropout']} | "
            + " | ".join(f"{rates[name]:,.0f}" for name in CONTESTANTS)
            + f" | {case['fit_over_plain'] - 1:+.1%} | {case['nanogpt_over_fit']:.2f} |\n"
        )
    return "".join(lines)


def _page(result: dict[str, Any]) -> str:
    on, settings = result["machine"], result["settings"]
    return (
        "# What `fit` costs, and how fast it trains\n\n"
        "Written by `python scripts/benchmark.py fit`, which says what the contestants are. Tokens per second, medians "
        f"of {settings['rounds']} interleaved rounds of {settings['steps']} steps; {settings['layers']} layers, width "
        f"{settings['width']}, {settings['heads']} heads, block {settings['block_size']}, batch "
        f"{settings['batch_size']}, float32.\n\n"
        "| vocabulary | dropout | nanogpt | plain | fit | fit over plain | fit / nanogpt |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        f"{_rows(result['cases'])}\n"
        f"{on['processor']}, {on['threads']} threads, load {on['load']} before and {on['load_after']} after; Python "
        f"{on['python']}, torch {on['versions']['torch']}, lightning {on['versions']['lightning']}. Goals: fit over plain "
        "at most +5%, fit / nanogpt at least 1. `fit` logs every step and writes a checkpoint at the end, `plain` and "
        "`nanogpt` write nothing; its steps alone are in `fit.json`, with every time.\n"
    )
