"""`minigpt-tok check`, and `info` of checkpoints."""

import json
import re
from pathlib import Path

import pytest

from minigpt_tok import MiniGPT, MiniGPTConfig, Tokenizer, train_tokenizer
from minigpt_tok.checkpoint import save_checkpoint, save_safetensors
from minigpt_tok.checkpoint_files import read_checkpoint, write_checkpoint
from minigpt_tok.data.identity import data_fingerprint

CONFIG = {"block_size": 8, "embedding_dim": 8, "num_heads": 2, "num_layers": 1}


@pytest.fixture
def encoded(run, corpus_folder: Path, tokenizer_file: Path, tmp_path: Path) -> Path:
    """The folder of that corpus's id files."""
    assert run("encode", corpus_folder, "-t", tokenizer_file, "-o", tmp_path / "ids").exit_code == 0
    return tmp_path / "ids"


@pytest.fixture
def checkpoint(encoded: Path, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A model bound to that tokenizer and these ids."""
    path = tmp_path / "model.ckpt"
    model = MiniGPT(MiniGPTConfig(tokenizer.vocab_size, **CONFIG))
    save_checkpoint(path, model, tokenizer, data_fingerprint=data_fingerprint(encoded))
    return path


def test_what_belongs_together(run, checkpoint: Path, tokenizer: Tokenizer, tokenizer_file: Path, encoded: Path):
    result = run("check", checkpoint, "--tokenizer", tokenizer_file, "--data", encoded)
    assert result.exit_code == 0
    found = json.loads(run("check", checkpoint, "-t", tokenizer_file, "-d", encoded, "--json").stdout)
    assert found["ok"] is True
    assert found["fingerprint"] == tokenizer.fingerprint
    assert run("check", checkpoint).exit_code == 0


def test_another_tokenizer_of_equal_size_names_the_first_different_merge(
    run, checkpoint: Path, tokenizer: Tokenizer, texts: list[str], tmp_path: Path
):
    other = train_tokenizer(iter(texts), tokenizer.vocab_size, special_tokens=["<|endoftext|>"], tie="first_seen")
    assert (other.vocab_size, other.fingerprint != tokenizer.fingerprint) == (tokenizer.vocab_size, True)
    other.save(tmp_path / "other.json")
    rank = next(n for n, pair in enumerate(zip(tokenizer.merges, other.merges, strict=True)) if pair[0] != pair[1])
    result = run("check", checkpoint, "-t", tmp_path / "other.json")
    assert result.exit_code == 1
    assert f"the merge at rank {rank}: " in result.stdout
    assert tokenizer.fingerprint in result.stdout
    assert other.fingerprint in result.stdout
    assert "Traceback" not in result.stderr
    result = run("check", checkpoint, "-t", tmp_path / "other.json", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["ok"] is False


def test_ids_of_another_tokenizer(run, checkpoint: Path, corpus_folder: Path, texts: list[str], tmp_path: Path):
    train_tokenizer(iter(texts), 400, tie="first_seen").save(tmp_path / "other.json")
    ids = tmp_path / "other"
    assert run("encode", corpus_folder, "-t", tmp_path / "other.json", "-o", ids).exit_code == 0
    assert run("check", checkpoint, "--data", ids).exit_code == 1


@pytest.mark.parametrize(
    "words", [["missing.ckpt"], ["model.ckpt", "-t", "missing.json"], ["model.ckpt", "-d", "missing"]]
)
def test_missing_files(run, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]):
    monkeypatch.chdir(checkpoint.parent)
    result = run("check", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert "missing" in result.stderr
    assert "a bug" not in result.stderr


def test_damaged_files(run, checkpoint: Path, tokenizer_file: Path):
    whole = checkpoint.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"PK\x03\x04nonsense", tokenizer_file.read_bytes()):
        checkpoint.write_bytes(broken)
        result = run("check", checkpoint)
        assert result.exit_code == 1
        assert "Traceback" not in result.stderr
        assert "a bug" not in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["info"],
        ["generate", "--prompt", "The"],
        ["evaluate", "--data", "ids"],
        ["export", "-o", "exported"],
        ["transplant", "-t", "ids", "-o", "new.ckpt"],
        ["fit", "--data", "ids", "-o", "run", "--budget", "bytes=100", "--weights"],
    ],
)
def test_an_edited_checkpoint_is_used_by_no_command(run, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, words):
    monkeypatch.chdir(checkpoint.parent)
    edited = {**read_checkpoint(checkpoint), "tokenizer_fingerprint": "0" * 64}
    write_checkpoint("edited.ckpt", edited)
    before = set(checkpoint.parent.iterdir())
    result = run(*words, "edited.ckpt")
    assert result.exit_code == 1
    assert "edited.ckpt: damaged or edited" in result.stdout + result.stderr
    assert set(checkpoint.parent.iterdir()) == before
    if words == ["check"]:
        assert re.search(r"embedding rows +400 in token_embedding.weight, and no tokenizer", result.stdout)


def test_info_of_checkpoints(run, checkpoint: Path, tokenizer: Tokenizer, encoded: Path, tmp_path: Path):
    weights = tmp_path / "weights.safetensors"
    model = MiniGPT(MiniGPTConfig(tokenizer.vocab_size, **CONFIG))
    save_safetensors(weights, model, tokenizer)
    files = json.loads(run("info", checkpoint, weights, "--json").stdout)["files"]
    for file in files:
        assert file["kind"] == "checkpoint"
        assert file["fingerprint"] == tokenizer.fingerprint
        assert file["parameters"] == sum(parameter.numel() for parameter in model.parameters())
        assert file["config"]["num_layers"] == 1
        assert file["tokenizer"]["vocab_size"] == tokenizer.vocab_size
    assert files[0]["data_fingerprint"] == data_fingerprint(encoded)
    page = run("info", checkpoint).stdout
    assert "checkpoint" in page
    assert tokenizer.fingerprint in page


def test_transplant_and_train_on(
    run, checkpoint: Path, tokenizer: Tokenizer, corpus_folder: Path, texts: list[str], tmp_path: Path
):
    other = train_tokenizer(iter(texts), 350, special_tokens=["<|endoftext|>"])
    other.save(tmp_path / "other.json")
    result = run("check", checkpoint, "-t", tmp_path / "other.json")
    assert result.exit_code == 1
    assert f"of the {other.vocab_size} ids of the new tokenizer" in result.stdout
    new = tmp_path / "new.ckpt"
    found = json.loads(run("transplant", checkpoint, "-t", tmp_path / "other.json", "-o", new, "--json").stdout)
    assert found["fingerprint"] == other.fingerprint
    assert found["copied"] + found["averaged"] == other.vocab_size
    assert (found["old_size"], found["new_size"]) == (tokenizer.vocab_size, other.vocab_size)
    ours, theirs = ({tok.token_bytes(id) for id in range(tok.vocab_size)} for tok in (tokenizer, other))
    assert found["copied"] == len(ours & theirs)
    assert run("check", new, "-t", tmp_path / "other.json").exit_code == 0
    again = run("transplant", checkpoint, "-t", tmp_path / "other.json", "-o", new)
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr
    assert "copied" in run("transplant", checkpoint, "-t", tmp_path / "other.json", "-o", new, "--overwrite").stdout
    assert run("encode", corpus_folder, "-t", tmp_path / "other.json", "-o", tmp_path / "other").exit_code == 0
    words = ("--weights", new, "--budget", "tokens=200", "--batch-size", 2, "-o", tmp_path / "run")
    trained = run("fit", "-d", tmp_path / "other", *words, "--packing", "best_fit", "--json")
    assert trained.exit_code == 0, trained.stderr
    found = json.loads(trained.stdout)
    assert found["packing"] == "best_fit"
    assert "places padded" in found["epoch"]
    assert found["account"]["tokens"]["lost"] == 0


def test_a_model_of_documents_apart_is_scored_so_when_asked(run, encoded: Path, tmp_path: Path):
    words = ("--budget", "tokens=200", "--batch-size", 2, "--block-size", 16, "--embedding-dim", 8, "--num-heads", 2)
    fitted = run("fit", "-d", encoded, *words, "--packing", "document", "-o", tmp_path / "run", "--json")
    assert fitted.exit_code == 0, fitted.stderr
    assert json.loads(fitted.stdout)["packing"] == "document"
    for arguments, hinted in (((), True), (("--own-context",), False)):
        result = run("evaluate", tmp_path / "run" / "last.ckpt", "-d", encoded, *arguments, "--json")
        assert ("--own-context scores it" in result.stderr) == hinted
        assert json.loads(result.stdout)["own_context"] == (not hinted)
