"""Tokens, tables and JSON as commands print them, and progress on a terminal."""

import dataclasses
import json
import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from minigpt_tok.cli.printing import (
    escaped,
    plain,
    print_facts,
    print_json,
    print_table,
    readable,
)


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


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
def test_progress_on_a_terminal_goes_to_standard_error(command_line, environment, tmp_path: Path):
    import pty

    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n * n:x} " for n in range(200_000)), encoding="ascii")
    terminal, stderr = pty.openpty()
    words = command_line("train", text, "-n", 1_000, "-o", tmp_path / "t.json", "--json")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=stderr, env=environment(TERM="xterm-256color", COLUMNS="120")
    ) as process:
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
    assert re.search(r" of 744, .*\d s gone; 70,971 distinct pieces", seen)
    assert f" of {text.stat().st_size / 1e6:.1f} MB" in seen
