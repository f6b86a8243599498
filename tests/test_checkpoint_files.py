"""Checkpoint files: read safely, written whole or not at all, in PyTorch's form and as safetensors."""

import argparse
import errno
import io
import os
import pickle
import random
import re
import signal
import subprocess
import sys

import pytest
import safetensors
import torch
from torch import nn

from minigpt_tok import Tokenizer, TokenizerMismatchError, checkpoint_files, embed_fingerprint, verify_checkpoint
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.checkpoint import (
    read_checkpoint,
    save_checkpoint,
    save_safetensors,
    write_checkpoint,
)
from minigpt_tok.errors import FormatError, MiniGPTTokError

TEXT = "the cat sat on the mat. the cat ate the rat."
OTHER = "the dog dug in the bog. a fog and a frog dig."


def train(text=TEXT):
    return Tokenizer(*train_model([text], 270, get_recipe("hf", min_frequency=1)))


@pytest.fixture(scope="module")
def tok():
    return train()


@pytest.fixture(scope="module")
def other():
    """Another tokenizer of equal size: it differs from the first merge on."""
    return train(OTHER)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


class Tiny(nn.Module):
    """A model with a tied output, as GPTs have."""

    def __init__(self, rows=270):
        super().__init__()
        self.token_embedding = nn.Embedding(rows, 4)
        self.head = nn.Linear(4, rows, bias=False)
        self.head.weight = self.token_embedding.weight


def checkpoint_of(tok, **more):
    return embed_fingerprint({"state_dict": Tiny().state_dict(), **more}, tok)


# Files


def test_reading_what_was_written(tok, tmp_path):
    checkpoint = checkpoint_of(tok, step=7, nested={"list": [1, (2.5, None)], "dtype": torch.float32})
    write_checkpoint(tmp_path / "new" / "c.pt", checkpoint)
    loaded = read_checkpoint(tmp_path / "new" / "c.pt")
    assert loaded["nested"] == checkpoint["nested"]
    assert loaded["step"] == 7
    assert torch.equal(loaded["state_dict"]["head.weight"], checkpoint["state_dict"]["head.weight"])
    assert torch.load(tmp_path / "new" / "c.pt", weights_only=True)["step"] == 7


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"args": argparse.Namespace(x=1)}, "['args'] is Namespace"),
        ({"a": [1, {"b": {3, object()}}]}, "['a'][1]['b']"),
        ({"a": lambda: 0}, "['a'] is function"),
        ({("a", object()): 1}, "a key"),
    ],
)
def test_other_types_are_refused_before_anything_is_written(tmp_path, value, where):
    with pytest.raises(FormatError, match=re.escape(where)):
        write_checkpoint(tmp_path / "c.pt", value)
    assert list(tmp_path.iterdir()) == []


