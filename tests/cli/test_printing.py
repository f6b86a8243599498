"""Numbers, tokens, tables and JSON as commands print them, and progress on a terminal."""

import dataclasses
import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from minigpt_tok.cli.printing import (
    counted,
    escaped,
    lasted,
    plain,
    print_facts,
    print_json,
    print_table,
    readable,
    sized,
)
from minigpt_tok.cli.progress import describe, progress


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 bytes"), (9_999, "9,999 bytes"), (10_000, "10.0 kB"), (99_949, "99.9 kB"), (99_960, "100 kB"),
        (999_499, "999 kB"), (999_559, "1.0 MB"), (12_345_678, "12.3 MB"), (999_600_000, "1.0 GB"),
        (5e12, "5.0 TB"), (5e15, "5,000 TB"),
    ],
)  # fmt: skip
def test_sizes(n_bytes: float, text: str):
    assert sized(n_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.123, "0.12 s"), (12.34, "12.3 s"), (65, "1 min 05 s"), (3599.6, "1 h 00 min"), (8000, "2 h 13 min")]
)  # fmt: skip
def test_times(seconds: float, text: str):
    assert lasted(seconds) == text


def test_counted():
    assert (counted(1, "document"), counted(0, "id"), counted(1_234, "id")) == ("1 document", "0 ids", "1,234 ids")


def test_tokens_are_read_on_one_line_and_do_nothing_to_the_terminal():
    assert readable(b" the") == "␣the"
    assert readable(b"\n\t\r") == "⏎⇥␍"
    assert readable("日".encode()[:2]) == "\\xe6\\x97"
    assert readable("\x1b[31m\u202e\x00") == "\\x1b[31m\\u202e\\x00"
    assert escaped("a\nb\tc日👍🏽") == "a\nb\tc日👍🏽"


def test_json_is_one_object_of_what_json_can_hold(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    @dataclasses.dataclass
    class Inner:
        path: Path

    print_json(
        {
            "a": Inner(tmp_path),
            "b": math.inf,
            "c": np.float64(1.5),
            "d": np.arange(3),
            "e": {"y", "x"},
            "f": (b"\xe6", b"a"),
        }
    )
    assert json.loads(capsys.readouterr().out) == {
        "a": {"path": str(tmp_path)}, "b": None, "c": 1.5, "d": [0, 1, 2], "e": ["x", "y"], "f": ["\\xe6", "a"],
    }  # fmt: skip
    assert plain({1: None, "flag": True}) == {"1": None, "flag": True}


def test_columns_stand_below_one_another_whatever_the_script(capsys: pytest.CaptureFixture[str]):
    print_table(("token", "count"), [("日本", 5), ("the", 1_000)])
    print_facts([("one", 1), ("three", "a\nb"), ("nothing", None)])
    assert capsys.readouterr().out == "token  count\n日本       5\nthe     1000\none    1\nthree  a\n       b\n"


def test_progress_says_what_is_done_the_rate_and_the_time_left():
    assert describe("bytes", 12_300_000, 45_600_000, 3_400_000, 9.8) == "12.3 MB of 45.6 MB, 3.4 MB/s, 10 s left"
    assert describe("merges", 100, 8_000, None, None) == "100 of 8,000"
    assert describe("bytes", 0, None, None, None) == "0 bytes"
    assert describe("merges", 8_000, 8_000, 50.0, 0.0) == "8,000 of 8,000, 50/s"


def test_there_is_no_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    with progress() as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
def test_progress_on_a_terminal_goes_to_standard_error(command_line, environment, tmp_path: Path):
    import pty

    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n * n:x} " for n in range(200_000)), encoding="ascii")
    terminal, stderr = pty.openpty()
    words = command_line("train", text, "-n", 1_000, "-o", tmp_path / "t.json", "--json")
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=stderr, env=environment(TERM="xterm-256color", COLUMNS="120")
    )
    os.close(stderr)
    assert process.stdout is not None
    shown = b""
    while True:
        try:
            read = os.read(terminal, 65_536)
        except OSError:  # Linux says so when the other side has closed
            break
        if not read:
            break
        shown += read
    assert process.wait(60) == 0
    assert json.loads(process.stdout.read())["vocab_size"] == 1_000
    os.close(terminal)
    seen = shown.decode("utf-8")
    assert "counting pieces" in seen
    assert "merging" in seen
    assert " of 744" in seen
    assert f" of {text.stat().st_size / 1e6:.1f} MB" in seen
