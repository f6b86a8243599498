"""MiniGPT in GPT-2's layout: the same logits from the library that the layout is for."""

import json

import pytest
import torch

from minigpt_tok import train_tokenizer
from minigpt_tok.checkpoint_files import read_checkpoint
from minigpt_tok.errors import FormatError, ModelError
from minigpt_tok.gpt.export import export_gpt2, gpt2_name, gpt2_state

TEXTS = ["the cat sat on the mat. the cat ate the rat, and don't they like it? "] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 290, special_tokens=["<|endoftext|>"])


@pytest.fixture
def library():
    return pytest.importorskip("transformers")


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"pad_vocab_to": 64},
        {"num_heads": 4, "expansion_factor": 3, "embedding_dim": 24},
        {"num_layers": 1, "num_heads": 1, "block_size": 7, "dropout": 0.2},
    ],
)
def test_logits_are_equal(library, tiny, tokenizer, tmp_path, shape):
    model = tiny(tokenizer.vocab_size, spread=0.3, **shape)
    for name, parameter in model.named_parameters():  # biases too, and norms that are not the identity
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("norm.weight")), std=0.2)
    export_gpt2(model, tokenizer, tmp_path)
    theirs = library.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(theirs).__name__ == "GPT2LMHeadModel"
    ids = torch.randint(0, tokenizer.vocab_size, (3, model.config.block_size))
    with torch.no_grad():
        expected, found = model(ids), theirs(ids).logits
    assert found.shape == (3, model.config.block_size, tokenizer.vocab_size)
    assert expected.std() > 0.5
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in theirs.parameters()) == sum(t.numel() for t in gpt2_state(model).values())


def test_the_tokenizer_comes_along(library, tiny, tokenizer, tmp_path):
    export_gpt2(tiny(tokenizer.vocab_size), tokenizer, tmp_path)
    theirs = library.AutoTokenizer.from_pretrained(tmp_path)
    for text in (TEXTS[0], "日本 <|endoftext|> é"):
        assert theirs(text)["input_ids"] == tokenizer.encode(text, allowed_special="all")
        assert theirs.decode(theirs(text)["input_ids"]) == text
    assert theirs.model_max_length == 16
    assert theirs.eos_token_id == tokenizer.special_tokens["<|endoftext|>"]
    model = library.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.generation_config.eos_token_id == theirs.eos_token_id


def test_a_model_without_special_tokens_has_no_end_of_text(library, tiny, tmp_path):
    tokenizer = train_tokenizer(TEXTS, 270)
    export_gpt2(tiny(tokenizer.vocab_size), tokenizer, tmp_path)
    config = library.AutoConfig.from_pretrained(tmp_path)
    assert config.eos_token_id is config.bos_token_id is None  # not GPT-2's own 50256


def test_a_character_model_is_exported_too(library, tiny, tmp_path):
    tokenizer = train_tokenizer(TEXTS, 40, recipe="character")
    model = tiny(tokenizer.vocab_size)
    export_gpt2(model, tokenizer, tmp_path)
    theirs = library.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("the cat")["input_ids"] == tokenizer.encode("the cat")


def test_the_files_say_whose_they_are(tiny, tokenizer, tmp_path):
    files = export_gpt2(tiny(tokenizer.vocab_size), tokenizer, tmp_path / "new" / "folder")
    assert sorted(file.name for file in files) == sorted(file.name for file in (tmp_path / "new" / "folder").iterdir())
    config = json.loads((tmp_path / "new" / "folder" / "config.json").read_text())
    assert config["tokenizer_fingerprint"] == tokenizer.fingerprint
    checkpoint = read_checkpoint(tmp_path / "new" / "folder" / "model.safetensors")
    assert checkpoint["tokenizer_fingerprint"] == tokenizer.fingerprint
    assert checkpoint["format"] == "pt"


def test_another_export_is_not_overwritten_unless_asked(tiny, tokenizer, tmp_path):
    other = train_tokenizer(TEXTS, 280, special_tokens=["<|endoftext|>"])
    export_gpt2(tiny(other.vocab_size), other, tmp_path)
    export_gpt2(tiny(other.vocab_size, seed=1), other, tmp_path)
    with pytest.raises(FormatError, match=f"made with the tokenizer {other.fingerprint}.*overwrite=True"):
        export_gpt2(tiny(tokenizer.vocab_size), tokenizer, tmp_path)
    export_gpt2(tiny(tokenizer.vocab_size), tokenizer, tmp_path, overwrite=True)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(FormatError, match="of another origin"):
        export_gpt2(tiny(tokenizer.vocab_size), tokenizer, tmp_path)


def test_a_model_of_another_size_is_refused(tiny, tokenizer, tmp_path):
    with pytest.raises(ModelError, match="the model has 23 ids and the tokenizer"):
        export_gpt2(tiny(23), tokenizer, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_weight_that_gpt2_lacks_is_named():
    assert gpt2_name("blocks.3.mlp.expand.weight") == "transformer.h.3.mlp.c_fc.weight"
    assert gpt2_name("final_norm.bias") == "transformer.ln_f.bias"
    with pytest.raises(ModelError, match=r"'blocks\.3\.gate\.weight'"):
        gpt2_name("blocks.3.gate.weight")
