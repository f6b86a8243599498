"""Another tokenizer for a trained model: which embeddings are copied, averaged, or made of nothing in particular."""

import dataclasses

import numpy as np
import pytest
import torch

from minigpt_tok import MiniGPT, MiniGPTConfig, TokenizerMismatchError, train_tokenizer, verify_checkpoint
from minigpt_tok.checkpoint import check, load_model, read_checkpoint, save_checkpoint
from minigpt_tok.errors import ModelError
from minigpt_tok.transplant import transplant, vocabulary_change

EOT = "<|endoftext|>"
TEXT = ["the cat sat on the mat. the cat ate the rat. naïve café " * 3]
OTHER = ["the dog dug in the bog. a fog and a frog dig. 日本語 the mat " * 3]
SHAPE = {"block_size": 8, "embedding_dim": 8, "num_heads": 2, "num_layers": 1}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def old():
    return train_tokenizer(TEXT, 290, special_tokens=[EOT], min_frequency=1)


@pytest.fixture(scope="module")
def new():
    return train_tokenizer(OTHER, 300, special_tokens=["<|user|>", EOT], min_frequency=1)


@pytest.fixture(scope="module")
def characters():
    return train_tokenizer(["thecatsonm .ïvéf"], len(set("thecatsonm .ïvéf")), recipe="character")


def saved(path, tokenizer, **more):
    torch.manual_seed(0)
    model = MiniGPT(MiniGPTConfig(tokenizer.vocab_size, **SHAPE, **more))
    save_checkpoint(path, model, tokenizer, data_fingerprint="d" * 64)
    return path


def by_hand(old, new, table):
    """The definition, token by token."""
    specials = {id: text for text, id in new.special_tokens.items()}
    known = {old.token_bytes(id): id for id in range(old.vocab_size) if old.byte_lengths[id]}
    rows = []
    for id in range(new.vocab_size):
        raw = new.token_bytes(id)
        if id in specials and specials[id] in old.special_tokens:
            rows.append(table[old.special_tokens[specials[id]]])
        elif id not in specials and raw in known:
            rows.append(table[known[raw]])
        else:
            try:
                pieces = old.encode(raw.decode(), disallowed_special=())
            except UnicodeDecodeError:
                pieces = [known[raw[at : at + 1]] for at in range(len(raw))]
            rows.append(table[pieces].mean(dim=0))
    return torch.stack(rows)


def test_embeddings_are_copied_or_averaged(old, new):
    table = torch.randn(old.vocab_size, 8, generator=torch.Generator().manual_seed(1))
    change = vocabulary_change(old, new)
    torch.testing.assert_close(change.embeddings(table), by_hand(old, new, table))
    shared = [id for id in range(256) if old.byte_lengths[id]]
    assert change.copied >= len(shared) - 1
    assert change.copied + change.averaged == new.vocab_size
    assert change.unknown == 0
    kept = {new.token_bytes(id) for id in range(new.vocab_size)} & {old.token_bytes(id) for id in range(old.vocab_size)}
    assert change.dropped == old.vocab_size - len(kept)
    assert 0 < change.dropped < old.vocab_size
    # Copied exactly, whatever the dtype.
    low = table.bfloat16()
    assert torch.equal(change.embeddings(low)[new.special_tokens[EOT]], low[old.special_tokens[EOT]])


def test_the_same_vocabulary_in_another_order_is_copied_whole(old):
    other = old.with_id_order("specials_last")
    assert other.fingerprint != old.fingerprint
    change = vocabulary_change(old, other)
    assert (change.copied, change.averaged, change.dropped) == (old.vocab_size, 0, 0)
    table = torch.randn(old.vocab_size, 3)
    assert sorted(change.embeddings(table).tolist()) == sorted(table.tolist())


def test_from_characters_to_bytes_and_back(characters, old):
    table = torch.randn(characters.vocab_size, 4, generator=torch.Generator().manual_seed(2))
    change = vocabulary_change(characters, old)
    rows = change.embeddings(table)
    at = {old.token_bytes(id).decode("utf-8", "replace"): id for id in range(old.vocab_size)}
    the = [characters.encode(letter)[0] for letter in "the"]
    torch.testing.assert_close(rows[at["the"]], table[the].mean(dim=0))
    assert torch.equal(rows[at["t"]], table[the[0]])
    torch.testing.assert_close(rows[at["z"]], table.mean(dim=0))  # a character that it lacks
    assert (change.old_size, change.new_size) == (characters.vocab_size, old.vocab_size)
    assert change.copied + change.averaged + change.unknown == old.vocab_size
    assert change.unknown > 200  # nearly all bytes
    back = vocabulary_change(old, characters)
    assert back.copied + back.averaged == characters.vocab_size
    assert back.unknown == 0


