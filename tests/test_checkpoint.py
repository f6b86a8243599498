"""Checkpoints and their tokenizer: every row of the table of what is accepted, tampering, files that break."""

import argparse
import copy
import dataclasses
import errno
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import warnings

import pytest
import safetensors
import torch
from torch import nn

from minigpt_tok import Tokenizer, TokenizerMismatchError, checkpoint_files, embed_fingerprint, verify_checkpoint
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.checkpoint import (
    check,
    load_model,
    read_checkpoint,
    save_checkpoint,
    save_safetensors,
    tokenizer_of,
    write_checkpoint,
)
from minigpt_tok.data.id_file import IdFileMetadata, write_id_file
from minigpt_tok.data.identity import data_fingerprint
from minigpt_tok.errors import FormatError, MiniGPTTokError, ModelError
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.embedding_rows import embedding_rows
from minigpt_tok.gpt.model import MiniGPT

TEXT = "the cat sat on the mat. the cat ate the rat."
OTHER = "the dog dug in the bog. a fog and a frog dig."


def train(text=TEXT, size=270, recipe="hf", specials=(), **switches):
    switches.setdefault("min_frequency", 1)
    return Tokenizer(*train_model([text], size, get_recipe(recipe, **switches), specials))


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

    def __init__(self, rows=270, name="token_embedding"):
        super().__init__()
        setattr(self, name, nn.Embedding(rows, 4))
        self.head = nn.Linear(4, rows, bias=False)
        self.head.weight = getattr(self, name).weight


def checkpoint_of(tok, rows=None, **more):
    return embed_fingerprint({"state_dict": Tiny(rows or tok.vocab_size).state_dict(), **more}, tok)


# What is embedded


def test_what_is_embedded(tok):
    before = {"epoch": 3, "state_dict": {}}
    checkpoint = embed_fingerprint(before, tok, data_fingerprint="ab" * 32)
    assert checkpoint is before  # Lightning's hook changes the dict it is given
    assert checkpoint["epoch"] == 3
    assert checkpoint["tokenizer_fingerprint"] == tok.fingerprint
    assert checkpoint["tokenizer_fingerprint_version"] == 1
    assert checkpoint["vocab_size"] == 270
    assert checkpoint["data_fingerprint"] == "ab" * 32
    assert Tokenizer.from_json(checkpoint["tokenizer"]) == tok
    assert tokenizer_of(checkpoint).training == tok.training
    assert "data_fingerprint" not in embed_fingerprint({}, tok)


def test_all_is_plain(tok, tmp_path):
    torch.save(checkpoint_of(tok), tmp_path / "c.pt")
    loaded = torch.load(tmp_path / "c.pt", weights_only=True)
    assert loaded["tokenizer_fingerprint"] == tok.fingerprint


def test_embedding_twice_is_the_same_and_another_tokenizer_is_refused(tok, other):
    checkpoint = checkpoint_of(tok)
    again = copy.copy(checkpoint)
    assert embed_fingerprint(checkpoint, tok) == again
    with pytest.raises(TokenizerMismatchError) as caught:
        embed_fingerprint(checkpoint, other)
    assert tok.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)
    assert checkpoint["tokenizer_fingerprint"] == tok.fingerprint


def test_a_key_that_means_something_else_is_not_overwritten(tok):
    with pytest.raises(FormatError, match="'tokenizer'"):
        embed_fingerprint({"tokenizer": {"name": "gpt2"}}, tok)
    with pytest.raises(FormatError, match="'vocab_size'"):
        embed_fingerprint({"vocab_size": 300}, tok)
    assert embed_fingerprint({"vocab_size": 270}, tok)["vocab_size"] == 270


@pytest.mark.parametrize("recipe", ["hf", "cs336", "readable", "character"])
def test_every_kind_of_tokenizer_comes_back(recipe):
    size = 20 if recipe == "character" else 270
    tok = train(size=size, recipe=recipe, specials=() if recipe == "character" else ("<|endoftext|>",))
    checkpoint = checkpoint_of(tok)
    verify_checkpoint(checkpoint, tok)
    assert tokenizer_of(checkpoint).encode("the cat") == tok.encode("the cat")


