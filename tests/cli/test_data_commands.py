"""`corpus`, `encode` and `decode`: from text to id files and back."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minigpt_tok import Tokenizer, train_tokenizer
from minigpt_tok.data.id_file import IdFile


class TestCorpus:
    def test_splits_counts_and_leakage(self, run, corpus_folder: Path, texts: list[str], tmp_path: Path):
        with open(corpus_folder / "test.txt", "a", encoding="utf-8") as file:
            file.write(f"\n<|endoftext|>\n{texts[0]}")
        result = run("corpus", corpus_folder, "-o", tmp_path / "processed", "--json")
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        assert {split: one["documents"] for split, one in found["splits"].items()} == {
            "train": 30, "validation": 5, "test": 6,
        }  # fmt: skip
        assert found["leakage"]["found"] is True
        (leak,) = [one for one in found["leakage"]["between"] if one["documents"]]
        assert (leak["splits"], leak["documents"]) == (["train", "test"], 1)
        assert Path(found["splits"]["train"]["path"]).is_file()
        page = run("corpus", corpus_folder, "-o", tmp_path / "processed").stdout
        assert "leakage: 1 document of test" in page
        assert "stands in train too" in page

    def test_what_it_writes_is_a_corpus(self, run, corpus_folder: Path, tmp_path: Path):
        assert run("corpus", corpus_folder, "-o", tmp_path / "processed", "--name", "again").exit_code == 0
        found = json.loads(
            run("train", tmp_path / "processed" / "again", "-n", 300, "-o", tmp_path / "t", "--json").stdout
        )
        assert (found["corpus"], found["documents"]) == ("again", 30)

    def test_a_separator(self, run, tmp_path: Path):
        (tmp_path / "parts.txt").write_text("one===two===three===four", encoding="utf-8")
        words = ("corpus", tmp_path / "parts.txt", "-o", tmp_path / "out", "--json")
        found = json.loads(run(*words, "--document-separator", "===").stdout)
        assert sum(one["documents"] for one in found["splits"].values()) == 4
        assert found["cleaning"]["separators"] == 3
        found = json.loads(run(*words, "--document-separator", "none").stdout)
        assert sum(one["documents"] for one in found["splits"].values()) == 1

    def test_text_that_is_not_utf8(self, run, tmp_path: Path):
        (tmp_path / "latin1.txt").write_bytes(b"caf\xe9 au lait")
        words = ("corpus", tmp_path / "latin1.txt", "-o", tmp_path / "out")
        result = run(*words)
        assert result.exit_code == 1
        assert "not UTF-8 at byte 3" in result.stderr
        found = json.loads(run(*words, "--errors", "replace", "--json").stdout)
        assert found["cleaning"]["undecodable"] == 1


@pytest.fixture
def encoded(run, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path) -> Path:
    """The folder of that corpus's id files."""
    assert run("encode", corpus_folder, "-t", tokenizer_file, "-o", tmp_path / "ids").exit_code == 0
    return tmp_path / "ids"


