"""Memory stays flat however large a corpus is: 200 MB go through in a process that may not grow."""

import gzip
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
    return sum(len(raw) for _, raw in open_corpus(path, fractions={"train": 1.0}).splits["train"].with_bytes())
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


def growth(tmp_path, name, mode, n_bytes):
    (tmp_path / "measure.py").write_text(MEASURE)
    write(tmp_path / f"small{name}", 20_000_000)
    write(tmp_path / f"large{name}", n_bytes)
    done = subprocess.run(
        [sys.executable, "measure.py", f"large{name}", mode], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
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
def test_encoding_200_megabytes_needs_no_more_memory(tmp_path, tokenizer, record_property):
    tokenizer.save(tmp_path / "t.json")
    grown = growth(tmp_path, ".txt", "encode", 200_000_000)
    record_property("summary", f"encoding 200 MB: {grown:.1f} MiB more than encoding 20 MB")
    assert grown < 30