# The table, row by row


def test_same_fingerprint_is_silent(tok, tmp_path, capsys):
    write_checkpoint(tmp_path / "c.pt", checkpoint_of(tok))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (checkpoint_of(tok), tmp_path / "c.pt", str(tmp_path / "c.pt")):
            assert verify_checkpoint(given, tok) is None
        verify_checkpoint(checkpoint_of(tok), Tokenizer(tok.model, name="without its record"))
    assert capsys.readouterr() == ("", "")


def test_another_tokenizer_of_equal_size(tok, other, tmp_path):
    write_checkpoint(tmp_path / "c.pt", checkpoint_of(tok))
    for given, name in ((checkpoint_of(tok), "the checkpoint"), (tmp_path / "c.pt", str(tmp_path / "c.pt"))):
        with pytest.raises(TokenizerMismatchError) as caught:
            verify_checkpoint(given, other)
        message = str(caught.value)
        assert message.startswith(name)
        assert tok.fingerprint in message
        assert other.fingerprint in message
        assert "the merge at rank 0: '" in message
        changed = sum(tok.vocab[id] != other.vocab[id] for id in range(270))
        assert changed > 0
        assert f"{changed} of 270 ids change meaning" in message
        assert "tokenizer_of" in message


def test_mismatch_is_a_value_error_and_one_of_ours(tok, other):
    for kind in (ValueError, MiniGPTTokError):
        with pytest.raises(kind):
            verify_checkpoint(checkpoint_of(tok), other)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            lambda tok: tok.truncated(265),
            "the vocabulary size: 270 in the checkpoint's tokenizer, 265 in the one given",
        ),
        (lambda tok: tok.with_special_tokens(["<x>"]), "the special token '<x>'"),
        (lambda tok: Tokenizer(dataclasses.replace(tok.model, pattern="llama3")), "the pre-tokenizer: gpt2 in"),
        (lambda tok: tok.with_id_order("bytes_first"), "the numbering: id 0 is '!' in"),
    ],
)
def test_what_differs_is_named(tok, change, named):
    with pytest.raises(TokenizerMismatchError, match=re.escape(named)):
        verify_checkpoint(checkpoint_of(tok), change(tok))


def test_allow_unverified_does_not_allow_another_tokenizer(tok, other):
    with pytest.raises(TokenizerMismatchError, match="rank 0"):
        verify_checkpoint(checkpoint_of(tok), other, allow_unverified=True)


def test_no_fingerprint(tok, tmp_path):
    bare = {"state_dict": Tiny().state_dict()}
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint") as caught:
        verify_checkpoint(bare, tok)
    assert "allow_unverified=True" in str(caught.value)
    with pytest.warns(UserWarning, match="has no tokenizer fingerprint") as warned:
        verify_checkpoint(bare, tok, allow_unverified=True)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    torch.save(bare, tmp_path / "bare.pt")
    with pytest.raises(TokenizerMismatchError, match=re.escape(str(tmp_path / "bare.pt"))):
        verify_checkpoint(tmp_path / "bare.pt", tok)


@pytest.mark.parametrize("value", [None, "", 5, b"ab", "no hex", "AB" * 32, "ab" * 31])
def test_a_fingerprint_that_is_none(tok, value):
    checkpoint = checkpoint_of(tok)
    checkpoint["tokenizer_fingerprint"] = value
    with pytest.raises(TokenizerMismatchError):
        verify_checkpoint(checkpoint, tok)
    if value is not None:
        with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
            verify_checkpoint(checkpoint, tok, allow_unverified=True)


def test_without_its_tokenizer_the_fingerprint_decides(tok, other):
    checkpoint = checkpoint_of(tok)
    del checkpoint["tokenizer"]
    verify_checkpoint(checkpoint, tok)
    with pytest.raises(TokenizerMismatchError, match="does not carry its tokenizer") as caught:
        verify_checkpoint(checkpoint, other)
    assert tok.fingerprint in str(caught.value)
    with pytest.raises(TokenizerMismatchError, match="does not carry its tokenizer"):
        tokenizer_of(checkpoint)


