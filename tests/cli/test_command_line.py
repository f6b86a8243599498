"""What holds for every command: help with an example, exit statuses, one message for an error, JSON, pipes, interrupts."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from minigpt_tok._version import __version__
from minigpt_tok.cli.group import COMMANDS, load_command

HEAVY = ("torch", "lightning", "datasets", "matplotlib")


@pytest.mark.parametrize("words", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(words: list[str]):
    code = (
        "import sys\nfrom minigpt_tok.cli import main\ntry:\n    main()\nfinally:\n"
        f"    print(*sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert process.stderr.split() == []
    assert "Usage" in process.stdout


def test_help_lists_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f" {name} " in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_takes_json(run, name: str):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"Example: minigpt-tok {name} " in result.stdout
    assert "--json" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_can_be_parsed(name: str):
    from importlib import import_module

    program, command, *words = shlex.split(import_module(f"minigpt_tok.cli.{name}").EXAMPLE)
    assert (program, command) == ("minigpt-tok", name)
    load_command(name).make_context(name, words)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_help_of_the_command_says(name: str):
    first_line = (load_command(name).help or "").splitlines()[0]
    assert first_line == COMMANDS[name]


def test_the_readme_lists_every_command_once_and_no_other():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    # The first column of the table under the heading of commands: each cell one or more names in backticks.
    (table,) = re.findall(r"^\| command \|.*?\n\| -.*?\n(.*?)\n\n", readme, re.DOTALL | re.MULTILINE)
    listed = [name for row in table.splitlines() for name in re.findall(r"`([\w-]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(COMMANDS)


def test_the_list_is_of_the_modules_that_are_commands():
    modules = (Path(__file__).parents[2] / "minigpt_tok" / "cli").glob("*.py")
    examples = {
        path.stem for path in modules if re.search(r"^EXAMPLE = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert examples == set(COMMANDS)


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"minigpt-tok {__version__}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["explain", "word"],
        ["explain", "word", "-t"],
        ["explain", "word", "--nonsense"],
        ["--nonsense"],
        ["train", "file.txt", "--vocab-size", "many"],
        ["train", "file.txt", "--vocab-size", "300", "-o", "t.json", "--recipe", "nonsense"],
    ],
)
def test_wrong_usage_is_status_2(run, words: list[str]):
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert "Traceback" not in result.stderr


def test_a_mistyped_command_is_guessed(run):
    assert "Did you mean 'train'?" in run("trian").stderr


def test_an_error_is_one_message_and_status_1(start):
    process = start("explain", "word", "-t", "missing.json")
    assert process.returncode == 1
    assert process.stdout == b""
    assert process.stderr.decode() == "error: missing.json: no such file or folder; check the path\n"


def test_an_error_is_json_too_where_json_is_asked_for(start):
    process = start("explain", "word", "-t", "missing.json", "--json")
    assert process.returncode == 1
    assert "missing.json" in json.loads(process.stdout)["error"]
    assert process.stderr.startswith(b"error: missing.json")


BUG = """
import minigpt_tok.cli.explain as module
class Broken:
    @staticmethod
    def load(path): raise KeyError("a slip")
module.Tokenizer = Broken
from minigpt_tok.cli import main
main()
"""


def test_a_bug_is_called_one_and_shows_a_traceback_only_when_asked(environment):
    words = [sys.executable, "-c", BUG, "explain", "word", "-t", "x.json"]
    process = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert "a bug in minigpt-tok: KeyError: 'a slip'" in process.stderr
    assert "MINIGPT_TOK_DEBUG=1" in process.stderr
    env = environment(MINIGPT_TOK_DEBUG="1")
    process = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert process.returncode == 1
    assert "Traceback" in process.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")
class TestStandardOutput:
    @pytest.fixture
    def long_text(self, tmp_path: Path) -> Path:
        path = tmp_path / "long.txt"
        path.write_text("The cat sat on the mat. " * 20_000, encoding="utf-8")
        return path

    def test_a_reader_that_stops_reading_is_no_error(self, command_line, tokenizer_file: Path, long_text: Path):
        with open(long_text, "rb") as text, subprocess.Popen(
            command_line("show", "-", "-t", tokenizer_file),
            stdin=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            stderr = process.stderr.read()
            assert process.wait(60) == 141
            assert stderr == b""

    def test_a_full_disk_under_standard_output_is_an_error(self, command_line, tokenizer_file: Path):
        if not Path("/dev/full").exists():
            pytest.skip("needs /dev/full")
        with open("/dev/full", "wb") as full:
            process = subprocess.run(
                command_line("explain", "word", "-t", tokenizer_file),
                stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
            )  # fmt: skip
        assert process.returncode == 1
        assert process.stderr.decode().splitlines() == [
            "error: the disk is full, and nothing half-written was left; make room, or choose another disk"
        ]

    def test_characters_that_the_encoding_lacks_are_escaped(self, start, environment, tokenizer_file: Path):
        for words in ([], ["--json"]):
            process = start("explain", " 日", "-t", tokenizer_file, *words, env=environment(PYTHONIOENCODING="ascii"))
            assert (process.returncode, process.stderr) == (0, b"")
        assert json.loads(process.stdout)["text"] == " 日"
