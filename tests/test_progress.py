"""What progress says, and to whom."""

import os
import re
import subprocess
import sys

import pytest

from minigpt_tok.progress import describe, progress

posix = pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")


def test_it_says_what_is_done_the_rate_and_the_time_gone_and_left():
    assert describe("bytes", 12_300_000, 45_600_000, 3_400_000, 3.6, 9.8) == (
        "12.3 MB of 45.6 MB, 3.4 MB/s, 4 s gone, 10 s left"
    )
    assert describe("merges", 100, 8_000, None, None, None) == "100 of 8,000"
    assert describe("bytes", 0, None, None, None, None) == "0 bytes"
    assert describe("merges", 8_000, 8_000, 50.0, 160.0, 0.0) == "8,000 of 8,000, 50/s, 2 min 40 s gone"


def test_there_is_none_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    with progress() as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def on_a_terminal(code: str) -> tuple[str, str]:
    """What a program shows on a terminal as its standard error, and what it prints."""
    import pty

    terminal, stderr = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120"}
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, env=environment, check=True, text=True)
    os.set_blocking(terminal, False)
    try:
        shown = os.read(terminal, 1 << 20).decode("utf-8")
    except BlockingIOError:
        shown = ""
    os.close(stderr)
    os.close(terminal)
    return shown, process.stdout


@posix
def test_counts_are_said_beside_the_stage_that_they_belong_to():
    shown, _ = on_a_terminal("""if True:
        import time
        from minigpt_tok.progress import progress
        with progress({"corpus: bytes": "counting"}) as report:
            report("corpus: chunks", 1, None)
            report("corpus: bytes", 500, 1000)
            time.sleep(0.4)
            report("corpus: distinct pieces", 12_345, None)
            report("merges", 0, 7)
            time.sleep(0.4)
    """)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r", "\n").splitlines()
    assert any(re.match(r"counting .* 500 bytes of 1,000 bytes, 0 s gone; 1 chunk$", line) for line in lines)
    assert any(re.match(r"merges .* 0 of 7, 0 s gone; 12,345 distinct pieces$", line) for line in lines)


@posix
@pytest.mark.parametrize(("progress", "seen"), [("None", True), ("print", False), ("quiet", False)])
def test_training_shows_bars_on_a_terminal_unless_told_otherwise(progress: str, seen: bool):
    shown, printed = on_a_terminal(
        "from minigpt_tok import train_tokenizer\nfrom minigpt_tok.progress import quiet\n"
        f"train_tokenizer(iter(['low lower lowest']), 260, progress={progress})"
    )
    assert ("merging" in shown) == seen
    assert ("merges 4 4" in printed) == (progress == "print")