def test_a_tokenizer_without_a_fingerprint_beside_it_is_unverified(tok):
    checkpoint = checkpoint_of(tok)
    del checkpoint["tokenizer_fingerprint"]
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint"):
        verify_checkpoint(checkpoint, tok)


def test_another_version_of_the_fingerprint(tok):
    checkpoint = checkpoint_of(tok)
    checkpoint["tokenizer_fingerprint_version"] = 2
    with pytest.raises(TokenizerMismatchError, match="version 2"):
        verify_checkpoint(checkpoint, tok)
    del checkpoint["tokenizer_fingerprint_version"]
    verify_checkpoint(checkpoint, tok)  # there was no other version before versions were written


# Tampering


def tampered_json(tok, forge=False):
    """The tokenizer's JSON with one merge swapped with the next; `forge`: its own fingerprint made to fit as well."""
    document = json.loads(tok.to_json())
    merges = document["model"]["merges"]
    merges[3], merges[4] = merges[4], merges[3]
    del document["model"]["minigpt_tok"]["fingerprint"]
    edited = Tokenizer.from_json(json.dumps(document))
    assert edited != tok
    document["model"]["minigpt_tok"]["fingerprint"] = edited.fingerprint if forge else tok.fingerprint
    return json.dumps(document), edited


@pytest.mark.parametrize("forge", [False, True])
def test_one_merge_edited_inside(tok, forge):
    checkpoint = checkpoint_of(tok)
    checkpoint["tokenizer"], edited = tampered_json(tok, forge)
    for given in (tok, edited):
        with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
            verify_checkpoint(checkpoint, given)
        with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
            verify_checkpoint(checkpoint, given, allow_unverified=True)
    with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
        tokenizer_of(checkpoint)
    if forge:
        with pytest.raises(TokenizerMismatchError) as caught:
            tokenizer_of(checkpoint)
        assert tok.fingerprint in str(caught.value)
        assert edited.fingerprint in str(caught.value)


def test_fingerprints_swapped(tok, other):
    checkpoint = checkpoint_of(tok)
    checkpoint["tokenizer_fingerprint"] = other.fingerprint
    for given in (tok, other):
        with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
            verify_checkpoint(checkpoint, given)


@pytest.mark.parametrize("inside", ["", "{", "[]", '{"model": 5}', "\x00", 7, b"{}", None, {"model": {}}])
def test_a_tokenizer_that_is_none(tok, inside):
    checkpoint = checkpoint_of(tok)
    checkpoint["tokenizer"] = inside
    with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
        verify_checkpoint(checkpoint, tok)


def test_every_byte_of_the_canonical_text_counts(tok):
    """Any one character of the embedded JSON's vocabulary or merges replaced: refused, or the same tokenizer."""
    checkpoint = checkpoint_of(tok)
    text = checkpoint["tokenizer"]
    start = text.index('"vocab"')
    for place in range(start, len(text), 97):
        for character in "aZ9":
            edited = text[:place] + character + text[place + 1 :]
            if edited == text:
                continue
            checkpoint["tokenizer"] = edited
            with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
                verify_checkpoint(checkpoint, tok)


@pytest.mark.parametrize("value", [271, 0, "270", None, True])
def test_the_vocabulary_size_inside_is_checked(tok, value):
    checkpoint = checkpoint_of(tok)
    checkpoint["vocab_size"] = value
    with pytest.raises(TokenizerMismatchError, match="damaged or edited"):
        verify_checkpoint(checkpoint, tok)


# Embedding rows


@pytest.mark.parametrize("rows", [269, 271, 320])
def test_rows_that_are_not_the_vocabulary_size(tok, rows):
    with pytest.raises(TokenizerMismatchError) as caught:
        verify_checkpoint(checkpoint_of(tok, rows), tok)
    assert f"{rows} rows" in str(caught.value)
    assert "270 ids" in str(caught.value)
    assert "token_embedding.weight" in str(caught.value)
    assert "embedding_rows" in str(caught.value)


def test_rows_are_checked_without_a_fingerprint_too(tok):
    with (
        pytest.warns(UserWarning, match="no tokenizer fingerprint"),
        pytest.raises(TokenizerMismatchError, match="271"),
    ):
        verify_checkpoint({"state_dict": Tiny(271).state_dict()}, tok, allow_unverified=True)


