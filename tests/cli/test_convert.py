"""`convert` and `export`: the same tokenizer and the same model in the forms of others."""

import json
from pathlib import Path

import pytest

from minigpt_tok import MiniGPT, MiniGPTConfig, Tokenizer, train_tokenizer
from minigpt_tok.checkpoint import save_checkpoint


@pytest.mark.parametrize(
    ("form", "output", "files"),
    [
        ("hf", "out.json", ["out.json"]),
        ("gpt2", "folder", ["folder/vocab.json", "folder/merges.txt"]),
        ("cs336", "folder", ["folder/vocab.json", "folder/merges.txt"]),
        ("cs336", "a_vocab.json", ["a_vocab.json", "a_merges.txt"]),
        ("cs336", "vocab.pkl", ["vocab.pkl", "merges.pkl"]),
        ("tiktoken", "out.tiktoken", ["out.tiktoken"]),
    ],
)
def test_every_form_is_written_and_read_back(run, tokenizer, tokenizer_file, tmp_path, form, output, files):
    result = run("convert", tokenizer_file, "-o", tmp_path / output, "--format", form, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["files"] == [str(tmp_path / file) for file in files]
    assert found["fingerprint"] == tokenizer.fingerprint
    assert found["special_tokens"] == {"<|endoftext|>": 0}
    words = ["-o", tmp_path / "back.json", "-f", "hf", "--overwrite"]
    if form == "tiktoken":
        words += ["--pattern", "gpt2", "--special", "<|endoftext|>=0"]
    back = run("convert", found["files"][0], *words)
    assert back.exit_code == 0, back.stderr
    assert tokenizer.fingerprint in back.stdout
    assert Tokenizer.load(tmp_path / "back.json") == tokenizer


def test_characters(run, tmp_path):
    tokenizer = train_tokenizer(["low lower lowest"], 20, recipe="character")
    tokenizer.save(tmp_path / "a.json")
    assert run("convert", tmp_path / "a.json", "-o", tmp_path / "b.json", "-f", "character").exit_code == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    for form in ("hf", "gpt2", "tiktoken", "cs336"):
        result = run("convert", tmp_path / "a.json", "-o", tmp_path / f"c{form}", "-f", form)
        assert result.exit_code == 1
        assert "convert --format character" in result.stderr
    assert not list(tmp_path.glob("c*"))


def test_ranks_are_told_what_to_be_named(run, tokenizer_file, tmp_path):
    result = run("convert", tokenizer_file, "-o", tmp_path / "r.tiktoken", "-f", "tiktoken")
    assert "gpt2, to be named" in result.stdout
    assert r"| ?\p{N}+|" in result.stdout
    assert "<|endoftext|>=0" in result.stdout
    result = run("convert", tmp_path / "r.tiktoken", "-o", tmp_path / "x.json", "-f", "hf")
    assert result.exit_code == 1
    assert "--pattern" in result.stderr


def test_what_another_tokenizer_made_is_kept(run, tokenizer_file, tmp_path):
    other = train_tokenizer(["low lower lowest"] * 3, 260)
    other.save(tmp_path / "other.json")
    before = (tmp_path / "other.json").read_bytes()
    result = run("convert", tokenizer_file, "-o", tmp_path / "other.json", "-f", "hf")
    assert result.exit_code == 1
    assert "--overwrite" in result.stderr
    assert (tmp_path / "other.json").read_bytes() == before
    for _ in range(2):  # the same tokenizer may be written again
        assert run("convert", tokenizer_file, "-o", tmp_path / "same.json", "-f", "hf").exit_code == 0
    assert run("convert", tokenizer_file, "-o", tmp_path / "other.json", "-f", "hf", "--overwrite").exit_code == 0
    assert run("convert", tokenizer_file, "-o", tmp_path, "-f", "hf").exit_code == 1


def test_specials_are_named_once(run, tokenizer_file, tmp_path):
    result = run("convert", tokenizer_file, "-o", tmp_path / "x", "-f", "hf", "--special", "<s>=3", "--special", "<s>")
    assert result.exit_code == 2
    result = run("convert", tokenizer_file, "-o", tmp_path / "x", "-f", "hf", "--special", "<s>=3")
    assert result.exit_code == 1
    assert "names its own special tokens" in result.stderr


class TestExport:
    @pytest.fixture
    def checkpoint(self, tokenizer: Tokenizer, tmp_path: Path) -> Path:
        config = MiniGPTConfig(tokenizer.vocab_size, block_size=16, embedding_dim=8, num_heads=2, num_layers=1)
        save_checkpoint(tmp_path / "model.ckpt", MiniGPT(config), tokenizer)
        return tmp_path / "model.ckpt"

    def test_a_folder_for_transformers(self, run, checkpoint, tokenizer, tmp_path):
        result = run("export", checkpoint, "-o", tmp_path / "out", "--json")
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["eos_token"] == "<|endoftext|>"
        assert sorted(Path(file).name for file in found["files"]) == [
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
        assert Tokenizer.load(tmp_path / "out") == tokenizer
        assert "load with" in run("export", checkpoint, "-o", tmp_path / "out").stdout

    def test_something_else_in_the_folder_is_kept(self, run, checkpoint, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        result = run("export", checkpoint, "-o", tmp_path)
        assert result.exit_code == 1
        assert "--overwrite" in result.stderr
