"""`fit` and `compare`, and the whole way from text to a verdict."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from minigpt_tok import MiniGPT, MiniGPTConfig, Tokenizer, train_tokenizer
from minigpt_tok.checkpoint import load_model, read_checkpoint, save_checkpoint
from minigpt_tok.data.packing import PACKINGS
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.gpt.options import TrainingOptions

torch.set_num_threads(1)

SMALL = [
    "--block-size=16",
    "--embedding-dim=8",
    "--num-heads=2",
    "--num-layers=1",
    "--batch-size=8",
    "--accelerator=cpu",
]
SHORT = ["--validations", "2", "--validation-bytes", "500"]


@pytest.fixture
def encoded(run, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path) -> Path:
    """The folder of that corpus's id files."""
    assert run("encode", corpus_folder, "-t", tokenizer_file, "-o", tmp_path / "ids").exit_code == 0
    return tmp_path / "ids"


class TestFit:
    def test_a_run(self, run, encoded: Path, tokenizer: Tokenizer, tmp_path: Path):
        words = (
            "fit",
            "--data",
            encoded,
            *SMALL,
            *SHORT,
            "--budget",
            "bytes=3000",
            "--seed",
            3,
            "-o",
            tmp_path / "run",
        )
        result = run(*words, "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["fingerprint"] == tokenizer.fingerprint
        assert 3_000 <= found["spent"]["bytes"] < 3_020
        assert found["options"]["seed"] == 3
        assert found["config"]["embedding_dim"] == 8
        model, carried = load_model(found["checkpoint"])
        assert carried == tokenizer
        assert found["parameters"] == sum(parameter.numel() for parameter in model.parameters())
        assert (tmp_path / "run" / "logs" / "metrics.csv").is_file()

        again = run(*words)
        assert (again.exit_code, again.stdout) == (1, "")
        assert "--resume" in again.stderr

        page = run("fit", "--data", encoded, "--resume", "--budget", "bytes=4000", "-o", tmp_path / "run")
        assert page.exit_code == 0, page.stderr
        assert "bits per byte" in page.stdout
        assert "tokens/s" in page.stdout
        resumed = read_checkpoint(tmp_path / "run" / "last.ckpt")
        assert resumed["spent"]["bytes"] >= 4_000
        assert resumed["hyper_parameters"]["options"]["seed"] == 3  # as the run was begun

    def test_one_pass_over_the_text_unless_told_otherwise(self, run, encoded: Path, tmp_path: Path):
        found = json.loads(run("fit", "-d", encoded, *SMALL, *SHORT, "-o", tmp_path / "run", "--json").stdout)
        train = json.loads(run("info", encoded / "train.safetensors", "--json").stdout)["files"][0]
        assert found["budget"] == f"bytes={train['bytes']}"

    def test_every_option_of_a_run_is_in_the_help(self, run):
        page = run("fit", "--help").stdout
        for name in TrainingOptions().to_plain():
            assert f"--{name.replace('_', '-')}" in page

    @pytest.mark.parametrize("packing", PACKINGS)
    def test_packings(self, run, encoded: Path, tmp_path: Path, packing: str):
        words = ("-d", encoded, *SMALL, *SHORT, "--budget", "bytes=500", "--logger", "none", "-o", tmp_path / "run")
        result = run("fit", *words, "--packing", packing, "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert (found["packing"], found["options"]["packing"]) == (packing, packing)
        account = TokenDataset(encoded, 16, packing=packing).account
        assert found["account"]["blocks"] == account.blocks
        assert found["account"]["tokens"]["lost"] == account.tokens.lost
        assert read_checkpoint(found["checkpoint"])["hyper_parameters"]["options"]["packing"] == packing
        page = run("fit", *words, "--resume", "--budget", "bytes=900")
        assert f"{packing}: {account}" in " ".join(page.stdout.split()), page.stdout

    def test_weights_to_begin_with(self, run, encoded: Path, tokenizer: Tokenizer, texts: list[str], tmp_path: Path):
        config = MiniGPTConfig(tokenizer.vocab_size, block_size=16, embedding_dim=12, num_heads=3, num_layers=1)
        model = MiniGPT(config)
        with torch.no_grad():
            model.token_embedding.weight[7] = 3.0
        first = tmp_path / "first.ckpt"
        save_checkpoint(first, model, tokenizer)
        words = ("fit", "-d", encoded, "--weights", first, *SHORT, "--budget", "bytes=500", "--logger", "none")
        slow = ("--learning-rate", 1e-12, "--final-learning-rate", 0, "--weight-decay", 0, "--batch-size", 4)
        result = run(*words, *slow, "-o", tmp_path / "run", "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["config"] == config.to_plain()  # the shape is the checkpoint's, none was given
        trained, carried = load_model(found["checkpoint"])
        assert carried == tokenizer
        for name, value in model.state_dict().items():
            torch.testing.assert_close(trained.state_dict()[name], value, rtol=0, atol=1e-6)

        result = run(*words, "--embedding-dim", 24, "-o", tmp_path / "wide")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "--embedding-dim 24 (the checkpoint: 12)" in result.stderr
        other = train_tokenizer(iter(texts), tokenizer.vocab_size, special_tokens=["<|endoftext|>"], tie="first_seen")
        save_checkpoint(first, model, other)
        result = run(*words, "-o", tmp_path / "other")
        assert (result.exit_code, result.stdout) == (1, "")
        assert other.fingerprint in result.stderr
        assert tokenizer.fingerprint in result.stderr
        assert run(*words[:4], tmp_path / "missing.ckpt", "-o", tmp_path / "other").exit_code == 1
        assert not (tmp_path / "other").exists()

    def test_ids_of_another_tokenizer_are_refused(
        self, run, encoded: Path, tokenizer: Tokenizer, texts: list[str], tmp_path: Path
    ):
        train_tokenizer(iter(texts), tokenizer.vocab_size, special_tokens=["<|endoftext|>"], tie="first_seen").save(
            tmp_path / "other.json"
        )
        words = ("-t", tmp_path / "other.json", *SMALL, "--budget", "bytes=500", "-o", tmp_path / "run")
        result = run("fit", "-d", encoded, *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "was encoded with the tokenizer" in result.stderr
        assert not (tmp_path / "run" / "last.ckpt").exists()

    def test_wrong_values_are_one_message(self, run, encoded: Path, tmp_path: Path):
        for words in (
            ("--budget", "miles=3"),
            ("--budget", "bytes"),
            ("--budget", "bytes=500", "--num-heads", 3),
            ("--budget", "bytes=500", "--dropout", 2),
            ("--budget", "bytes=500", "--logger", "paper"),
            ("--budget", "bytes=500", "--packing", "tight"),
            ("--resume",),
            ("-t", tmp_path / "missing.json"),
        ):
            result = run("fit", "-d", encoded, "-o", tmp_path / "run", *words)
            assert (result.exit_code, result.stdout) == (1, ""), words
            assert result.stderr.startswith("error: "), words
            assert "a bug" not in result.stderr, (words, result.stderr)
        for data in (tmp_path / "nothing", tmp_path):
            result = run("fit", "-d", data, "--budget", "bytes=500", "-o", tmp_path / "run")
            assert result.exit_code == 1
            assert "encode a corpus into it first" in result.stderr
        (encoded / "tokenizer.json").unlink()
        assert "--tokenizer" in run("fit", "-d", encoded, "-o", tmp_path / "run").stderr

    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    def test_interrupted_it_stops_at_once_and_goes_on_later(self, run, command_line, encoded: Path, tmp_path: Path):
        folder = tmp_path / "run"
        words = ("fit", "-d", encoded, *SMALL, "--budget", "bytes=1e8", "--validations", 100_000, "-o", folder)
        process = subprocess.Popen(command_line(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while not (folder / "last.ckpt").exists():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        stdout, stderr = process.communicate(timeout=30)
        assert time.monotonic() - sent < 10
        assert process.returncode == 130
        assert (stdout, stderr) == (b"", b"")
        assert not [path for path in folder.rglob("*") if "partial" in path.name]
        spent = read_checkpoint(folder / "last.ckpt")["spent"]["bytes"]
        result = run(
            "fit", "-d", encoded, "--resume", "--budget", f"bytes={spent + 500}", *SHORT, "-o", folder, "--json"
        )
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["spent"]["bytes"] >= spent + 500


class TestCompare:
    WORDS = ("--vocab-sizes", "300", "--budget", "bytes=2000", *SMALL, "--validations", "1")

    def test_table_json_report_and_plots(self, run, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path):
        words = ("compare", corpus_folder, *self.WORDS, "--with", tokenizer_file, "-o", tmp_path / "out")
        result = run(*words, "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert [entry["kind"] for entry in found["entries"]] == ["characters", "bpe", "given"]
        for entry in found["entries"]:
            (one,) = entry["runs"]
            assert 2_000 <= one["bytes"] < 2_020
        for name in ("report.html", "comparison.json"):
            assert (tmp_path / "out" / name).is_file()
        assert list((tmp_path / "out").glob("*.png"))
        page = run(*words)  # goes on with what is there
        assert page.exit_code == 0, page.stderr
        assert "characters" in page.stdout
        assert "bpe-300" in page.stdout
        assert "fewer bits per byte" in page.stdout or "No difference is shown" in page.stdout

    def test_wrong_values(self, run, corpus_folder: Path, tmp_path: Path):
        for words, status in (
            (("--vocab-sizes", "many"), 2),
            (("--seeds", ""), 2),
            (("--vocab-sizes", "300,300"), 1),
            (("--vocab-sizes", "100"), 1),
            (("--budget", "bytes=none"), 1),
            (("--num-heads", "3"), 1),
            (("--seeds", "1,1"), 1),
            (("--with", tmp_path / "missing.json"), 1),
        ):
            result = run("compare", corpus_folder, *words, "-o", tmp_path / "out")
            assert (result.exit_code, result.stdout) == (status, ""), (words, result.stderr)
            assert "a bug" not in result.stderr, (words, result.stderr)

    def test_a_corpus_without_held_out_text(self, run, tmp_path: Path):
        (tmp_path / "one.txt").write_text("The cat sat on the mat. " * 50, encoding="utf-8")
        result = run("compare", tmp_path / "one.txt", *self.WORDS, "-o", tmp_path / "out")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "no validation" in result.stderr


def test_the_whole_way(run, corpus_folder: Path, tmp_path: Path):
    tok, ids, model = tmp_path / "tok.json", tmp_path / "way", tmp_path / "model"

    def done(*words: object) -> dict:
        result = run(*words, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    fingerprint = done("train", corpus_folder, "-n", 320, "--special", "<|endoftext|>", "-o", tok)["fingerprint"]
    assert done("encode", corpus_folder, "-t", tok, "-o", ids)["fingerprint"] == fingerprint
    assert done("fit", "-d", ids, *SMALL, *SHORT, "--budget", "bytes=2000", "-o", model)["fingerprint"] == fingerprint
    checkpoint = model / "last.ckpt"
    score = done("evaluate", checkpoint, "-d", ids, "--split", "test")
    assert score["fingerprint"] == fingerprint
    assert 0 < score["bits_per_byte"] < 8
    assert done("check", checkpoint, "-t", tok, "-d", ids)["ok"] is True
    assert done("generate", checkpoint, "-p", "The", "-n", 5)["fingerprint"] == fingerprint
    assert done("info", model)["files"][0]["fingerprint"] == fingerprint