def test_padded_rows_are_declared_by_a_key(tok):
    verify_checkpoint(checkpoint_of(tok, 320, embedding_rows=320), tok)
    with pytest.raises(TokenizerMismatchError, match=r"320 rows.*declares 384"):
        verify_checkpoint(checkpoint_of(tok, 320, embedding_rows=384), tok)
    with pytest.raises(TokenizerMismatchError, match="fewer than"):
        verify_checkpoint(checkpoint_of(tok, 200, embedding_rows=200), tok)
    with pytest.raises(FormatError, match="embedding_rows"):
        verify_checkpoint(checkpoint_of(tok, 320, embedding_rows="320"), tok)


@pytest.mark.parametrize("place", ["hyper_parameters", "config", "nested"])
def test_padded_rows_are_declared_by_the_configuration(tok, place):
    def declared(pad, size=270):
        config = {"vocab_size": size, "pad_vocab_to": pad}
        return {"hyper_parameters": {"config": config}} if place == "nested" else {place: config}

    verify_checkpoint(checkpoint_of(tok, 320, **declared(64)), tok)
    verify_checkpoint(checkpoint_of(tok, 270, **declared(1)), tok)
    with pytest.raises(TokenizerMismatchError, match=r"320 rows.*declares 384"):
        verify_checkpoint(checkpoint_of(tok, 320, **declared(128)), tok)
    # Rows fit, but the model masks other ids than this vocabulary leaves free.
    with pytest.raises(TokenizerMismatchError, match=r"280.*270"):
        verify_checkpoint(checkpoint_of(tok, 320, **declared(64, size=280)), tok)
    with pytest.raises(FormatError, match="pad_vocab_to"):
        verify_checkpoint(checkpoint_of(tok, 320, **declared(0)), tok)


@pytest.mark.parametrize(
    "name", ["token_embedding", "tok_emb", "wte", "embed_tokens", "tok_embeddings", "token_embedding_table"]
)
@pytest.mark.parametrize("prefix", ["", "model.", "_orig_mod.", "module.transformer."])
def test_the_embedding_is_found_by_its_name(name, prefix):
    state = {f"{prefix}{key}": value for key, value in Tiny(12, name).state_dict().items()}
    state[f"{prefix}position_embedding.weight"] = torch.zeros(99, 4)
    state[f"{prefix}blocks.0.weight"] = torch.zeros(5, 4)
    assert embedding_rows(state) == {f"{prefix}{name}.weight": 12}


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict", "model_state"])
def test_the_weights_are_found_under_the_usual_keys(tok, key):
    with pytest.raises(TokenizerMismatchError, match="271 rows"):
        verify_checkpoint(embed_fingerprint({key: Tiny(271).state_dict()}, tok), tok)


def test_a_flat_state_dict_is_a_checkpoint_too(tok):
    checkpoint = embed_fingerprint(dict(Tiny(270).state_dict()), tok)
    verify_checkpoint(checkpoint, tok)
    checkpoint["token_embedding.weight"] = torch.zeros(271, 4)
    with pytest.raises(TokenizerMismatchError, match="271 rows"):
        verify_checkpoint(checkpoint, tok)


def test_without_weights_there_are_no_rows_to_check(tok):
    verify_checkpoint(embed_fingerprint({}, tok), tok)
    verify_checkpoint(embed_fingerprint({"state_dict": {"w": torch.zeros(3, 3)}}, tok), tok)


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


# MiniGPT


def mini(tok, **settings):
    torch.manual_seed(0)
    shape = {"block_size": 8, "embedding_dim": 8, "num_heads": 2, "num_layers": 1} | settings
    return MiniGPT(MiniGPTConfig(tok.vocab_size, **shape))


IDS = torch.arange(6)[None]


