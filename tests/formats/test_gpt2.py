"""GPT-2's two files."""

import json

import pytest

from minigpt_tok.errors import FormatError
from minigpt_tok.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(make):
    return make("hf", 300, ("<|endoftext|>",))


@pytest.fixture
def folder(tokenizer, tmp_path):
    tokenizer.to_gpt2(tmp_path)
    return tmp_path


def load(folder):
    return Tokenizer.from_gpt2(folder / "vocab.json", folder / "merges.txt")


def test_what_is_written_is_what_is_read(folder, tokenizer):
    assert load(folder) == tokenizer
    assert load(folder).special_tokens == {"<|endoftext|>": 0}


def test_files_are_utf8_with_plain_newlines_and_a_version(folder, tokenizer):
    merges = (folder / "merges.txt").read_bytes()
    assert merges.startswith(b"#version: 0.2\n")
    assert b"\r" not in merges
    assert merges.endswith(b"\n")
    assert "Ġ" in json.loads((folder / "vocab.json").read_text("utf-8"))
    assert "Ġ".encode() in (folder / "vocab.json").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.removeprefix("#version: 0.2\n"),
        lambda text: text.removesuffix("\n"),
        lambda text: text + "\n\n",
        lambda text: text.replace("\n", "\r\n"),
    ],
)
def test_the_version_line_and_the_last_newline_are_optional(folder, tokenizer, change):
    text = (folder / "merges.txt").read_text("utf-8")
    (folder / "merges.txt").write_bytes(change(text).encode())
    assert load(folder) == tokenizer


def test_hugging_face_reads_them_with_the_same_ids(folder, tokenizer, hard_texts):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    theirs = tokenizers.Tokenizer(model)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in hard_texts:
        assert theirs.encode(text).ids == tokenizer.encode(text)


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("vocab.json", "[]", "not an object"),
        ("vocab.json", "{", "not JSON"),
        ("vocab.json", '{"<|endoftext|>": "0"}', "the id of '<|endoftext|>' is '0'"),
        ("vocab.json", '{"<|endoftext|>": true}', "the id of '<|endoftext|>' is True"),
        ("vocab.json", '{"a": 0, "b": 2}', "no token has id 1"),
        ("vocab.json", '{"a": 0, "a": 1}', "'a' stands twice"),
        ("vocab.json", '{"a": 0, "b": 0}', "'b' has id 0, which another token has too"),
        ("vocab.json", '{"a b": 0}', "stands for no byte"),
        ("merges.txt", "a\n", "merge 1 is 'a', not two tokens"),
        ("merges.txt", "t h\na b c\n", "merge 2 is 'a b c'"),
        ("merges.txt", "t h\n\na b c\n", "merge 2 is 'a b c'"),
        ("merges.txt", "q q\n", "'qq' is not in the vocabulary"),
        ("merges.txt", "日 a\n", "stands for no byte"),
        ("merges.txt", b"\xff\xfe", "not UTF-8 at byte 0"),
    ],
)
def test_broken_files_are_refused_by_their_name(folder, file, content, named):
    (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FormatError, match=named.replace("|", r"\|")) as error:
        load(folder)
    assert file in str(error.value)


def test_what_the_two_files_cannot_hold_is_not_written(make, tmp_path):
    for tokenizer, named in [
        (make("readable", 300, ()), "the pattern 'digits1'"),
        (make("character", 60, ()), "characters"),
        (make("hf", 300, ("<|endoftext|>", "<s>")), "'<s>'"),
    ]:
        with pytest.raises(FormatError, match=named):
            tokenizer.to_gpt2(tmp_path)
    assert list(tmp_path.iterdir()) == []
