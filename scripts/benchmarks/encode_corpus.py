"""What writing id files costs: `encode_corpus`, from a text file to id files on disk, beside the core's encoding alone.

Three contestants, in one process, in rounds:

* core: `encode_batch_to_numpy` over the documents, which are in memory already, in batches of a megabyte, for which it
  takes one thread;
* one: `encode_corpus(workers=1)`: the file read and cut into documents, each hashed, encoded in the same thread, the ids
  hashed and written in shards, and flushed to the disk;
* all: `encode_corpus()` as it is called: the same, and encoding on all cores meanwhile.

The text is the 100 MB of English prose, cut at its blank lines into documents of about 4,000 bytes, once and four times
over: what is done once for a corpus (start, the last flush to the disk) takes some 20 ms. GPT-2's vocabulary.
Rates are medians of wall time, ratios medians of each round's ratio. The id files must be equal, or there is no result.

Goal: to disk at least 0.8 × the core's encoding alone on one thread.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.measure import shared_data
from benchmarks.options import OUT
from benchmarks.texts import Texts

DOCUMENT_BYTES = 4_000
SEPARATOR = "\n<|endoftext|>\n"
CONTESTANTS = ("core", "one", "all")
COPIES = (1, 4)  # of the text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen; the defaults are those of the goal."""
    parser.add_argument("--shared", type=Path, help="folder of shared data")
    parser.add_argument("--rounds", type=int, default=7, help="after one that is not counted (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="4 MB of text, to see that it works; writes nothing")
    parser.add_argument("--scratch", type=Path, help="where the id files go (the system's temporary folder)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for encode-corpus.json and .md")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print, and write both files."""
    from minigpt_tok import Tokenizer

    data = shared_data(arguments.shared)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as name:
        folder = Path(name)
        documents = _documents(Texts(data, folder, quick=arguments.quick).get("prose").path)
        gpt2 = data / "tokenizers" / "gpt2"
        tokenizer = Tokenizer.from_gpt2(gpt2 / "encoder.json", gpt2 / "vocab.bpe")
        sizes = []
        for copies in COPIES:
            path = folder / "documents.txt"
            path.write_bytes(SEPARATOR.join(documents * copies).encode("utf-8"))
            seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
            for number in range(arguments.rounds + 1):
                took, files = _round(path, documents * copies, tokenizer, folder / "ids")
                if len(set(files)) != 1:
                    raise SystemExit("the id files differ")
                if number:
                    for contestant, value in took.items():
                        seconds[contestant].append(value)
            sizes.append(_size(path.stat().st_size, len(documents) * copies, seconds))
    result = {"machine": machine("numpy"), "rounds": arguments.rounds, "sizes": sizes}
    page = _page(result)
    print(page, end="")
    if not arguments.quick:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "encode-corpus.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (arguments.out / "encode-corpus.md").write_text(page, encoding="utf-8")


def _documents(prose: Path) -> list[str]:
    """The prose in documents."""
    documents: list[str] = []
    part: list[str] = []
    size = 0
    for paragraph in prose.read_bytes().decode("utf-8").split("\n\n"):
        part.append(paragraph)
        size += len(paragraph) + 2
        if size >= DOCUMENT_BYTES:
            documents.append("\n\n".join(part))
            part, size = [], 0
    documents.append("\n\n".join(part))
    return [document for document in documents if document.strip("\n")]


def _size(n_bytes: int, n_documents: int, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """What was measured on one size of corpus."""
    return {
        "text_bytes": n_bytes,
        "documents": n_documents,
        "megabytes_per_second": {n: statistics.median(n_bytes / 1e6 / s for s in took) for n, took in seconds.items()},
        "ratio_to_core": {
            n: statistics.median(core / s for core, s in zip(seconds["core"], seconds[n], strict=True))
            for n in CONTESTANTS[1:]
        },
        "seconds": seconds,
    }


def _round(path: Path, documents: list[str], tokenizer: Any, out: Path) -> tuple[dict[str, float], list[bytes]]:
    """(contestant → seconds, what was written)."""
    from minigpt_tok import encode_corpus
    from minigpt_tok.data.corpora import open_corpus

    batches: list[list[str]] = [[]]
    size = 0
    for document in documents:
        batches[-1].append(document)
        size += len(document)
        if size >= 1 << 20:
            batches.append([])
            size = 0
    started = time.perf_counter()
    for batch in batches:
        tokenizer.encode_batch_to_numpy(batch)
    took = {"core": time.perf_counter() - started}
    files = []
    for contestant, options in (("one", {"workers": 1}), ("all", {})):
        shutil.rmtree(out, ignore_errors=True)
        started = time.perf_counter()
        written = encode_corpus(open_corpus(path, fractions={"train": 1.0}), tokenizer, out, **options)
        took[contestant] = time.perf_counter() - started
        files.append(written["train"].read_bytes())
    return took, files


def _page(result: dict[str, Any]) -> str:
    lines = [
        "# From a text file to id files on disk",
        "",
        (
            f"English prose, GPT-2's vocabulary; {result['rounds']} rounds; {result['machine']['processor']}, "
            f"{result['machine']['cores']} cores, load {result['machine']['load']}. Made by `scripts/benchmark.py "
            "encode-corpus`."
        ),
        "",
        "| text | | MB/s | × the core alone |",
        "| --- | --- | --- | --- |",
    ]
    labels = {
        "core": "the core alone, one thread, documents in memory",
        "one": "`encode_corpus(workers=1)`",
        "all": "`encode_corpus()`, all cores",
    }
    for size in result["sizes"]:
        text = f"{size['text_bytes'] / 1e6:.0f} MB, {size['documents']:,} documents"
        for name, rate in size["megabytes_per_second"].items():
            ratio = size["ratio_to_core"].get(name)
            lines.append(f"| {text} | {labels[name]} | {rate:.0f} | {'' if ratio is None else f'{ratio:.2f}'} |")
    return "\n".join(lines) + "\n"