@pytest.mark.parametrize("pad", [1, 64])
@pytest.mark.parametrize("save", [save_checkpoint, save_safetensors])
def test_a_model_comes_back_with_its_tokenizer(tmp_path, tok, save, pad):
    model = mini(tok, pad_vocab_to=pad, dropout=0.5).eval()
    save(tmp_path / "c", model, tok)
    before = torch.random.get_rng_state()
    loaded, own = load_model(tmp_path / "c")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert own == tok
    assert own.training == tok.training
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(IDS), model(IDS))
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    given = load_model(tmp_path / "c", tok)[1]
    assert given is tok


@pytest.mark.parametrize("save", [save_checkpoint, save_safetensors])
def test_a_model_is_not_loaded_for_another_tokenizer(tmp_path, tok, other, save):
    save(tmp_path / "c", mini(tok), tok)
    with pytest.raises(TokenizerMismatchError, match="rank 0"):
        load_model(tmp_path / "c", other)
    with pytest.raises(TokenizerMismatchError, match="rank 0"):
        load_model(tmp_path / "c", other, allow_unverified=True)


def test_a_lightning_checkpoint_is_loaded_as_well(tmp_path, tok):
    model = mini(tok).eval()
    checkpoint = {
        "state_dict": {f"model._orig_mod.{key}": value for key, value in model.state_dict().items()}
        | {"x": torch.ones(1)},
        "hyper_parameters": {"learning_rate": 0.1, "config": model.config.to_plain()},
    }
    write_checkpoint(tmp_path / "c.ckpt", embed_fingerprint(checkpoint, tok))
    assert torch.equal(load_model(tmp_path / "c.ckpt")[0](IDS), model(IDS))


def test_a_model_without_a_tokenizer_needs_one(tmp_path, tok):
    model = mini(tok)
    write_checkpoint(tmp_path / "c.pt", {"state_dict": model.state_dict(), "config": model.config.to_plain()})
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint"):
        load_model(tmp_path / "c.pt")
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint"):
        load_model(tmp_path / "c.pt", tok)
    with pytest.warns(UserWarning, match="has no tokenizer fingerprint"):
        assert load_model(tmp_path / "c.pt", tok, allow_unverified=True)[1] is tok


def test_checkpoints_that_are_no_minigpt(tmp_path, tok):
    config = mini(tok).config.to_plain()
    state = mini(tok).state_dict()
    write_checkpoint(tmp_path / "none.pt", embed_fingerprint({"state_dict": state}, tok))
    with pytest.raises(FormatError, match="no configuration of a MiniGPT"):
        load_model(tmp_path / "none.pt")
    write_checkpoint(tmp_path / "odd.pt", embed_fingerprint({"state_dict": state, "config": config | {"x": 1}}, tok))
    with pytest.raises(ModelError, match=r"odd\.pt.*x"):
        load_model(tmp_path / "odd.pt")
    smaller = {"state_dict": state, "config": config | {"embedding_dim": 4}}
    write_checkpoint(tmp_path / "smaller.pt", embed_fingerprint(smaller, tok))
    with pytest.raises(FormatError, match="do not fit its configuration"):
        load_model(tmp_path / "smaller.pt")
    empty = embed_fingerprint({"state_dict": {}, "config": config}, tok)
    write_checkpoint(tmp_path / "empty.pt", empty)
    with pytest.raises(FormatError, match="no token embedding"):
        load_model(tmp_path / "empty.pt")


# check


@pytest.fixture(scope="module")
def made(tok, other, tmp_path_factory):
    """A checkpoint, the two tokenizers' files, and each one's ids of a text."""
    folder = tmp_path_factory.mktemp("made")
    tok.save(folder / "tok.json")
    other.save(folder / "other.json")
    for name, maker in (("data", tok), ("other_data", other)):
        for split, text in (("train", TEXT), ("validation", OTHER)):
            metadata = IdFileMetadata(
                tokenizer_fingerprint=maker.fingerprint,
                tokenizer_fingerprint_version=1,
                vocab_size=maker.vocab_size,
                corpus="c",
                split=split,
            )
            write_id_file(folder / name / f"{split}.safetensors", [(text, maker.encode_to_numpy(text))], metadata)
    save_checkpoint(folder / "c.pt", mini(tok), tok, data_fingerprint=data_fingerprint(folder / "data"))
    return folder


