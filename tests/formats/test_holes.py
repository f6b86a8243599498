"""Ids that no token has: ranks have such holes, and our own file says where they are, so that none is one by accident."""

import json

import pytest

from minigpt_tok import MiniGPT, MiniGPTConfig
from minigpt_tok.bpe.model import ALL_BYTES, AddedToken, BPEModel
from minigpt_tok.checkpoint import embed_fingerprint, tokenizer_of
from minigpt_tok.errors import FormatError
from minigpt_tok.tokenizer import Tokenizer

ADDED = (AddedToken(content="<s>", id=260), AddedToken(content="<t>", id=263))
MODEL = BPEModel(
    tokens=(*ALL_BYTES, None, b"ab", *[None] * 6),
    rank_rule="bytes",
    whole_piece=True,
    pattern="cl100k",
    added_tokens=ADDED,
)
TOKENIZER = Tokenizer(MODEL)


def document():
    return json.loads(TOKENIZER.to_json())


def test_they_are_named_and_come_back(tmp_path):
    assert document()["model"]["minigpt_tok"]["holes"] == [[256, 256], [258, 259], [261, 262]]
    TOKENIZER.save(tmp_path / "t.json")
    again = Tokenizer.load(tmp_path / "t.json")
    assert again == TOKENIZER
    assert again.vocab_size == 264
    assert again.special_tokens == {"<s>": 260, "<t>": 263}
    assert again.to_json() == TOKENIZER.to_json() or again.model.rank_rule != MODEL.rank_rule


def test_a_tokenizer_without_holes_names_none(byte_tokenizer):
    assert "holes" not in json.loads(byte_tokenizer.to_json())["model"]["minigpt_tok"]


def test_hugging_face_loads_it_with_the_same_ids():
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_str(TOKENIZER.to_json())
    for text in ("abc<s>ab <t>", "dab", "日本"):
        ids = TOKENIZER.encode(text, allowed_special="all")
        assert theirs.encode(text).ids == ids
        assert theirs.decode(ids, skip_special_tokens=False) == text


def test_transformers_loads_it_with_the_same_ids():
    pytest.importorskip("transformers")
    theirs = TOKENIZER.to_transformers()
    assert theirs("abc<s>ab <t>")["input_ids"] == TOKENIZER.encode("abc<s>ab <t>", allowed_special="all")


def test_a_checkpoint_can_carry_it():
    model = MiniGPT(MiniGPTConfig(TOKENIZER.vocab_size, block_size=4, embedding_dim=4, num_heads=1, num_layers=1))
    checkpoint = embed_fingerprint({"state_dict": model.state_dict()}, TOKENIZER)
    assert tokenizer_of(checkpoint) == TOKENIZER


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda own: own.pop("holes"), "no token has id 256"),
        (lambda own: own["holes"].pop(), "holes: are not the ids that no token has"),
        (lambda own: own["holes"].append([264, 300]), "holes: are not the ids"),
        (lambda own: own.update(holes=[[0, 1 << 60]]), "holes: are not the ids"),
        (lambda own: own.update(holes="all"), "not list"),
    ],
)
def test_undeclared_holes_are_a_file_that_is_cut_short(edit, named):
    content = document()
    edit(content["model"]["minigpt_tok"])
    with pytest.raises(FormatError, match=named):
        Tokenizer.from_json(json.dumps(content))


def test_other_forms_refuse_them(tmp_path):
    plain = Tokenizer(BPEModel(tokens=(*ALL_BYTES, None, b"ab"), rank_rule="bytes"))
    with pytest.raises(FormatError, match="holes in its ids, and id 256"):
        plain.to_gpt2(tmp_path)
    with pytest.raises(FormatError, match="cannot hold holes in the ids"):
        plain.to_vocab_and_merges()
    plain.to_tiktoken(tmp_path / "ranks")
