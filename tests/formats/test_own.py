"""Our own files: whole or an error, checked when they are read, and told from everything else by what is in them."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.errors import FormatError
from minigpt_tok.tokenizer import Tokenizer


@pytest.fixture(params=["byte", "character"])
def tokenizer(request, byte_tokenizer, character_tokenizer):
    return byte_tokenizer if request.param == "byte" else character_tokenizer


def test_what_is_saved_is_what_is_loaded(tokenizer, tmp_path):
    path = tmp_path / "folder that is not there" / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded == tokenizer
    assert loaded.model == tokenizer.model
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.special_tokens == tokenizer.special_tokens
    assert Tokenizer.from_json(tokenizer.to_json()).model == tokenizer.model
    assert path.read_text("utf-8") == tokenizer.to_json()
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.json"]


def test_the_training_record_comes_along(byte_tokenizer):
    assert Tokenizer.from_json(byte_tokenizer.to_json()).training == byte_tokenizer.training


def test_loading_twice_gives_the_same_bytes_again(tokenizer):
    text = tokenizer.to_json()
    assert Tokenizer.from_json(text).to_json() == text


def test_a_folder_is_searched_for_a_tokenizer(byte_tokenizer, tmp_path):
    byte_tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path) == byte_tokenizer
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="a folder without"):
        Tokenizer.load(tmp_path / "empty")


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Tokenizer.load(tmp_path / "none.json")


def test_hugging_face_loads_it_with_the_same_ids(make, tmp_path, hard_texts):
    tokenizers = pytest.importorskip("tokenizers")
    for recipe in ("hf", "cs336", "readable"):
        tokenizer = make(recipe)
        tokenizer.save(tmp_path / "tokenizer.json")
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert theirs.get_vocab_size() == tokenizer.vocab_size
        for text in hard_texts:
            ids = tokenizer.encode(text, allowed_special="all")
            assert theirs.encode(text, add_special_tokens=False).ids == ids
            if "<|é|>" not in text:  # which their decoder takes for bytes in printable characters
                assert theirs.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("pattern", ["gpt2", "digits1", "digits2", "llama3", "cl100k", "o200k", "smollm", "none"])
def test_hugging_face_cuts_by_every_pattern_as_we_do(make, pattern, hard_texts):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = make("hf", 400, pattern=pattern, min_frequency=1)
    theirs = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    for text in [*hard_texts, "a\n  ", "x  \n\n y\r\n", "12345 1234567", "HELLO'S World's/ \n/"]:
        assert theirs.encode(text).ids == tokenizer.encode(text, allowed_special="all")
    assert Tokenizer.from_json(tokenizer.to_json()).model == tokenizer.model


def test_no_fingerprint_is_no_error_and_another_one_is(tokenizer):
    document = json.loads(tokenizer.to_json())
    place = document if "base_tokens" in document else document["model"]["minigpt_tok"]
    del place["fingerprint"]
    assert Tokenizer.from_json(json.dumps(document)) == tokenizer
    place["fingerprint"] = "0" * 64
    with pytest.raises(FormatError, match=f"edited since it was saved.*0000.*{tokenizer.fingerprint}"):
        Tokenizer.from_json(json.dumps(document))


def test_an_edited_merge_is_found(byte_tokenizer, character_tokenizer):
    document = json.loads(byte_tokenizer.to_json())
    merges = document["model"]["merges"]
    merges[0], merges[1] = merges[1], merges[0]
    with pytest.raises(FormatError, match="edited"):
        Tokenizer.from_json(json.dumps(document))
    document = json.loads(character_tokenizer.to_json())
    document["merges"].pop()
    document["vocab_size"] -= 1
    with pytest.raises(FormatError, match="edited"):
        Tokenizer.from_json(json.dumps(document))


# Broken files: one FormatError each, or the same tokenizer


def outcome(text):
    """The fingerprint, or None for a FormatError of one message; anything else is a failure."""
    try:
        return Tokenizer.from_json(text).fingerprint
    except FormatError:
        return None


def test_a_file_that_is_cut_anywhere_is_refused(tokenizer):
    text = tokenizer.to_json()
    for length in {0, 1, 2, len(text) - 1, *random.Random(1).sample(range(len(text)), 150)}:
        assert outcome(text[:length]) is None


def test_a_file_with_a_changed_character_is_refused_or_means_the_same(tokenizer):
    text = tokenizer.to_json()
    chance = random.Random(2)
    changed = 0
    for _ in range(300):
        place = chance.randrange(len(text))
        other = text[:place] + chance.choice('x0"]}, \\é-9[{') + text[place + 1 :]
        found = outcome(other)
        assert found in (None, tokenizer.fingerprint)
        changed += found is None
    assert changed > 100


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_file_with_any_value_in_any_place_is_refused_or_means_the_same(character_tokenizer, byte_tokenizer, data):
    """Values of the wrong kind or size, put where another stood."""
    tokenizer = data.draw(st.sampled_from([character_tokenizer, byte_tokenizer]))
    document = json.loads(tokenizer.to_json())
    container, steps = document, 0
    while True:
        keys = sorted(container) if isinstance(container, dict) else range(len(container))
        key = data.draw(st.sampled_from(list(keys)))
        steps += 1
        inner = container[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 3)) == 0:
            break
        container = inner
    strange = [None, True, -1, 0, 1 << 70, 1.5, "", "x", "\ud800", [], {}, [[]], ["a"], {"a": {}}, [None], "ab", [1, 2]]
    container[key] = data.draw(st.sampled_from(strange))
    assert outcome(json.dumps(document)) in (None, tokenizer.fingerprint)


def without_fingerprint(tokenizer):
    document = json.loads(tokenizer.to_json())
    if "base_tokens" in document:
        del document["fingerprint"]
    else:
        del document["model"]["minigpt_tok"]
    return document


def refused(document, match):
    with pytest.raises(FormatError, match=match):
        Tokenizer.from_json(document if isinstance(document, str) else json.dumps(document))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "not JSON"),
        ("null", "no tokenizer"),
        ("[]", "no tokenizer"),
        ("{}", "no tokenizer"),
        ("3", "no tokenizer"),
        ('{"model": []}', "no tokenizer"),
        ('{"a": 1, "b": 2}', "a vocabulary without its merges"),
        ('{"type": "character_bpe"}', "has no 'base_tokens'"),
        ('{"type": "character_bpe", "type": "character_bpe"}', "'type' stands twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"model": ' * 50_000, "nested too deeply"),
        ('{"model": NaN}', "NaN"),
        ('{"model": {}, "version": ' + "9" * 5000 + "}", "has 5,000 digits"),
        ("\ufeff{}", "not JSON"),
    ],
)
def test_text_that_is_no_tokenizer_is_refused(text, match):
    refused(text, match)


def test_a_doubled_key_inside_the_vocabulary_is_refused(byte_tokenizer):
    text = json.dumps(without_fingerprint(byte_tokenizer), ensure_ascii=False)
    assert outcome(text) == byte_tokenizer.fingerprint
    refused(text.replace('"vocab": {', '"vocab": {"!": 2, ', 1), "'!' stands twice")


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda vocab: vocab.pop("the"), "no token has id"),
        (lambda vocab: vocab.update({"zz": 302}), "no token has id 299, but ids go up to 302"),
        (lambda vocab: vocab.update({"zz": 5}), "'zz' has id 5, which another token has too"),
        (lambda vocab: vocab.update({"zz": -1}), "id -1 is not a whole number from 0"),
        (lambda vocab: vocab.update({"zz": 1 << 40}), "not a whole number from 0"),
        (lambda vocab: vocab.update({"zz": True}), "not a whole number"),
        (lambda vocab: vocab.update({"zz": 1.0}), "not a whole number"),
        (lambda vocab: vocab.update({"zz": []}), "not a whole number"),
        (lambda vocab: vocab.update({"zz": "7"}), "not a whole number"),
        (lambda vocab: vocab.update({"zz": None}), "not a whole number"),
        (lambda vocab: vocab.update({"日": 300}), "stands for no byte"),
        (lambda vocab: vocab.update({"\ud800": 300}), "stands for no byte"),
        (lambda vocab: vocab.clear(), "no token has id|empty|not in the vocabulary"),
    ],
)
def test_ids_with_gaps_or_twice_or_out_of_bounds_are_refused(make, edit, match):
    tokenizer = make("hf", 300)
    assert "the" in json.loads(tokenizer.to_json())["model"]["vocab"]
    document = without_fingerprint(tokenizer)
    edit(document["model"]["vocab"])
    refused(document, match)


def test_something_else_is_called_by_its_name(tmp_path):
    for content, match in [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"PK\x03\x04rest", "checkpoint"),
        (b"\x08\x00\x00\x00\x00\x00\x00\x00{}", "weights"),
        (b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02", "SentencePiece"),
        (b"IQ== 0\nIg== 1\n", "from_tiktoken"),
        (b"hello", "not JSON"),
        (b'{"model": \xff}', "not UTF-8"),
    ]:
        path = tmp_path / "tokenizer.json"
        path.write_bytes(content)
        with pytest.raises(FormatError, match=match) as error:
            Tokenizer.load(path)
        assert str(path) in str(error.value)


def test_the_two_files_of_gpt2_are_found_by_one_of_them(byte_tokenizer, make, tmp_path):
    tokenizer = make("hf", 300, ("<|endoftext|>",))
    tokenizer.to_gpt2(tmp_path)
    assert Tokenizer.load(tmp_path / "vocab.json").encode("the cat") == tokenizer.encode("the cat")
    assert Tokenizer.load(tmp_path) == tokenizer