def bytes_of(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


WHOLE = bytes_of({"state_dict": {"token_embedding.weight": torch.zeros(270, 4)}})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"hello, this is a text\n", "no checkpoint"),
        (b'{"model": {}}', "no checkpoint"),
        (WHOLE[: len(WHOLE) // 2], "cut short"),
        (WHOLE[:-30], "cut short"),
        (WHOLE[:3], "no checkpoint"),
        (bytes_of([1, 2]), "holds list"),
        (bytes_of(torch.zeros(3)), "holds Tensor"),
        (bytes_of({"args": argparse.Namespace(x=1)}), "argparse.Namespace"),
        (pickle.dumps({"a": 1}), "no checkpoint"),
        (pickle.dumps(os.system), "no checkpoint"),
        (b"PK\x03\x04" + b"\x00" * 100, "cut short"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        ((10**9).to_bytes(8, "little") + b"{", "cut short"),
        ((2).to_bytes(8, "little") + b"{]", "safetensors"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_that_are_no_checkpoint(tmp_path, content, said):
    (tmp_path / "c.pt").write_bytes(content)
    with pytest.raises(FormatError, match=re.escape(said)) as caught:
        read_checkpoint(tmp_path / "c.pt")
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "c.pt"))
    assert "\x1b" not in message
    assert len(message) < 400


@pytest.mark.parametrize("form", ["pt", "safetensors"])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_damaged_files_give_one_of_our_errors(tmp_path, tok, form):
    """Seeded: bytes changed anywhere in the file, or its end cut off. Read whole, or refused; never anything else."""
    path, broken = tmp_path / "whole", tmp_path / "broken"
    (save_checkpoint if form == "pt" else save_safetensors)(path, Tiny(), tok)
    whole, draw = path.read_bytes(), random.Random(5)
    refused = []
    for _ in range(150):
        raw = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        broken.write_bytes(raw[: draw.randrange(len(raw))] if draw.random() < 0.2 else raw)
        try:
            verify_checkpoint(broken, tok)
        except MiniGPTTokError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all(message.startswith(str(broken)) for message in refused)


def test_a_pickle_is_never_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    torch.save({"a": Evil()}, tmp_path / "c.pt")
    with pytest.raises(FormatError):
        read_checkpoint(tmp_path / "c.pt")
    assert not (tmp_path / "made").exists()


def test_missing_files_and_folders(tmp_path, tok):
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "none.pt")
    with pytest.raises(FormatError, match="a folder"):
        read_checkpoint(tmp_path)
    with pytest.raises(FormatError, match="int"):
        verify_checkpoint(5, tok)


def test_a_tokenizer_file_is_no_checkpoint(tmp_path, tok):
    tok.save(tmp_path / "tokenizer.json")
    with pytest.raises(FormatError, match="no checkpoint"):
        verify_checkpoint(tmp_path / "tokenizer.json", tok)


def test_the_old_torch_form_is_read(tmp_path, tok):
    torch.save(checkpoint_of(tok), tmp_path / "c.pt", _use_new_zipfile_serialization=False)
    verify_checkpoint(tmp_path / "c.pt", tok)


def test_a_failed_save_leaves_the_earlier_file(tmp_path, tok, monkeypatch):
    path = tmp_path / "c.pt"
    write_checkpoint(path, checkpoint_of(tok, step=1))
    before = path.read_bytes()

    def full_disk(value, file, *args, **kwargs):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(path, checkpoint_of(tok, step=2))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["c.pt"]


@pytest.mark.parametrize("form", ["pt", "safetensors"])
def test_a_disk_that_fills_up_is_one_clear_error(tmp_path, tok, form):
    """The operating system refuses the write itself: torch's own error says nothing of a disk."""
    resource = pytest.importorskip("resource", reason="needs a limit on file sizes")
    path = tmp_path / f"c.{form}"
    model = Tiny()
    save = save_checkpoint if form == "pt" else save_safetensors
    save(path, model, tok)
    before = path.read_bytes()
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, old[1]))
        with pytest.raises(OSError, match="File too large") as caught:
            save(path, model, tok)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_killed_in_the_middle_of_a_save(tmp_path, tok):
    """SIGKILL while the new file is half written: the last good one is still there, whole."""
    path = tmp_path / "c.pt"
    write_checkpoint(path, checkpoint_of(tok, step=1))
    program = f"""
import os, signal, torch
from minigpt_tok import checkpoint
def save(value, file, *args, **kwargs):
    file.write(b"half"); file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
torch.save = save
checkpoint.write_checkpoint({str(path)!r}, {{"step": 2}})
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    assert read_checkpoint(path)["step"] == 1
    verify_checkpoint(path, tok)


# Plain PyTorch helper


def test_save_checkpoint(tmp_path, tok):
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters())
    model.head(torch.zeros(1, 4)).sum().backward()
    optimizer.step()
    save_checkpoint(
        tmp_path / "c.pt", model, tok, optimizer=optimizer.state_dict(), step=12, data_fingerprint="cd" * 32
    )
    loaded = read_checkpoint(tmp_path / "c.pt")
    verify_checkpoint(loaded, tok)
    assert loaded["step"] == 12
    assert loaded["data_fingerprint"] == "cd" * 32
    Tiny().load_state_dict(loaded["state_dict"])
    torch.optim.AdamW(Tiny().parameters()).load_state_dict(loaded["optimizer"])


def test_a_model_that_does_not_fit_is_refused_when_it_is_saved(tmp_path, tok):
    for save in (save_checkpoint, save_safetensors):
        with pytest.raises(TokenizerMismatchError, match="300 rows"):
            save(tmp_path / "c", Tiny(300), tok)
    assert list(tmp_path.iterdir()) == []


def test_own_keys_cannot_be_given(tmp_path, tok):
    with pytest.raises(FormatError, match="'state_dict'"):
        save_checkpoint(tmp_path / "c.pt", Tiny(), tok, state_dict={})


# safetensors


def test_safetensors_with_tied_weights(tmp_path, tok):
    model = Tiny()
    save_safetensors(tmp_path / "m.safetensors", model, tok, data_fingerprint="ef" * 32)
    with safetensors.safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        metadata = file.metadata()
        assert list(file.keys()) == ["token_embedding.weight"]
    assert all(isinstance(value, str) for value in metadata.values())
    assert metadata["tokenizer_fingerprint"] == tok.fingerprint
    assert metadata["format"] == "pt"
    loaded = read_checkpoint(tmp_path / "m.safetensors")
    verify_checkpoint(loaded, tok)
    assert loaded["vocab_size"] == 270
    assert loaded["tokenizer_fingerprint_version"] == 1
    assert loaded["data_fingerprint"] == "ef" * 32
    assert loaded["state_dict"].keys() == model.state_dict().keys()
    Tiny().load_state_dict(loaded["state_dict"])
    assert torch.equal(loaded["state_dict"]["head.weight"], model.head.weight)
    assert loaded["state_dict"]["head.weight"].data_ptr() == loaded["state_dict"]["token_embedding.weight"].data_ptr()


def test_safetensors_of_views_and_odd_layouts(tmp_path, tok):
    """Parts of one storage that are not the same tensor, and a transposed one, are written as they are."""
    whole = torch.arange(24.0).reshape(4, 6)
    state = {"a": whole[:2], "b": whole[2:], "c": whole.t(), "d": torch.zeros(0, 3), "e": torch.tensor(5)}
    state |= {"f": whole[1:3], "g": whole}
    save_safetensors(tmp_path / "m.safetensors", state, tok)
    loaded = read_checkpoint(tmp_path / "m.safetensors")["state_dict"]
    assert loaded.keys() == state.keys()
    for key, value in state.items():
        assert torch.equal(loaded[key], value), key


def test_safetensors_refuses_another_tokenizer_and_tampering(tmp_path, tok, other):
    path = tmp_path / "m.safetensors"
    save_safetensors(path, Tiny(), tok)
    verify_checkpoint(path, tok)
    with pytest.raises(TokenizerMismatchError, match="rank 0"):
        verify_checkpoint(path, other)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(tok.fingerprint.encode(), other.fingerprint.encode(), 1))
    with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
        verify_checkpoint(path, tok)
    path.write_bytes(raw[:-100])
    with pytest.raises(FormatError, match="cut short"):
        read_checkpoint(path)


def test_safetensors_without_a_fingerprint(tmp_path, tok):
    safetensors.torch.save_file({"token_embedding.weight": torch.zeros(270, 4)}, tmp_path / "m.safetensors")
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint"):
        verify_checkpoint(tmp_path / "m.safetensors", tok)
    safetensors.torch.save_file(
        {"token_embedding.weight": torch.zeros(270, 4)},
        tmp_path / "m.safetensors",
        metadata={"tokenizer_fingerprint": tok.fingerprint, "vocab_size": "many"},
    )
    with pytest.raises(FormatError, match="vocab_size"):
        verify_checkpoint(tmp_path / "m.safetensors", tok)


def test_safetensors_whose_tied_weight_is_not_there(tmp_path, tok):
    path = tmp_path / "m.safetensors"
    checkpoint_files.write_safetensors(path, {"a": torch.zeros(3)}, {"shared_tensors": {"b": "c"}})
    with pytest.raises(FormatError, match=r"damaged.*'c'"):
        read_checkpoint(path)
    for odd in ([1], "a", {"b": ["a"]}):
        checkpoint_files.write_safetensors(path, {"a": torch.zeros(3)}, {"shared_tensors": odd})
        with pytest.raises(FormatError, match="damaged"):
            read_checkpoint(path)


def test_a_failed_export_leaves_the_earlier_file(tmp_path, tok, monkeypatch):
    path = tmp_path / "m.safetensors"
    save_safetensors(path, Tiny(), tok)
    before = path.read_bytes()

    def fails(tensors, filename, metadata=None):
        with open(filename, "wb") as file:
            file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_files, "save_file", fails)
    with pytest.raises(KeyboardInterrupt):
        save_safetensors(path, Tiny(), tok)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]
