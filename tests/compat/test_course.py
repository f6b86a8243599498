"""The course's own calls."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigpt_tok.bpe.model import BYTE_TO_CHARACTER
from minigpt_tok.compat.course import (
    BPETokenizer,
    is_letter,
    is_number,
    is_space,
    pretokenize_gpt2,
    split_digits,
)
from minigpt_tok.errors import TokenizerError
from minigpt_tok.tokenizer import Tokenizer

HUG = ["hug", "hug", "pug", "hugs"]
END = "<|endoftext|>"
TEXTS = ["the cat's hat\n", "the café 日本\n", "a rat ate the hat 12\n"] * 3


def test_the_hand_example():
    tokenizer = BPETokenizer.train(HUG, vocab_size=259, min_freq=1)
    assert tokenizer.merges == [("u", "g"), ("h", "ug"), ("p", "ug")]
    assert [tokenizer.token_to_id(token) for token in ("ug", "hug", "pug", "!", "g", "Ġ")] == [
        256,
        257,
        258,
        0,
        70,
        220,
    ]
    assert tokenizer.encode("hugs pug") == [257, 82, 220, 258]
    assert [tokenizer.id_to_token(id) for id in (257, 82, 220, 258)] == ["hug", "s", "Ġ", "pug"]
    assert tokenizer.decode([257, 82, 220, 258]) == "hugs pug"
    assert tokenizer.vocab_size == 259


def test_the_minimum_frequency_is_two_unless_given():
    assert BPETokenizer.train(HUG, 1000).merges == [("u", "g"), ("h", "ug")]
    assert [len(BPETokenizer.train(HUG, 1000, min_freq=least).merges) for least in (2, 3, 4)] == [2, 2, 1]


def test_specials_come_first_and_are_not_learned_from():
    tokenizer = BPETokenizer.train([f"ab{END}" * 3] * 3, 300, specials=[END])
    assert tokenizer.special_ids == tokenizer.added == {END: 0}
    assert tokenizer.merges == [("a", "b")]
    assert tokenizer.encode(f"ab{END}") == [tokenizer.token_to_id("ab"), 0]
    assert tokenizer.decode([0, 66], skip_special=True) == tokenizer.id_to_token(66)
    assert tokenizer.decode([0]) == END
    assert tokenizer.unk_id is None


def test_members():
    tokenizer = BPETokenizer.train(TEXTS, 300, specials=[END])
    assert len(tokenizer.vocab) == tokenizer.vocab_size
    assert sorted(tokenizer.vocab.values()) == list(range(tokenizer.vocab_size))
    assert tokenizer.vocab[END] == 0
    assert tokenizer.vocab["Ġthe"] == tokenizer.token_to_id("Ġthe")
    assert tokenizer.token_to_id("not a token") is None
    assert tokenizer.pre_tokenizer["type"] == "ByteLevel"
    with pytest.raises(TokenizerError, match="id 300 is outside"):
        tokenizer.id_to_token(300)
    with pytest.raises(TokenizerError):
        tokenizer.decode([-1])


def test_it_can_be_made_of_its_parts():
    first = BPETokenizer.train(TEXTS, 300, specials=[END])
    vocab = {token: id for token, id in first.vocab.items() if token != END}
    again = BPETokenizer(vocab, first.merges, [(END, 0, True)])
    assert again.tokenizer == first.tokenizer
    digits = {"type": "Digits", "individual_digits": True}
    steps = {"type": "Sequence", "pretokenizers": [digits, first.pre_tokenizer]}
    other = BPETokenizer(vocab, first.merges, [(END, 0, False)], steps)
    assert other.tokenizer.pattern == "smollm"
    assert other.special_ids == {}
    assert other.added == {END: 0}
    with pytest.raises(ValueError, match="pre_tokenizer"):
        BPETokenizer(vocab, first.merges, [(END, 0, True)], {"type": "Whitespace"})


def alphabet():
    return {character: number for number, character in enumerate(sorted(BYTE_TO_CHARACTER.values()))}


def test_merges_apply_by_rank_and_of_equal_ranks_leftmost():
    vocab = {**alphabet(), "bc": 256, "ab": 257, "aa": 258}

    def tokens(text, *merges):
        tokenizer = BPETokenizer(vocab, merges)
        return [tokenizer.id_to_token(id) for id in tokenizer.encode(text)]

    assert tokens("abc", ("b", "c"), ("a", "b")) == ["a", "bc"]
    assert tokens("abc", ("a", "b"), ("b", "c")) == ["ab", "c"]
    assert tokens("aaa", ("a", "a")) == ["aa", "a"]
    assert tokens("aaaa", ("a", "a")) == ["aa", "aa"]


def test_ids_have_no_gaps():
    with pytest.raises(ValueError, match="no token has id 256"):
        BPETokenizer({**alphabet(), "xx": 300}, [("x", "x")])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"texts": ["ab"], "vocab_size": 256, "specials": ["<s>"]}, "vocab_size is 256"),
        ({"texts": ["ab"], "vocab_size": 300, "min_freq": 0}, "min_frequency is 0"),
        ({"texts": "ab", "vocab_size": 300}, "texts is one str"),
        ({"texts": [], "vocab_size": 300}, "nothing to train on"),
    ],
)
def test_bad_arguments(arguments, named):
    with pytest.raises(ValueError, match=named):
        BPETokenizer.train(**arguments)
    assert BPETokenizer.train(["ab"], vocab_size=256).merges == []


def test_a_batch_is_one_by_one():
    tokenizer = BPETokenizer.train(TEXTS, 300, specials=[END])
    texts = ["the cat", "", f"a{END}", "日本"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_save_and_load(tmp_path):
    tokenizer = BPETokenizer.train(TEXTS, 300, specials=[END])
    tokenizer.save(tmp_path)
    document = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    assert document["model"]["type"] == "BPE"
    assert document["pre_tokenizer"]["type"] == "ByteLevel"
    for back in (BPETokenizer.load(str(tmp_path)), BPETokenizer.load(tmp_path / "tokenizer.json")):
        assert back.merges == tokenizer.merges
        assert back.special_ids == tokenizer.special_ids
        assert back.encode(f"unseen 🙂{END}") == tokenizer.encode(f"unseen 🙂{END}")
    tokenizer.save(tmp_path / "other.json")
    assert BPETokenizer.load(tmp_path / "other.json").tokenizer == tokenizer.tokenizer


def test_an_edited_file_is_found(tmp_path):
    BPETokenizer.train(TEXTS, 300).save(tmp_path)
    document = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    document["model"]["merges"].reverse()
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="edited"):
        BPETokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("normalizer", {"type": "Nmt"}),
        ("model.dropout", 0.1),
        ("model.unk_token", "<unk>"),
        ("model.byte_fallback", True),
        ("post_processor", {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}),
        ("post_processor", {"type": "Sequence", "processors": [{"type": "TemplateProcessing"}]}),
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁"}),
        ("version", "2.0"),
    ],
)
def test_fields_outside_the_courses_subset_are_refused(tmp_path, path, value):
    BPETokenizer.train(TEXTS, 300).save(tmp_path)
    document = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    *way, last = path.split(".")
    place = document
    for key in way:
        place = place[key]
    place[last] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=last):
        BPETokenizer.from_hf_json(tmp_path / "tokenizer.json")


def test_a_view_of_any_byte_level_tokenizer(tmp_path):
    tokenizer = BPETokenizer.train(TEXTS, 300)
    assert BPETokenizer.from_tokenizer(tokenizer.tokenizer).merges == tokenizer.merges
    characters = Tokenizer.from_json('{"type": "character_bpe", "base_tokens": ["a"], "merges": []}')
    with pytest.raises(TokenizerError, match="character"):
        BPETokenizer.from_tokenizer(characters)


def test_ids_of_arrays_are_ids():
    tokenizer = BPETokenizer.train(TEXTS, 300)
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode(np.array(ids)) == "the cat"


# Cutting


def test_pieces():
    assert pretokenize_gpt2("I'm   here!!\n") == ["I", "'m", "  ", " here", "!!", "\n"]
    assert pretokenize_gpt2("don't 2024 café") == ["don", "'t", " 2024", " café"]
    assert pretokenize_gpt2("a\x1c\x1cb") == ["a", "\x1c\x1c", "b"]
    assert pretokenize_gpt2("IT'S") == ["IT", "'", "S"]
    assert pretokenize_gpt2("\tx") == ["\t", "x"]
    assert pretokenize_gpt2("a\u00a0b") == ["a", "\u00a0", "b"]
    assert pretokenize_gpt2(" ½²") == [" ½²"]
    assert pretokenize_gpt2("") == []


def test_digits_alone_and_in_runs():
    assert split_digits("ab 123x½") == ["ab ", "1", "2", "3", "x", "½"]
    assert split_digits("ab 123x½4", individual=False) == ["ab ", "123", "x", "½4"]
    assert split_digits("12 34", individual=False) == ["12", " ", "34"]
    assert split_digits("") == split_digits("", individual=False) == []
    assert split_digits("words") == ["words"]


@given(st.text("a1 ½٣\n", max_size=30), st.booleans())
def test_digit_pieces_join_back(text, individual):
    pieces = split_digits(text, individual)
    assert "".join(pieces) == text
    assert all(pieces)


def test_classes_are_unicodes_and_not_pythons():
    assert is_space(" ")
    assert is_space("\u00a0")
    assert is_space("\u3000")
    assert not is_space("\x1c")
    assert is_letter("é")
    assert not is_letter("\u0301")
    assert is_number("½")
    assert is_number("٣")
    assert not is_number("a")
