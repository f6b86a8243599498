"""300 hard strings with the ids that `tokenizers` and `tiktoken` give for published vocabularies, and back."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from minigpt_tok.tokenizer import Tokenizer

END = "<|endoftext|>"
# name of the vectors → how the tokenizer is made from the published files; its ids are made with specials matched
# (Hugging Face's way) or without any.
RANKS = {
    "r50k": ("gpt2/r50k_base.tiktoken", "gpt2"),
    "cl100k": ("cl100k_base.tiktoken", "cl100k"),
    "o200k": ("o200k_base.tiktoken", "o200k"),
    "llama3_ranks": ("llama3/tokenizer.model", "llama3"),
    "qwen_ranks": ("qwen/qwen.tiktoken", "digits1"),
}
JSONS = {
    "gpt2": "gpt2/tokenizer.json",
    "smollm2": "smollm2/tokenizer.json",
    "llama3": "llama3/tokenizer.json",
    "qwen3": "qwen/qwen3_tokenizer.json",
}


ONCE = pytest.mark.parametrize("engine", ["python"], indirect=True)  # for what never reaches the core


@cache
def read(folder: Path, name: str) -> Tokenizer:
    if name in RANKS:
        file, pattern = RANKS[name]
        return Tokenizer.from_tiktoken(folder / "tokenizers" / file, pattern=pattern)
    return Tokenizer.from_hf_json(folder / "tokenizers" / JSONS[name])


def load(folder: Path, name: str) -> Tokenizer:
    """A tokenizer that has not encoded yet, so that it does by the engine under test."""
    return Tokenizer(read(folder, name).model)


@cache
def cases(folder: Path, name: str) -> list[dict]:
    document = json.loads((folder / "vectors" / f"{name}.json").read_text("utf-8"))
    assert ("no special tokens" in document["note"]) == (name in RANKS)
    assert len(document["cases"]) == 300
    return document["cases"]


@pytest.fixture(params=[*RANKS, *JSONS])
def name(request):
    return request.param


def allowed(name):
    return () if name in RANKS else "all"


def test_ids(shared, name):
    tokenizer = load(shared, name)
    for case in cases(shared, name):
        assert tokenizer.encode(case["text"], allowed_special=allowed(name)) == case["ids"], case["text"]


def test_ids_as_a_batch_and_as_a_stream(shared, name):
    tokenizer = load(shared, name)
    texts = [case["text"] for case in cases(shared, name)]
    expected = [case["ids"] for case in cases(shared, name)]
    assert tokenizer.encode_batch(texts, allowed_special=allowed(name)) == expected
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, allowed_special=allowed(name))
    assert ids.tolist() == [id for case in expected for id in case]
    assert offsets.tolist() == [sum(map(len, expected[:n])) for n in range(301)]
    raws = [text.encode() if number % 3 else text for number, text in enumerate(texts)]
    ids, offsets = tokenizer.encode_batch_to_numpy(raws, allowed_special=allowed(name), separator_id=7)
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == [[*case, 7] for case in expected]
    joined = tokenizer.encode("".join(texts), allowed_special=allowed(name))
    assert list(tokenizer.encode_iter(texts, allowed_special=allowed(name))) == joined


def test_decoded_text(shared, name):
    tokenizer = load(shared, name)
    for case in cases(shared, name):
        decoded = case["text"] if case["decoded"] is None else case["decoded"]
        assert tokenizer.decode(case["ids"]) == decoded


def test_gpt2s_two_files(shared):
    folder = shared / "tokenizers" / "gpt2"
    tokenizer = Tokenizer.from_gpt2(folder / "encoder.json", folder / "vocab.bpe")
    assert tokenizer.special_tokens == {END: 50256}
    for case in cases(shared, "gpt2"):
        assert tokenizer.encode(case["text"], allowed_special="all") == case["ids"]
    assert tokenizer.encode(f"a{END}", allowed_special="all") == [64, 50256]


@ONCE
def test_gpt2_in_three_forms_has_one_fingerprint(shared):
    folder = shared / "tokenizers" / "gpt2"
    forms = [
        Tokenizer.from_gpt2(folder / "encoder.json", folder / "vocab.bpe"),
        load(shared, "gpt2"),
        Tokenizer.from_tiktoken(folder / "r50k_base.tiktoken", pattern="gpt2", special_tokens={END: 50256}),
    ]
    assert len({form.fingerprint for form in forms}) == 1
    assert load(shared, "r50k").fingerprint != forms[0].fingerprint


@ONCE
def test_llama_3_in_two_forms_has_one_fingerprint(shared):
    as_json = load(shared, "llama3")
    folder = shared / "tokenizers" / "llama3"
    as_ranks = Tokenizer.from_tiktoken(
        folder / "tokenizer.model", pattern="llama3", special_tokens=as_json.special_tokens
    )
    assert len(as_json.model.merges) == 280_147
    assert as_json.vocab_size == as_ranks.vocab_size == 128_256
    assert as_json.fingerprint == as_ranks.fingerprint


@ONCE
@pytest.mark.slow
def test_llama_3_is_written_in_either_form_as_it_was_published(shared, tmp_path):
    as_json = load(shared, "llama3")
    assert load(shared, "llama3_ranks").merges == as_json.merges
    as_json.to_tiktoken(tmp_path / "ranks")
    published = (shared / "tokenizers" / "llama3" / "tokenizer.model").read_text("utf-8")
    assert (tmp_path / "ranks").read_text("utf-8") == published


def test_smollm2_has_17_added_tokens_and_lacks_21_bytes(shared):
    tokenizer = load(shared, "smollm2")
    assert tokenizer.vocab_size == 49_152
    assert len(tokenizer.special_tokens) == 17
    missing = [byte for byte in range(256) if bytes([byte]) not in tokenizer.model.base_ids]
    assert bytes(missing).hex(" ") == "04 06 13 14 16 1d c0 c1 f1 f2 f5 f6 f7 f8 f9 fa fb fc fd fe ff"
    assert tokenizer.tokens("a\x04b") == ["a", "b"]
    assert tokenizer.decode(tokenizer.encode("a\x04b")) == "ab"
    assert tokenizer.encode("<|im_start|>user", allowed_special="all")[0] == 1
    assert 1 not in tokenizer.encode("<|im", allowed_special="all")
    assert tokenizer.tokens("2024") == ["2", "0", "2", "4"]


@ONCE
def test_qwen_3_is_qwens_ranks_with_a_normalizer_and_more_tokens(shared):
    tokenizer = load(shared, "qwen3")
    assert (tokenizer.pattern, tokenizer.encode("e\u0301")) == ("digits1", tokenizer.encode("é"))
    assert tokenizer.fingerprint == Tokenizer.from_json(tokenizer.to_json()).fingerprint


@ONCE
def test_written_again_it_gives_the_same_ids(shared):
    tokenizer = load(shared, "smollm2")
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again == tokenizer
    for case in cases(shared, "smollm2")[::10]:
        assert again.encode(case["text"], allowed_special="all") == case["ids"]


@ONCE
def test_gpt2s_files_are_written_as_they_were_published(shared, tmp_path):
    folder = shared / "tokenizers" / "gpt2"
    load(shared, "gpt2").to_gpt2(tmp_path)
    assert json.loads((tmp_path / "vocab.json").read_text("utf-8")) == json.loads(
        (folder / "encoder.json").read_text("utf-8")
    )
    assert (tmp_path / "merges.txt").read_text("utf-8") == (folder / "vocab.bpe").read_text("utf-8")
    load(shared, "gpt2").to_tiktoken(tmp_path / "ranks")
    assert (tmp_path / "ranks").read_text("utf-8") == (folder / "r50k_base.tiktoken").read_text("utf-8")


def test_offsets_are_those_of_hugging_face(shared):
    tokenizers = pytest.importorskip("tokenizers")
    for name in ("gpt2", "smollm2"):
        ours = load(shared, name)
        theirs = tokenizers.Tokenizer.from_file(str(shared / "tokenizers" / JSONS[name]))
        theirs.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
        for case in cases(shared, name):
            ids, spans = ours.encode_with_offsets(case["text"], allowed_special="all")
            assert ids == case["ids"]
            if name == "gpt2":
                assert spans == theirs.encode(case["text"]).offsets, case["text"]