class TestEncode:
    def test_every_split(self, run, corpus_folder: Path, tokenizer: Tokenizer, tokenizer_file: Path, tmp_path: Path):
        result = run("encode", corpus_folder, "-t", tokenizer_file, "-o", tmp_path / "ids", "--json")
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        assert found["separator"] == "<|endoftext|>"
        for split in ("train", "validation", "test"):
            file = IdFile(tmp_path / "ids" / f"{split}.safetensors")
            file.verify()
            assert file.metadata.tokenizer_fingerprint == tokenizer.fingerprint == found["fingerprint"]
            assert file.metadata.n_tokens == found["splits"][split]["tokens"]

    def test_one_split_and_no_separator(self, run, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path):
        words = ("-t", tokenizer_file, "-o", tmp_path / "ids", "--split", "val", "--separator", "none", "--json")
        found = json.loads(run("encode", corpus_folder, *words).stdout)
        assert list(found["splits"]) == ["validation"]
        assert found["separator"] is None
        assert {path.name for path in (tmp_path / "ids").iterdir()} == {"tokenizer.json", "validation.safetensors"}
        assert Tokenizer.load(tmp_path / "ids").fingerprint == found["fingerprint"]

    def test_an_estimate_does_nothing_else(self, run, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path):
        words = ("encode", corpus_folder, "-t", tokenizer_file, "-o", tmp_path / "ids", "--estimate")
        found = json.loads(run(*words, "--json").stdout)
        assert found["tokens"] > 0
        assert found["fits"] is True
        assert found["disk_bytes"] < found["most_disk_bytes"]
        page = run(*words).stdout
        for part in ("bytes per token", "MB/s", "tokens", "free", "memory"):
            assert part in page
        assert not (tmp_path / "ids").exists()

    def test_an_estimate_speaks_of_separators_where_there_are_any(self, run, tmp_path: Path):
        (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 20)
        run("train", tmp_path / "a.txt", "-n", 270, "--special", "<|endoftext|>", "-o", tmp_path / "with.json")
        words = ("encode", tmp_path / "a.txt", "-t", tmp_path / "with.json", "-o", tmp_path / "ids", "--estimate")
        assert "a separator for each document" in run(*words).stdout
        assert "a separator" not in run(*words, "--separator", "none").stdout
        wrong = run(*words, "--separator", "<|x|>")
        assert wrong.exit_code == 1
        assert "<|x|>" in wrong.stderr

    def test_tables_weights_and_held_out_documents(self, run, tokenizer_file: Path, tmp_path: Path):
        for name in ("a", "b"):
            lines = [json.dumps({"id": n, "plot": f"{name} {n} the cat"}) for n in range(60)]
            (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        words = ("-t", tokenizer_file, "-o", tmp_path / "ids", "--text-column", "plot", "--held-out", 10, "--json")
        found = json.loads(run("encode", f"{tmp_path}/a.jsonl:3", f"{tmp_path}/b.jsonl:1", *words).stdout)
        assert found["corpus"] == "a-3+b-1"
        assert 60 < found["splits"]["train"]["documents"] < 90
        assert 6 <= found["splits"]["validation"]["documents"] <= 9
        result = run("encode", f"{tmp_path}/a.jsonl", "-t", tokenizer_file, "--text-column", "title")
        assert result.exit_code == 1
        assert "there is no column" in str(result.exception) or "no 'title'" in str(result.exception) + result.stderr

    def test_an_address_needs_its_engine(self, run, corpus_folder: Path, tokenizer_file: Path):
        result = run("encode", corpus_folder, "-t", tokenizer_file, "--scheduler", "tcp://127.0.0.1:8786")
        assert result.exit_code == 2
        assert "--engine dask" in " ".join(result.stderr.replace("│", " ").split())

    def test_the_same_bytes_whatever_the_number_of_workers(self, run, tokenizer_file: Path, tmp_path: Path):
        text = tmp_path / "text.txt"
        text.write_text(
            "\n<|endoftext|>\n".join(f"Document {n}: " + f"{n**3:x} the cat sat. " * 9 for n in range(30_000))
        )
        for workers in (1, 2):
            words = ("-t", tokenizer_file, "-o", tmp_path / str(workers), "--workers", workers)
            assert run("encode", text, *words).exit_code == 0
        one, two = (sorted((tmp_path / workers).iterdir()) for workers in "12")
        assert [path.name for path in one] == [path.name for path in two]
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]

    def test_what_another_tokenizer_made_is_not_overwritten(
        self, run, encoded: Path, corpus_folder: Path, texts: list[str], tmp_path: Path
    ):
        train_tokenizer(iter(texts), 350).save(tmp_path / "other.json")
        before = {path: path.read_bytes() for path in encoded.iterdir()}
        words = ("encode", corpus_folder, "-t", tmp_path / "other.json", "-o", encoded)
        result = run(*words)
        assert result.exit_code == 1
        assert "--overwrite" in result.stderr
        assert {path: path.read_bytes() for path in encoded.iterdir()} == before
        assert run(*words, "--overwrite").exit_code == 0

    def test_again_it_keeps_what_is_finished(self, run, encoded: Path, corpus_folder: Path, tokenizer_file: Path):
        before = {path: path.stat().st_mtime_ns for path in encoded.glob("*.safetensors")}
        assert run("encode", corpus_folder, "-t", tokenizer_file, "-o", encoded).exit_code == 0
        assert {path: path.stat().st_mtime_ns for path in encoded.glob("*.safetensors")} == before

    def test_unknown_characters_are_one_message(self, run, corpus_folder: Path, tmp_path: Path):
        train_tokenizer(iter(["abc"]), 3, "character").save(tmp_path / "c.json")
        result = run("encode", corpus_folder, "-t", tmp_path / "c.json", "-o", tmp_path / "ids")
        assert result.exit_code == 1
        assert "does not know" in result.stderr
        assert not list((tmp_path / "ids").glob("*.safetensors"))

    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_an_interrupt_leaves_neither_files_nor_processes(self, tmp_path: Path):
        text = tmp_path / "long.txt"
        tokenizer_file = tmp_path / "slow.json"  # a pattern that has no name here is cut by a regular expression
        train_tokenizer(iter(["The cat sat. " * 20]), 280, pattern="[a-z]+|[0-9]+|.").save(tokenizer_file)
        letters = random.Random(0).randbytes(8_000_000).hex()  # no piece comes twice: seconds of work
        text.write_text("\n<|endoftext|>\n".join(letters[at : at + 99_000] for at in range(0, len(letters), 99_000)))
        program = "from minigpt_tok.cli import main; print('ready', flush=True); main()"
        words = ["encode", text, "-t", tokenizer_file, "-o", tmp_path / "ids", "--workers", 2]
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0]
        assert process.stdout.readline() == b"ready\n"
        time.sleep(2)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to all processes of the group
        sent = time.monotonic()
        stdout, stderr = process.communicate(timeout=30)
        assert time.monotonic() - sent < 5
        assert process.returncode == 130
        assert stdout == b""
        assert b"Traceback" not in stderr
        assert not list((tmp_path / "ids").iterdir())
        end = time.monotonic() + 5
        while someone_lives(process.pid) and time.monotonic() < end:
            time.sleep(0.05)
        assert not someone_lives(process.pid)


