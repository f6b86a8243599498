"""`evaluate` and `generate`: what a checkpoint is good for."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minigpt_tok import MiniGPT, MiniGPTConfig, Tokenizer, bits_per_byte, train_tokenizer
from minigpt_tok.checkpoint import save_checkpoint
from minigpt_tok.gpt import generation

torch.set_num_threads(1)


@pytest.fixture
def encoded(run, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path) -> Path:
    """The folder of that corpus's id files."""
    assert run("encode", corpus_folder, "-t", tokenizer_file, "-o", tmp_path / "ids").exit_code == 0
    return tmp_path / "ids"


@pytest.fixture
def model(tokenizer: Tokenizer) -> MiniGPT:
    torch.manual_seed(0)
    return MiniGPT(
        MiniGPTConfig(tokenizer.vocab_size, block_size=16, embedding_dim=8, num_heads=2, num_layers=1)
    ).eval()


@pytest.fixture
def checkpoint(model: MiniGPT, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "model.ckpt", model, tokenizer)
    return tmp_path / "model.ckpt"


class TestEvaluate:
    def test_the_score_is_that_of_python(
        self, run, checkpoint: Path, model: MiniGPT, tokenizer: Tokenizer, encoded: Path
    ):
        result = run("evaluate", checkpoint, "--data", encoded, "--split", "test", "--json")
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        score = bits_per_byte(model, encoded / "test.safetensors", tokenizer)
        assert found["bits_per_byte"] == pytest.approx(score.bits_per_byte, rel=1e-6)
        assert found["interval"]["low"] <= found["bits_per_byte"] <= found["interval"]["high"]
        assert (found["split"], found["context"], found["stride"]) == ("test", "sliding", 8)

    def test_options_reach_it(self, run, checkpoint: Path, model: MiniGPT, tokenizer: Tokenizer, encoded: Path):
        words = ("--context", "blocks", "--own-context", "--count-special", "--batch-size", 3)
        found = json.loads(run("evaluate", checkpoint, "-d", encoded, *words, "--json").stdout)
        score = bits_per_byte(
            model, encoded / "validation.safetensors", tokenizer, context="blocks", own_context=True, count_special=True
        )
        assert found["bits_per_byte"] == pytest.approx(score.bits_per_byte, rel=1e-6)
        page = run("evaluate", checkpoint, "-d", encoded, "--stride", 4).stdout
        assert "bits per byte" in page
        assert "95% interval" in page
        assert "stride 4" in page

    def test_ids_without_a_separator(
        self, run, checkpoint: Path, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path
    ):
        words = ("-t", tokenizer_file, "-o", tmp_path / "plain", "--separator", "none")
        assert run("encode", corpus_folder, *words).exit_code == 0
        found = json.loads(run("evaluate", checkpoint, "-d", tmp_path / "plain", "--json").stdout)
        assert found["charged"] == 1
        assert math.isfinite(found["bits_per_byte"])

    def test_ids_of_another_tokenizer_are_refused(
        self, run, checkpoint: Path, tokenizer: Tokenizer, corpus_folder: Path, texts, tmp_path: Path
    ):
        train_tokenizer(iter(texts), tokenizer.vocab_size, special_tokens=["<|endoftext|>"], tie="first_seen").save(
            tmp_path / "o.json"
        )
        assert run("encode", corpus_folder, "-t", tmp_path / "o.json", "-o", tmp_path / "other").exit_code == 0
        result = run("evaluate", checkpoint, "-d", tmp_path / "other")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: ")
        assert "a bug" not in result.stderr

    def test_wrong_input_is_one_message(self, run, checkpoint: Path, encoded: Path, tmp_path: Path):
        for words in (
            ("missing.ckpt", "-d", encoded),
            (checkpoint, "-d", tmp_path / "nothing"),
            (checkpoint, "-d", encoded, "--stride", 99),
            (checkpoint, "-d", encoded, "--device", "abacus"),
        ):
            result = run("evaluate", *words)
            assert (result.exit_code, result.stdout) == (1, "")
            assert result.stderr.startswith("error: ")
            assert "a bug" not in result.stderr
        (encoded / "test.safetensors").unlink()
        assert run("evaluate", checkpoint, "-d", encoded, "--split", "test").exit_code == 1
        assert run("evaluate", checkpoint, "-d", encoded, "--split", "tset").exit_code == 2