def test_check_alone(made, tok):
    result = check(made / "c.pt")
    assert result.ok
    assert result.fingerprint == tok.fingerprint
    assert [item.name for item in result.checks] == ["file", "fingerprint", "tokenizer inside", "embedding rows"]
    assert all(item.ok for item in result.checks)
    assert tok.fingerprint in str(result)
    assert json.loads(json.dumps(result.to_plain()))["ok"] is True


@pytest.mark.parametrize("as_path", [True, False])
def test_check_with_the_right_tokenizer_and_data(made, tok, as_path):
    result = check(made / "c.pt", made / "tok.json" if as_path else tok, made / "data")
    assert result.ok
    assert [item.name for item in result.checks][4:] == ["tokenizer given", "data train", "data validation"]
    assert "trained on" in result.checks[5].message


def test_check_with_another_tokenizer_of_equal_size(made):
    result = check(made / "c.pt", made / "other.json")
    assert not result.ok
    assert [item.ok for item in result.checks] == [True, True, True, True, False]
    assert "the merge at rank 0" in result.checks[4].message
    assert "FAILED" in str(result)


def test_check_with_data_of_another_tokenizer(made, tok, other):
    result = check(made / "c.pt", tok, made / "other_data")
    assert [item.ok for item in result.checks][4:] == [True, False, False]
    assert tok.fingerprint in result.checks[5].message
    assert other.fingerprint in result.checks[5].message


def test_check_with_other_data_of_the_same_tokenizer(made):
    """Evaluating on another text is in order; that it is another one is said."""
    result = check(made / "c.pt", data=made / "data" / "validation.safetensors")
    assert result.ok
    assert "not what it was trained on" in result.checks[-1].message


def test_check_says_all_that_is_wrong(made, tok, other, tmp_path):
    checkpoint = read_checkpoint(made / "c.pt")
    checkpoint["tokenizer"] = other.to_json()
    checkpoint["state_dict"]["token_embedding.weight"] = torch.zeros(300, 8)
    write_checkpoint(tmp_path / "c.pt", checkpoint)
    result = check(tmp_path / "c.pt", other, made / "other_data")
    by_name = {item.name: item for item in result.checks}
    assert by_name["tokenizer inside"].ok is False
    assert "damaged or edited" in by_name["tokenizer inside"].message
    assert by_name["embedding rows"].ok is False
    assert by_name["tokenizer given"].ok is False
    assert by_name["data train"].ok is False


def test_check_without_a_fingerprint(made, tok, tmp_path):
    write_checkpoint(tmp_path / "c.pt", {"state_dict": mini(tok).state_dict()})
    result = check(tmp_path / "c.pt", tok, made / "data")
    by_name = {item.name: item for item in result.checks}
    assert not result.ok
    assert by_name["fingerprint"].ok is False
    assert by_name["embedding rows"].ok is True  # 270 of the tokenizer given
    assert by_name["tokenizer given"].ok is False
    assert by_name["data train"].ok is False
    assert result.fingerprint is None


def test_check_of_what_is_no_checkpoint(made, tmp_path):
    (tmp_path / "text.pt").write_text("text")
    result = check(tmp_path / "text.pt", made / "tok.json")
    assert [(item.name, item.ok) for item in result.checks] == [("file", False)]
    assert not result.ok
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "none.pt")


def test_check_of_files_that_are_no_tokenizer_and_no_data(made, tmp_path):
    with pytest.raises(MiniGPTTokError):
        check(made / "c.pt", made / "c.pt")
    with pytest.raises(MiniGPTTokError):
        check(made / "c.pt", data=tmp_path)
    broken = tmp_path / "train.safetensors"
    broken.write_bytes((made / "data" / "train.safetensors").read_bytes()[:-3])
    result = check(made / "c.pt", data=broken)
    assert result.checks[-1].ok is False
    assert str(broken) in result.checks[-1].message


def test_check_where_nothing_can_be_compared(tok, tmp_path):
    write_checkpoint(tmp_path / "c.pt", embed_fingerprint({}, tok))
    rows = check(tmp_path / "c.pt").checks[-1]
    assert rows.name == "embedding rows"
    assert rows.ok is None
    assert check(tmp_path / "c.pt").ok