def someone_lives(group: int) -> bool:
    """Whether a process of a group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class TestDecode:
    def test_byte_for_byte(self, start, encoded: Path, tokenizer_file: Path, texts: list[str]):
        process = start("decode", encoded / "train.safetensors", "-t", tokenizer_file)
        assert process.returncode == 0
        assert process.stdout == "".join(texts[:30]).encode("utf-8")

    def test_line_ends_and_control_characters_come_back(self, start, run, tokenizer_file: Path, tmp_path: Path):
        raw = "a\r\nb\n\x00\ufeffc\r日".encode()
        (tmp_path / "odd.txt").write_bytes(raw)
        assert run("encode", tmp_path / "odd.txt", "-t", tokenizer_file, "-o", tmp_path / "ids").exit_code == 0
        assert start("decode", tmp_path / "ids" / "train.safetensors", "-t", tokenizer_file).stdout == raw

    def test_one_document(self, run, encoded: Path, tokenizer_file: Path, texts: list[str]):
        file = encoded / "test.safetensors"
        assert run("decode", file, "-t", tokenizer_file, "--document", 2).stdout == texts[37]
        found = json.loads(run("decode", file, "-t", tokenizer_file, "--document", 2, "--json").stdout)
        assert found["texts"] == [texts[37]]
        result = run("decode", file, "-t", tokenizer_file, "--document", 5)
        assert result.exit_code == 1
        assert "there is no document 5" in result.stderr

    def test_another_tokenizer_is_refused(self, run, encoded: Path, texts: list[str], tmp_path: Path):
        train_tokenizer(iter(texts), 400, tie="first_seen").save(tmp_path / "other.json")
        result = run("decode", encoded / "test.safetensors", "-t", tmp_path / "other.json")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "was encoded with the tokenizer" in result.stderr

    def test_a_truncated_or_changed_file_is_refused(self, run, encoded: Path, tokenizer_file: Path):
        file = encoded / "test.safetensors"
        whole = file.read_bytes()
        file.write_bytes(whole[:-10])
        result = run("decode", file, "-t", tokenizer_file)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "cut short" in result.stderr
        file.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        result = run("decode", file, "-t", tokenizer_file)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "damaged" in result.stderr
        for broken in (b"", b"{}", whole[:100]):
            file.write_bytes(broken)
            result = run("decode", file, "-t", tokenizer_file)
            assert result.exit_code == 1
            assert "a bug" not in result.stderr

    def test_a_tokenizer_in_place_of_an_id_file(self, run, tokenizer_file: Path):
        result = run("decode", tokenizer_file, "-t", tokenizer_file)
        assert result.exit_code == 1
        assert "no id file" in result.stderr


def test_info_of_id_files(run, encoded: Path, tokenizer: Tokenizer):
    files = json.loads(run("info", encoded, "--json").stdout)["files"]
    assert [file["kind"] for file in files] == ["tokenizer", *["id file"] * 3]
    assert [file["split"] for file in files[1:]] == ["train", "validation", "test"]
    assert {file["fingerprint"] for file in files} == {tokenizer.fingerprint}
    assert files[1]["documents"] == 30
    assert "id file" in run("info", encoded).stdout


def test_info_of_a_damaged_id_file(run, encoded: Path):
    file = encoded / "test.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    result = run("info", file)
    assert result.exit_code == 1
    assert "cut short" in result.stderr


def test_near_duplicates_are_counted_where_that_is_asked_for(run, tmp_path: Path):
    pytest.importorskip("datasketch", reason="needs datasketch (extra near)")
    words = [f"word{n}" for n in range(100)]
    (tmp_path / "train.txt").write_text(" ".join(words))
    (tmp_path / "test.txt").write_text(" ".join([*words, "more"]))
    result = run("corpus", tmp_path, "-o", tmp_path / "out", "--near", 0.8)
    assert result.exit_code == 0
    assert "no document stands in two splits" in result.stdout
    assert "near leakage: 1 document of test" in result.stdout
    found = json.loads(run("corpus", tmp_path, "-o", tmp_path / "out", "--near", 0.8, "--json").stdout)["near"]
    assert found["between"][0]["documents"] == 1
    assert json.loads(run("corpus", tmp_path, "-o", tmp_path / "out", "--json").stdout)["near"] is None