class TestGenerate:
    WORDS = ("--max-new-tokens", 12, "--temperature", 0.9, "--top-k", 50, "--top-p", 0.95, "--seed", 5)

    def expected(self, model: MiniGPT, tokenizer: Tokenizer, **more: object) -> generation.Generated:
        options = {"max_new_tokens": 12, "temperature": 0.9, "top_k": 50, "top_p": 0.95, "seed": 5, **more}
        return generation.generate(model, tokenizer, "The cat", **options)

    def test_the_text_is_that_of_python(self, run, checkpoint: Path, model: MiniGPT, tokenizer: Tokenizer):
        result = run("generate", checkpoint, "--prompt", "The cat", *self.WORDS)
        assert result.exit_code == 0
        assert result.stdout == f"The cat{self.expected(model, tokenizer).text}\n"
        assert result.stderr == ""
        found = json.loads(run("generate", checkpoint, "--prompt", "The cat", *self.WORDS, "--json").stdout)
        assert (found["text"], found["ids"]) == (
            self.expected(model, tokenizer).text,
            self.expected(model, tokenizer).ids,
        )
        assert (found["seed"], found["finish_reason"]) == (5, "length")

    def test_stop_strings(self, run, checkpoint: Path, model: MiniGPT, tokenizer: Tokenizer):
        whole = self.expected(model, tokenizer).text
        stop = whole[len(whole) // 2 :][:2]
        words = ("--prompt", "The cat", *self.WORDS, "--stop", "not in it", "--stop", stop, "--json")
        found = json.loads(run("generate", checkpoint, *words).stdout)
        assert found["text"] == whole[: whole.index(stop)]
        assert found["finish_reason"] == "stop"

    def test_a_seed_that_was_not_given_is_said_and_works_again(self, run, checkpoint: Path):
        found = json.loads(run("generate", checkpoint, "-p", "The", "-n", 5, "--json").stdout)
        again = json.loads(run("generate", checkpoint, "-p", "The", "-n", 5, "--seed", found["seed"], "--json").stdout)
        assert again["text"] == found["text"]

    def test_a_prompt_from_standard_input(self, run, checkpoint: Path):
        result = run("generate", checkpoint, "--prompt", "-", "-n", 3, input="naïve")
        assert result.stdout.startswith("naïve")

    def test_wrong_values_are_one_message(self, run, checkpoint: Path):
        for words in (("--temperature", "-1"), ("--top-k", 0), ("--top-p", 2), ("--stop", ""), ("-n", -1)):
            result = run("generate", checkpoint, "-p", "The", *words)
            assert result.exit_code == 1
            assert result.stderr.startswith("error: ")
            assert "a bug" not in result.stderr

    @pytest.mark.skipif(os.name != "posix", reason="pipes and signals of POSIX")
    def test_it_streams_and_stops_when_nobody_reads_or_ctrl_c_comes(self, command_line, checkpoint: Path):
        for close, status in ((True, 141), (False, 130)):
            with subprocess.Popen(
                command_line("generate", checkpoint, "-p", "The", "-n", 1_000_000),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                assert process.stdout.read(10).startswith(b"The")  # long before it is done
                if close:
                    process.stdout.close()
                else:
                    process.send_signal(signal.SIGINT)
                assert process.wait(30) == status
                assert process.stderr.read() == b""


def test_this_file_runs_on_one_thread():
    assert torch.get_num_threads() == 1
    assert sys.version_info >= (3, 11)
