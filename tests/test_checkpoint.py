"""Checkpoints and their tokenizer: every row of the table of what is accepted, tampering, files that break."""

import copy
import dataclasses
import json
import re
import warnings

import pytest
import torch
from torch import nn

from minigpt_tok import Tokenizer, TokenizerMismatchError, embed_fingerprint, verify_checkpoint
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.checkpoint import (
    tokenizer_of,
    write_checkpoint,
)
from minigpt_tok.errors import FormatError, MiniGPTTokError
from minigpt_tok.gpt.embedding_rows import embedding_rows

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
    state[f"{prefix}blocks.1.{name}.weight"] = torch.zeros(48)  # one shard's flat part of a matrix
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
