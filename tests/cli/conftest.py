"""What the tests of the command line share: running commands, in this process and in one of their own, and small inputs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from minigpt_tok import Tokenizer, train_tokenizer
from minigpt_tok.cli import app

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]

SENTENCES = (
    "The cat sat on the mat, and the other cat sat on the other mat.",
    "In 1969, 600,000,000 people watched: it was the widest audience so far.",
    "Lower, lowest; newer, newest; wider, widest. That's what they said!",
    "日本語のテキスト и русский текст, naïve café, हिन्दी, 👩🏽‍🚀.",
)


@pytest.fixture
def run() -> Run:
    """Run a command in this process."""
    runner = CliRunner()
    return lambda *words, **options: runner.invoke(app, [str(word) for word in words], **options)


@pytest.fixture(scope="session")
def command_line() -> Callable[..., list[str]]:
    """Words to start a command with in a process of its own, as a shell would."""
    program = "from minigpt_tok.cli import main; main()"
    return lambda *words: [sys.executable, "-c", program, *map(str, words)]


@pytest.fixture
def start(command_line: Callable[..., list[str]], environment: Callable[..., dict[str, str]], tmp_path: Path) -> Start:
    """Run a command in a process of its own, in the folder `tmp_path`, to its end."""

    def started(*words: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
        usual = {"cwd": tmp_path, "capture_output": True, "timeout": 120, "env": environment()}
        return subprocess.run(command_line(*words), check=False, **{**usual, **options})

    return started


@pytest.fixture(scope="session")
def environment() -> Callable[..., dict[str, str]]:
    """This process's environment without what changes how commands look, and with what is given."""
    return lambda **more: {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "MINIGPT_TOK_DEBUG")} | more


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Forty short documents, each different."""
    return [f"{SENTENCES[n % 4]} Number {n}: {SENTENCES[(n + n // 4) % 4]}" for n in range(40)]


@pytest.fixture(scope="session")
def tokenizer(texts: list[str]) -> Tokenizer:
    """400 ids, `<|endoftext|>` the first of them."""
    return train_tokenizer(iter(texts), 400, special_tokens=["<|endoftext|>"])


@pytest.fixture
def tokenizer_file(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """That tokenizer, saved."""
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    return path


@pytest.fixture
def corpus_folder(texts: list[str], tmp_path: Path) -> Path:
    """A corpus with splits of its own: `train.txt`, `validation.txt` and `test.txt`."""
    folder = tmp_path / "stories"
    folder.mkdir()
    for split, part in (("train", texts[:30]), ("validation", texts[30:35]), ("test", texts[35:])):
        (folder / f"{split}.txt").write_text("\n<|endoftext|>\n".join(part), encoding="utf-8")
    return folder
