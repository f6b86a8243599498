"""How fast batches come from an id file, beside nanoGPT's way, and what memory they take as the file grows.

Contestants make batches of the same shape, int64 inputs and targets `(batch, block)`, of the same mapped file:

* nanogpt: as nanoGPT makes them: a random place for each window, each cut from the map and converted by itself, inputs
  and targets apart, then stacked. The map is opened anew for each batch, as there, so that memory does not grow;
* windows: the same, with the map opened once;
* one_by_one: PyTorch's `DataLoader` over our data set as it takes any other: block by block, stacked;
* each packing, through the loader that `TokenDataModule` makes: shuffled, whole batches at once.

The file has the given number of ids in documents of uneven length. Every contestant makes a round of batches, rounds
are interleaved, and figures are medians over rounds; ratios are medians of each round's ratio. All but loaders with workers
are timed by the processor's clock, so that other work on the machine does not count. Before anything is timed,
the batches of `contiguous` are compared with windows cut at the same places.

Memory: a process of its own for each size reads batches spread over a sparse file of so many bytes of ids, and says its
peak beyond what it had before it opened the file, once with the pages of the file itself that are mapped at the moment
(which the system takes back when it needs them) and once without.

Goal: contiguous at least twice as fast as nanogpt, and memory without mapped pages flat from 100 MB to 10 GB.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

OUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
PACKINGS = ("contiguous", "document", "best_fit", "bos_aligned")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen; the defaults are those of the goal."""
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--tokens", type=float, default=2e7, help="ids in the file (default 2e7)")
    parser.add_argument("--batches", type=int, default=300, help="in a round (default 300)")
    parser.add_argument("--rounds", type=int, default=5, help="after one that is not counted (default 5)")
    parser.add_argument("--workers", type=int, nargs="*", default=[0], help="of our loader (default 0)")
    parser.add_argument("--sizes", type=float, nargs="*", default=[1e8, 1e9, 1e10], help="bytes of ids, for memory")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)  # the process that is measured
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for load.json and load.md")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print the table and write both files."""
    import torch

    torch.set_num_threads(1)
    if arguments.memory_of:
        print(json.dumps(_memory(arguments, arguments.memory_of)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rates = _rates(arguments, folder)
        memory = [_memory_at(arguments, folder, int(size)) for size in arguments.sizes]
    result: dict[str, Any] = {
        "machine": machine("torch", "numpy", "lightning"),
        "settings": {
            name: value for name, value in vars(arguments).items() if name not in ("run", "out", "command", "memory_of")
        },
        "batches_per_second": rates,
        "memory": memory,
    }
    page = _page(result)
    print(page)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "load.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (arguments.out / "load.md").write_text(page, encoding="utf-8")


# Rates


def _rates(arguments: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Contestant → batches per second in each round."""
    from minigpt_tok import Tokenizer, train_tokenizer
    from minigpt_tok.data.id_file import IdFile

    tokenizer: Tokenizer = train_tokenizer(["some text to have a tokenizer"], 300, special_tokens=["<|endoftext|>"])
    path = _write(folder / "train.safetensors", int(arguments.tokens), tokenizer)
    file = IdFile(path)
    contestants: dict[str, Callable[[], Iterator[Any]]] = {
        "nanogpt": lambda: _windows(arguments, file, reopen=True),
        "windows": lambda: _windows(arguments, file, reopen=False),
        "one_by_one": lambda: _one_by_one(arguments, path),
    }
    for workers in arguments.workers:
        for packing in PACKINGS:
            loader = _loader(arguments, folder, tokenizer, packing, workers)
            _compare(loader, file) if packing == "contiguous" else None
            contestants[packing if not workers else f"{packing}, {workers} workers"] = _endless(loader)
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    shape = (arguments.batch_size, arguments.block_size)
    for round_number in range(arguments.rounds + 1):
        for name, start in contestants.items():
            batches = start()
            next(batches)
            clock = time.perf_counter if name.endswith("workers") else time.process_time
            before = clock()
            for _ in range(arguments.batches):
                batch = next(batches)
            seconds = clock() - before
            if (batch["inputs"] if isinstance(batch, dict) else batch[0]).shape != shape:
                raise SystemExit(f"{name}: a round has more batches than an epoch; take fewer, or more tokens")
            if round_number:
                rates[name].append(arguments.batches / seconds)
            if hasattr(batches, "close"):
                batches.close()
    return rates


def _write(path: Path, n_tokens: int, tokenizer: Any) -> Path:
    """An id file of random ids in documents of uneven length, some hundred ids on average."""
    import numpy as np

    from minigpt_tok.data.id_format import IdFileMetadata
    from minigpt_tok.data.id_writer import IdFileWriter

    generator = np.random.default_rng(0)
    separator = tokenizer.special_tokens["<|endoftext|>"]
    metadata = IdFileMetadata(
        tokenizer_fingerprint=tokenizer.fingerprint,
        tokenizer_fingerprint_version=tokenizer.fingerprint_version,
        vocab_size=tokenizer.vocab_size,
        corpus="random",
        split="train",
        separator="<|endoftext|>",
        separator_id=separator,
    )
    lengths = np.minimum(generator.lognormal(5.3, 1.0, n_tokens // 200).astype(np.int64) + 2, 20_000)
    lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), n_tokens))]
    ids = generator.integers(1, tokenizer.vocab_size, int(lengths.sum()))
    ids[np.cumsum(lengths) - 1] = separator
    with IdFileWriter(path, metadata) as file:
        file.write(ids, lengths, [bytes(size) for size in lengths.tolist()])
    return path


def _windows(arguments: argparse.Namespace, file: Any, *, reopen: bool) -> Iterator[Any]:
    import numpy as np
    import torch

    from minigpt_tok.data.id_format import header_of

    size, block = arguments.batch_size, arguments.block_size
    start = len(header_of(file.metadata))
    while True:
        ids = (
            np.memmap(file.path, dtype=file.ids.dtype, mode="r", offset=start, shape=file.ids.shape)
            if reopen
            else file.ids
        )
        places = torch.randint(len(ids) - block, (size,))
        yield (
            torch.stack([torch.from_numpy(ids[place : place + block].astype(np.int64)) for place in places]),
            torch.stack([torch.from_numpy(ids[place + 1 : place + 1 + block].astype(np.int64)) for place in places]),
        )


def _one_by_one(arguments: argparse.Namespace, path: Path) -> Iterator[Any]:
    from torch.utils.data import DataLoader, default_collate

    from minigpt_tok.data.token_dataset import TokenDataset

    dataset = TokenDataset(path, arguments.block_size)
    return iter(DataLoader(_ItemsAlone(dataset), arguments.batch_size, shuffle=True, collate_fn=default_collate))


class _ItemsAlone:
    """A data set without the way to fetch a whole batch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


def _loader(arguments: argparse.Namespace, folder: Path, tokenizer: Any, packing: str, workers: int) -> Any:
    from minigpt_tok.data.data_module import TokenDataModule

    module = TokenDataModule(
        folder, arguments.block_size, arguments.batch_size, tokenizer=tokenizer, packing=packing, num_workers=workers,
        pin_memory=False, drop_last=True,
    )  # fmt: skip
    module.setup()
    return module.train_dataloader()


def _endless(loader: Any) -> Callable[[], Iterator[Any]]:
    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    return batches


def _compare(loader: Any, file: Any) -> None:
    """The first batch is windows of the file at the places that its order says."""
    import torch

    inputs, targets = next(iter(loader))
    loader.batch_sampler.set_epoch(1)  # forget that one was taken
    loader.batch_sampler.set_epoch(0)
    block = inputs.shape[1]
    for number, row_inputs, row_targets in zip(next(loader.batch_sampler.upcoming()), inputs, targets, strict=True):
        window = torch.from_numpy(file.ids[number * block : number * block + block + 1].astype("int64"))
        if not (torch.equal(window[:-1], row_inputs) and torch.equal(window[1:], row_targets)):
            raise SystemExit(f"block {number} is not the window at its place, so nothing is measured")


# Memory


def _memory_at(arguments: argparse.Namespace, folder: Path, n_bytes: int) -> dict[str, int]:
    """What a process of its own says of a sparse file."""
    place = folder / f"sparse-{n_bytes}"
    _write_sparse(place, n_bytes // 2)
    script = Path(__file__).resolve().parents[1] / "benchmark.py"
    words = ["--memory-of", str(place), "--batch-size", str(arguments.batch_size)]
    done = subprocess.run(
        [sys.executable, str(script), "load", *words, "--block-size", str(arguments.block_size)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    (place / "train.safetensors").unlink()
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return {"bytes_of_ids": n_bytes, **found}


def _write_sparse(folder: Path, n_tokens: int) -> None:
    """A whole id file of zeros that takes next to no room; the documents have 100,000 ids each."""
    import numpy as np

    from minigpt_tok.data.id_format import IdFileMetadata
    from minigpt_tok.data.id_writer import complete

    n_documents = -(-n_tokens // 100_000)
    metadata = IdFileMetadata(
        tokenizer_fingerprint="0" * 64, tokenizer_fingerprint_version=1, vocab_size=300, corpus="zeros", split="train",
        n_tokens=n_tokens, n_documents=n_documents, n_bytes=0,
    )  # fmt: skip
    ends = np.minimum(np.arange(1, n_documents + 1, dtype="<i8") * 100_000, n_tokens)
    folder.mkdir()
    with open(folder / "train.safetensors", "wb") as file:
        complete(file, (io.BytesIO(ends.tobytes()), io.BytesIO(bytes(8 * n_documents))), metadata)


def _memory(arguments: argparse.Namespace, folder: Path) -> dict[str, int]:
    """Peaks of this process over 400 batches, in bytes beyond those before the file was opened."""
    import itertools

    from minigpt_tok.data.loader import TokenLoader
    from minigpt_tok.data.order import ResumableSampler
    from minigpt_tok.data.token_dataset import TokenDataset

    before = _resident()
    peaks = {"all": 0, "own": 0}
    dataset = TokenDataset(folder, arguments.block_size)
    loader = TokenLoader(dataset, ResumableSampler(len(dataset), arguments.batch_size))
    for _ in itertools.islice(loader, 400):
        now = _resident()
        for kind in peaks:
            peaks[kind] = max(peaks[kind], now[kind] - before[kind])
    return {"with_mapped_pages": peaks["all"], "own": peaks["own"]}


def _resident() -> dict[str, int]:
    """Bytes of this process in memory: `all`, and `own`, those of no file. Linux alone says so."""
    _, every, of_files, *_ = (int(part) for part in Path("/proc/self/statm").read_text().split())
    page = os.sysconf("SC_PAGE_SIZE")
    return {"all": every * page, "own": (every - of_files) * page}


# The page


def _ratio(name: str, values: list[float], nanogpt: list[float]) -> str:
    """Over nanogpt; of loaders with workers there is none, since another clock measured them."""
    if name.endswith("workers"):
        return "wall clock"
    return f"{statistics.median(a / b for a, b in zip(values, nanogpt, strict=True)):.2f}"


def _page(result: dict[str, Any]) -> str:
    rates, settings, on = result["batches_per_second"], result["settings"], result["machine"]
    shape = f"{settings['batch_size']} × {settings['block_size']:,}"
    rows = "".join(
        f"| {name} | {statistics.median(values):,.0f} | {statistics.median(1e6 / value for value in values):,.0f} | "
        f"{_ratio(name, values, rates['nanogpt'])} |\n"
        for name, values in rates.items()
    )
    memory = "".join(
        f"| {entry['bytes_of_ids'] / 1e6:,.0f} | {entry['own'] / 1e6:,.1f} | {entry['with_mapped_pages'] / 1e6:,.1f} |\n"
        for entry in result["memory"]
    )
    return (
        "# How fast batches come\n\n"
        "Written by `python scripts/benchmark.py load`, which says what the contestants are. Batches of "
        f"{shape} from {settings['tokens']:,.0f} ids on one core, medians of {settings['rounds']} interleaved rounds of "
        f"{settings['batches']} batches, by the processor's clock.\n\n"
        "| way | batches/s | µs each | over nanogpt |\n| --- | ---: | ---: | ---: |\n"
        f"{rows}\n"
        "Memory of 400 batches from all over a sparse file, peak in MB beyond the start of the process:\n\n"
        "| MB of ids | own | with mapped pages |\n| ---: | ---: | ---: |\n"
        f"{memory}\n"
        f"{on['processor']}, load {on['load']}; Python {on['python']}, torch {on['versions']['torch']}, numpy "
        f"{on['versions']['numpy']}. Goal: contiguous at least 2 times nanogpt.\n"
    )