def test_a_new_checkpoint_is_bound_to_the_new_tokenizer(tmp_path, old, new):
    path = saved(tmp_path / "old.ckpt", old)
    before = path.read_bytes()
    change = transplant(path, new, tmp_path / "new.ckpt")
    assert path.read_bytes() == before
    verify_checkpoint(tmp_path / "new.ckpt", new)
    with pytest.raises(TokenizerMismatchError):
        verify_checkpoint(tmp_path / "new.ckpt", old)
    (model, _), (was, _) = load_model(tmp_path / "new.ckpt"), load_model(path)
    for name, value in was.state_dict().items():
        if name != "token_embedding.weight":
            assert torch.equal(model.state_dict()[name], value)
    torch.testing.assert_close(
        model.token_embedding.weight, by_hand(old, new, was.token_embedding.weight.detach()), check_dtype=True
    )
    checkpoint = read_checkpoint(tmp_path / "new.ckpt")
    assert checkpoint["transplant"]["from_tokenizer"] == old.fingerprint
    assert checkpoint["transplant"]["from_data"] == "d" * 64
    assert checkpoint["transplant"]["copied"] == change.copied
    assert "data_fingerprint" not in checkpoint  # it was not trained on ids of the new one
    found = check(tmp_path / "new.ckpt", new)
    assert found.ok
    assert f"from the tokenizer {old.fingerprint}" in str(found)
    # And once more: the history stays.
    transplant(tmp_path / "new.ckpt", old, tmp_path / "third.ckpt")
    third = read_checkpoint(tmp_path / "third.ckpt")["transplant"]
    assert third["before"]["from_tokenizer"] == old.fingerprint
    assert third["from_tokenizer"] == new.fingerprint


def test_padded_tables_stay_padded(tmp_path, old, new):
    saved(tmp_path / "old.ckpt", old, pad_vocab_to=64)
    transplant(tmp_path / "old.ckpt", new, tmp_path / "new.ckpt")
    model, _ = load_model(tmp_path / "new.ckpt", new)
    assert model.token_embedding.weight.shape[0] == -(-new.vocab_size // 64) * 64 > new.vocab_size
    assert model(torch.zeros(1, 3, dtype=torch.int64)).shape[-1] == new.vocab_size


def test_check_says_what_could_be_kept_and_stays_a_refusal(tmp_path, old, new):
    found = check(saved(tmp_path / "old.ckpt", old), new)
    assert not found.ok
    change = vocabulary_change(old, new)
    assert f"of the {new.vocab_size} ids of the new tokenizer, {change.copied:,} keep their embedding" in str(found)
    assert "minigpt_tok.transplant.transplant(" in str(found)
    assert "could be kept" not in str(check(tmp_path / "old.ckpt", old))


def test_nothing_is_done_by_mistake(tmp_path, old, new):
    path = saved(tmp_path / "old.ckpt", old)
    with pytest.raises(ModelError, match="has this very tokenizer"):
        transplant(path, old, tmp_path / "new.ckpt")
    with pytest.raises(ModelError, match="is there already"):
        transplant(path, new, path)
    torch.save({"state_dict": load_model(path)[0].state_dict()}, tmp_path / "unbound.ckpt")
    with pytest.raises(TokenizerMismatchError, match="has no tokenizer fingerprint"):
        transplant(tmp_path / "unbound.ckpt", new, tmp_path / "new.ckpt")

    def refuse(change):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transplant(path, new, tmp_path / "new.ckpt", confirm=refuse)
    assert not (tmp_path / "new.ckpt").exists()


def test_a_sentence_for_people(characters, old):
    text = str(vocabulary_change(characters, old))
    assert "since the old one lacks their characters" in text
    assert dataclasses.is_dataclass(vocabulary_change(old, characters))
    assert vocabulary_change(old, characters).pieces.dtype == np.int64
