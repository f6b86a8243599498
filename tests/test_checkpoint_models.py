"""A model with its tokenizer from a checkpoint, and checkpoint, tokenizer and data checked at once."""

import json

import pytest
import torch

from minigpt_tok import Tokenizer, TokenizerMismatchError, embed_fingerprint
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.checkpoint import (
    check,
    load_model,
    read_checkpoint,
    save_checkpoint,
    save_safetensors,
    write_checkpoint,
)
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.data.identity import data_fingerprint
from minigpt_tok.errors import FormatError, MiniGPTTokError, ModelError
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.model import MiniGPT

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
    assert [item.ok for item in result.checks] == [True, True, True, True, False, None]
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
