"""`minigpt-tok train`."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minigpt_tok import Tokenizer, train_tokenizer
from minigpt_tok.bpe import trainer
from minigpt_tok.cli.options import size_in_bytes
from minigpt_tok.files import writing

PROSE = "The cat sat on the mat. The other cat sat on the other mat, and the mat sat still.\n" * 20


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    path = tmp_path / "prose.txt"
    path.write_text(PROSE, encoding="utf-8")
    return path


def test_the_tokenizer_is_the_one_that_python_trains(run, prose: Path, tmp_path: Path):
    result = run("train", prose, "--vocab-size", 300, "-o", tmp_path / "t.json")
    assert result.exit_code == 0
    assert Tokenizer.load(tmp_path / "t.json") == train_tokenizer(iter([PROSE]), 300)


def test_every_switch_reaches_the_trainer(run, prose: Path, tmp_path: Path):
    words = "--recipe cs336 --pattern digits1 --min-frequency 7 --max-token-length 5 --tie first_seen --id-order specials_last"
    specials = ("--special", "<|endoftext|>", "--special", "<|pad|>")
    result = run("train", prose, "-n", 280, *words.split(), *specials, "-o", tmp_path / "t.json")
    assert result.exit_code == 0
    trained = Tokenizer.load(tmp_path / "t.json")
    assert trained == train_tokenizer(
        iter([PROSE]), 280, "cs336", ["<|endoftext|>", "<|pad|>"], pattern="digits1", min_frequency=7, max_token_length=5,
        tie="first_seen", id_order="specials_last",
    )  # fmt: skip
    assert max(map(len, trained.learned_tokens)) <= 5
    assert "<|endoftext|>" in result.stdout


def test_json_says_what_was_trained(run, prose: Path, tmp_path: Path):
    result = run("train", prose, "-n", 300, "-o", tmp_path / "t.json", "--show-merges", "3,10", "--json")
    found = json.loads(result.stdout)
    tok = Tokenizer.load(tmp_path / "t.json")
    assert found["fingerprint"] == tok.fingerprint
    assert found["bytes"] == len(PROSE.encode())
    assert found["tokens"] == tok.count(PROSE)
    for name in ("distinct_pieces", "seconds", "megabytes_per_second", "peak_memory", "threads", "stopped"):
        assert found[name] == getattr(tok.training, name)
    assert found["number_of_merges"] == len(tok.merges)
    assert [merge["number"] for merge in found["merges"]] == [
        n for n in range(1, len(tok.merges) + 1) if n <= 3 or n % 10 == 0
    ]
    first = found["merges"][0]
    assert (first["left"].encode(), first["right"].encode()) == tok.merges[0]
    assert first["count"] == tok.training.counts[0]
    assert tok.token_bytes(first["id"]).decode() == first["token"]
    longest = max(len(token) for token in tok.learned_tokens)
    assert found["longest_tokens"][0]["length"] == longest


def test_the_page_shows_merges_counts_and_why_it_stopped(run, prose: Path, tmp_path: Path):
    page = run("train", prose, "-n", 5_000, "-o", tmp_path / "t.json").stdout
    tok = Tokenizer.load(tmp_path / "t.json")
    assert tok.training.stopped in page
    assert tok.fingerprint in page
    assert "MB/s" in page
    assert f"{tok.training.threads} thread" in page
    assert "peak memory" in page
    assert "distinct" in page
    assert "longest tokens" in page
    assert f"{tok.training.counts[0]:,}" in page


def test_a_corpus_with_splits_is_learned_from_its_train_split_alone(run, corpus_folder: Path, texts, tmp_path: Path):
    (corpus_folder / "validation.txt").write_text("zzzzqqqq " * 500, encoding="utf-8")
    result = run("train", corpus_folder, "-n", 400, "-o", tmp_path / "t.json", "--json")
    assert json.loads(result.stdout)["documents"] == 30
    assert b"zzzz" not in Tokenizer.load(tmp_path / "t.json").learned_tokens


def test_files_without_splits_are_trained_on_whole(run, texts, tmp_path: Path):
    path = tmp_path / "all.txt"
    path.write_text("\n<|endoftext|>\n".join(texts), encoding="utf-8")
    found = json.loads(run("train", path, "-n", 300, "-o", tmp_path / "t.json", "--json").stdout)
    assert found["documents"] == len(texts)


def test_limits(run, corpus_folder: Path, tmp_path: Path):
    found = json.loads(
        run("train", corpus_folder, "-n", 300, "--max-documents", 3, "-o", tmp_path / "t", "--json").stdout
    )
    assert found["documents"] == 3
    found = json.loads(
        run("train", corpus_folder, "-n", 300, "--max-bytes", 500, "-o", tmp_path / "u", "--json").stdout
    )
    assert 0 < found["bytes"] <= 500


def test_a_memory_limit_changes_nothing_but_the_memory(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    words = tmp_path / "words.txt"
    words.write_text(" ".join(f"{number:x}" for number in range(60_000)), encoding="utf-8")
    limits = []
    make = trainer.counter_for
    monkeypatch.setattr(trainer, "counter_for", lambda *given: limits.append(given[2]) or make(*given))
    free = json.loads(run("train", words, "-n", 400, "-o", tmp_path / "free.json", "--json").stdout)
    limited = run("train", words, "-n", 400, "--memory-limit", "0.3MB", "-o", tmp_path / "limited.json", "--json")
    assert limits == [None, 300_000]
    assert json.loads(limited.stdout)["fingerprint"] == free["fingerprint"]


@pytest.mark.parametrize("size", ["", "much", "-1", "0", "0.5", "200 apples", "1,5GB", "MB", "1e", "nan"])
@pytest.mark.parametrize("option", ["--memory-limit", "--max-bytes"])
def test_a_size_that_is_none_is_wrong_usage(run, prose: Path, tmp_path: Path, option: str, size: str):
    result = run("train", prose, "-n", 300, "-o", tmp_path / "t.json", f"{option}={size}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert option in result.stderr
    assert "size" in result.stderr or "less than one byte" in result.stderr
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1), ("200000000", 200_000_000), ("200MB", 200_000_000), ("200 mb", 200_000_000), ("1.5GB", 1_500_000_000),
        ("512MiB", 512 << 20), ("64k", 64_000), ("64KiB", 65_536), ("2T", 2 * 10**12), ("12b", 12), ("5e6", 5_000_000),
        (" 0.1kB ", 100), ("1.0009kB", 1000),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int):
    assert size_in_bytes(text) == size


def test_a_tokenizer_is_not_replaced_unasked(run, prose: Path, tokenizer_file: Path):
    before = tokenizer_file.read_bytes()
    result = run("train", prose, "-n", 300, "-o", tokenizer_file)
    assert result.exit_code == 1
    assert "--overwrite" in result.stderr
    assert tokenizer_file.read_bytes() == before
    assert run("train", prose, "-n", 300, "-o", tokenizer_file, "--overwrite").exit_code == 0
    assert tokenizer_file.read_bytes() != before


def test_learning_from_what_looks_held_out_is_warned_of(run, prose: Path, tmp_path: Path):
    held_out = prose.rename(tmp_path / "wiki.valid.txt")
    result = run("train", held_out, "-n", 300, "-o", tmp_path / "t.json")
    assert result.exit_code == 0
    assert "looks like a validation split" in result.stderr


@pytest.mark.parametrize("value", ["x", "20,", "20,0", "-1", "1,2,3"])
def test_a_wrong_show_merges_is_wrong_usage(run, prose: Path, tmp_path: Path, value: str):
    assert run("train", prose, "-n", 300, "-o", tmp_path / "t.json", f"--show-merges={value}").exit_code == 2
    assert not (tmp_path / "t.json").exists()


class TestBadInput:
    """One message that says what and where, status 1, no traceback, and nothing written."""

    def fails(self, run, folder: Path, *words: object) -> str:
        before = {path: path.stat().st_size for path in folder.rglob("*")}
        result = run("train", *words, "-o", folder / "out" / "t.json")
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert "Traceback" not in result.stderr
        assert "a bug" not in result.stderr
        assert {path: path.stat().st_size for path in folder.rglob("*")} == before
        return result.stderr

    def test_missing_file(self, run, tmp_path: Path):
        assert "nothing.txt" in self.fails(run, tmp_path, tmp_path / "nothing.txt", "-n", 300)

    def test_nothing_to_train_on(self, run, tmp_path: Path):
        (tmp_path / "empty.txt").touch()
        assert "nothing to train on" in self.fails(run, tmp_path, tmp_path / "empty.txt", "-n", 300)

    def test_not_utf8(self, run, tmp_path: Path):
        (tmp_path / "latin1.txt").write_bytes(b"caf\xe9 au lait")
        message = self.fails(run, tmp_path, tmp_path / "latin1.txt", "-n", 300)
        assert "latin1.txt" in message
        assert "byte 3" in message
        result = run("train", tmp_path / "latin1.txt", "-n", 300, "--errors", "replace", "-o", tmp_path / "t.json")
        assert result.exit_code == 0

    def test_vocabulary_too_small(self, run, prose: Path, tmp_path: Path):
        assert "--vocab-size is 100" in self.fails(run, tmp_path, prose, "-n", 100)

    def test_wrong_special(self, run, prose: Path, tmp_path: Path):
        assert "twice" in self.fails(run, tmp_path, prose, "-n", 300, "--special", "<a>", "--special", "<a>")

    def test_wrong_frequency(self, run, prose: Path, tmp_path: Path):
        assert "--min-frequency" in self.fails(run, tmp_path, prose, "-n", 300, "--min-frequency", 0)

    def test_a_folder_as_output(self, run, prose: Path, tmp_path: Path):
        result = run("train", prose, "-n", 300, "-o", tmp_path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "is a folder" in result.stderr

    @pytest.mark.skipif(os.name != "posix", reason="a limit of POSIX")
    def test_a_full_disk_leaves_nothing(self, command_line, prose: Path, tmp_path: Path):
        # A limit on file sizes fails writing as a full disk does, wherever the test runs.
        import resource
        import signal

        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        output = tmp_path / "out" / "t.json"
        process = subprocess.run(
            command_line("train", prose, "-n", 300, "-o", output), capture_output=True, preexec_fn=limit, check=False
        )
        assert process.returncode == 1
        assert b"nothing half-written was left" in process.stderr
        assert b"Traceback" not in process.stderr
        assert list(output.parent.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_it_at_once_and_leaves_nothing(tmp_path: Path, number: int, status: int):
    text = tmp_path / "long.txt"  # one piece, all of whose merges are learned one by one: minutes of work
    text.write_text("".join(f"{n * n:x}" for n in range(500_000)), encoding="ascii")
    output = tmp_path / "out" / "t.json"
    program = "from minigpt_tok.cli import main; import minigpt_tok.train; print('ready', flush=True); main()"
    words = ["train", text, "-n", 60_000, "--pattern", "none", "-o", output]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0]
    assert process.stdout.readline() == b"ready\n"
    time.sleep(1)  # now it counts or merges
    assert process.poll() is None
    process.send_signal(number)
    sent = time.monotonic()
    stdout, stderr = process.communicate(timeout=30)
    assert time.monotonic() - sent < 5
    assert process.returncode == status
    assert (stdout, stderr) == (b"", b"")
    assert not output.exists()
    assert not [path for path in tmp_path.rglob("*") if path.name != "long.txt" and path.is_file()]


class TestExtend:
    def test_a_tokenizer_is_trained_further(self, run, tokenizer, tokenizer_file, corpus_folder, tmp_path):
        words = ("train", corpus_folder, "--vocab-size", 420, "--extend", tokenizer_file, "-o", tmp_path / "more.json")
        result = run(*words, "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        more = Tokenizer.load(tmp_path / "more.json")
        assert found["extends"] == more.training.extends
        assert found["extends"]["fingerprint"] == tokenizer.fingerprint
        assert found["number_of_merges"] == more.vocab_size - tokenizer.vocab_size
        assert found["merges"][0]["id"] == tokenizer.vocab_size
        assert found["merges"][0]["token"].encode() == more.learned_tokens[len(tokenizer.learned_tokens)]
        assert more.merges[: len(tokenizer.merges)] == tokenizer.merges
        assert "ids, all kept" in run("info", tmp_path / "more.json").stdout
        page = run(*words, "--overwrite").stdout
        assert f"{tokenizer.fingerprint}, {tokenizer.vocab_size:,} ids, all kept" in page

    def test_verify_trains_it_again(self, run, tokenizer_file, corpus_folder, tmp_path):
        run("train", corpus_folder, "--vocab-size", 420, "--extend", tokenizer_file, "-o", tmp_path / "more.json")
        found = json.loads(run("verify", tmp_path / "more.json", corpus_folder, "--json").stdout)
        checks = {check["name"]: check["ok"] for check in found["checks"]}
        assert checks["training again"] is True
        assert checks["training text"] is True

    def test_its_own_switches_are_refused(self, run, tokenizer_file, corpus_folder, tmp_path):
        words = ("train", corpus_folder, "--vocab-size", 420, "--extend", tokenizer_file, "-o", tmp_path / "more.json")
        result = run(*words, "--pattern", "none")
        assert result.exit_code == 1
        assert "pattern is given" in result.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_or_a_device_is_never_replaced(run, corpus_folder, tokenizer_file, tmp_path):
    """Else `-o /dev/null --overwrite`, run by root, makes a file of the device."""
    os.mkfifo(pipe := tmp_path / "pipe")
    for words in (("train", corpus_folder, "-n", 400), ("convert", tokenizer_file, "--format", "hf")):
        result = run(*words, "-o", pipe, "--overwrite")
        assert result.exit_code == 1
        assert pipe.is_fifo()
    with pytest.raises(FileExistsError, match="a device or a pipe"), writing(pipe):
        pass


@pytest.mark.parametrize("inputs", [[""], ["stories", " "]])
def test_an_empty_input_is_not_this_folder(run, corpus_folder, tmp_path, monkeypatch, inputs):
    monkeypatch.chdir(tmp_path)
    result = run("train", *inputs, "-n", 400, "-o", "new.json")
    assert result.exit_code == 1
    assert "an input is empty" in result.stderr
    assert not (tmp_path / "new.json").exists()


def test_a_byte_order_mark_is_said_once(run, tmp_path):
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfthe cat sat on the mat")
    result = run("train", tmp_path / "marked.txt", "-n", 260, "-o", tmp_path / "new.json")
    assert result.exit_code == 0
    assert result.stderr.count("byte order mark") == 1
