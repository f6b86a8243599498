"""Memory stays flat however large a corpus is: 200 MB go through in a process that may not grow, and so do 10 GB of ids."""

import gzip
import io
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import complete

MEASURE = """
import sys
from minigpt_tok import Tokenizer, encode_corpus
from minigpt_tok.data.corpora import open_corpus
path, mode = sys.argv[1:]
def peak():
    # Of this program alone, in kB: what getrusage says begins with that of the program that started it.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
def read(path):
    return sum(map(len, open_corpus(path, fractions={"train": 1.0}).splits["train"].in_utf8()))
def run(path, out):
    if mode == "read":
        return read(path)
    from minigpt_tok.data.id_file import read_metadata
    return read_metadata(encode_corpus(open_corpus(path, fractions={"train": 1.0}), Tokenizer.load("t.json"), out)["train"]).n_bytes
small = path.replace("large", "small")
run(small, "out-small")  # whatever is imported and made once
before = peak()
n = run(path, "out-large")
print(n, (peak() - before) / 1024, before / 1024)
"""


# What is measured is what is held. By default the C library learns from large blocks that are given back to keep ever
# larger ones, and what it keeps creeps up over gigabytes, by some tens of MiB, before it stands still.
GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "2"}


def write(path, n_bytes):
    """Stories of some hundred bytes."""
    story = "once upon a time there was a text of no meaning, and it was read, naïvely. " * 8
    count = n_bytes // len(story)
    stories = (f"{n} {story}" for n in range(count))
    if path.suffix == ".parquet":
        schema = pa.schema([("text", pa.string())])
        with pq.ParquetWriter(path, schema) as out:
            for start in range(0, count, 10_000):
                rows = [f"{n} {story}" for n in range(start, min(count, start + 10_000))]
                out.write_table(pa.table({"text": rows}))
        return path
    opened = gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else open(path, "w", encoding="utf-8")  # noqa: SIM115
    with opened as file:
        for text in stories:
            file.write(json.dumps({"text": text}) + "\n" if ".jsonl" in path.name else f"{text}\n<|endoftext|>\n")
    return path


def growth(tmp_path, name, mode, n_bytes, small=20_000_000):
    (tmp_path / "measure.py").write_text(MEASURE)
    write(tmp_path / f"small{name}", small)
    write(tmp_path / f"large{name}", n_bytes)
    done = subprocess.run(
        [sys.executable, "measure.py", f"large{name}", mode],
        cwd=tmp_path, env={**os.environ, **GIVEN_BACK}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read, grown, before = map(float, done.stdout.split())
    assert read > 0.95 * n_bytes
    assert before > 20  # or this measures nothing
    return grown


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", [".txt", ".txt.gz", ".jsonl", ".parquet"])
def test_reading_200_megabytes_needs_no_more_memory(tmp_path, name, record_property):
    grown = growth(tmp_path, name, "read", 200_000_000)
    record_property("summary", f"reading 200 MB of {name}: {grown:.1f} MiB more than reading 20 MB")
    assert grown < 30


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_encoding_a_gigabyte_needs_no_more_memory(tmp_path, tokenizer, record_property):
    tokenizer.save(tmp_path / "t.json")
    # The smaller one is long enough for as many batches as may wait to have waited at some time.
    grown = growth(tmp_path, ".txt", "encode", 1_000_000_000, small=200_000_000)
    record_property("summary", f"encoding 1 GB: {grown:.1f} MiB more than encoding 200 MB")
    assert grown < 30


LOAD = """
import itertools, os, sys
from minigpt_tok.data.loader import TokenLoader
from minigpt_tok.data.order import ResumableSampler
from minigpt_tok.data.token_dataset import TokenDataset
def own():
    # Without the pages of mapped files, which the system takes back when it needs them.
    _, every, of_files, *_ = map(int, open("/proc/self/statm").read().split())
    return (every - of_files) * os.sysconf("SC_PAGE_SIZE")
def most(path):
    dataset = TokenDataset(path, 1024, packing=sys.argv[1])
    loader = TokenLoader(dataset, ResumableSampler(len(dataset), 32))
    return max(own() for _ in itertools.islice(loader, 200))
most("small")  # whatever is imported and made once
before = own()
print((most("large") - before) / 2**20, before / 2**20)
"""


def write_sparse(folder, n_tokens):
    """An id file of zeros that takes next to no room; the documents have 100,000 ids each."""
    n_documents = n_tokens // 100_000
    metadata = IdFileMetadata(
        tokenizer_fingerprint="0" * 64, tokenizer_fingerprint_version=1, vocab_size=300, corpus="zeros", split="train",
        n_tokens=n_tokens, n_documents=n_documents,
    )  # fmt: skip
    folder.mkdir()
    with open(folder / "train.safetensors", "wb") as file:
        ends = np.arange(100_000, n_tokens + 1, 100_000, dtype="<i8")
        complete(file, (io.BytesIO(ends.tobytes()), io.BytesIO(bytes(8 * n_documents))), metadata)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("packing", ["contiguous", "document", "best_fit"])
def test_batches_of_10_gigabytes_of_ids_need_no_more_memory_than_of_100_megabytes(tmp_path, packing, record_property):
    write_sparse(tmp_path / "small", 50_000_000)
    write_sparse(tmp_path / "large", 5_000_000_000)
    assert (tmp_path / "large" / "train.safetensors").stat().st_size > 10_000_000_000
    (tmp_path / "load.py").write_text(LOAD)
    done = subprocess.run(
        [sys.executable, "load.py", packing], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    grown, before = map(float, done.stdout.split())
    record_property("summary", f"batches, {packing}: {grown:.1f} MiB more of 10 GB of ids than of 100 MB")
    assert before > 20  # or this measures nothing
    assert grown < 10
