"""The benchmarks of loading and of encoding to disk, on next to nothing: that they run, and what they leave."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "benchmark.py"


def benchmark(*arguments: object) -> str:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def test_loading(tmp_path: Path):
    small = ("--tokens", 2e5, "--batches", 3, "--rounds", 2, "--batch-size", 2, "--block-size", 64, "--sizes", 1e6, 2e6)
    page = benchmark("load", *small, "--out", tmp_path)
    assert (tmp_path / "load.md").read_text("utf-8").strip() == page.strip()
    result = json.loads((tmp_path / "load.json").read_text("utf-8"))
    ways = {"nanogpt", "windows", "one_by_one", "contiguous", "document", "best_fit", "bos_aligned"}
    assert set(result["batches_per_second"]) == ways
    assert all(len(rates) == 2 and min(rates) > 0 for rates in result["batches_per_second"].values())
    assert [row["bytes_of_ids"] for row in result["memory"]] == [1_000_000, 2_000_000]


def test_encoding_to_disk(shared: Path, tmp_path: Path):
    page = benchmark("encode-corpus", "--quick", "--rounds", 1, "--shared", shared.parent, "--scratch", tmp_path)
    assert "`encode_corpus()`, all cores" in page
    assert list(tmp_path.iterdir()) == []
