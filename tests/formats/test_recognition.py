"""What a file is, found out from what is in it; what it is not, called by its name."""

import base64
import gzip
import io
import json
import pickle
import tarfile
import zipfile

import pytest

from minigpt_tok.bpe.model import ALL_BYTES
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.formats import cs336
from minigpt_tok.formats.recognition import partner_for_merges
from minigpt_tok.tokenizer import Tokenizer


def zipped(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


def tarred():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("tokenizer.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
    return buffer.getvalue()


def piece(text, score=b"\x00\x00\x00\x00", kind=b"\x18\x02"):
    inner = b"\n" + bytes([len(text)]) + text + b"\x15" + score + kind
    return b"\n" + bytes([len(inner)]) + inner


FOREIGN = {
    "empty": (b"", "empty"),
    "blank": (b" \n\n", "empty"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    "html": (b"\n<!DOCTYPE html><html>", "HTML"),
    "gzip": (gzip.compress(b"{}"), "gzip archive: unpack"),
    "tar": (tarred(), "tar archive: unpack"),
    "zip": (zipped(tokenizer__json="{}"), "zip archive: unpack"),
    "torch": (zipped(**{"model/data__pkl": b"\x80\x02}."}), "checkpoint of PyTorch"),
    "cut zip": (zipped(a="b")[:-10], "cut short"),
    "safetensors": (b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ", "safetensors file"),
    "gguf": (b"GGUF\x03\x00\x00\x00", "GGUF"),
    "pickle": (pickle.dumps({"weight": 1.5}), "a pickle"),
    "old torch": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a pickle"),
    "sentencepiece": (piece(b"<unk>") + piece(b"<s>"), "SentencePiece"),
    "sentencepiece of another trainer": (piece(b"<pad>", kind=b"\x18\x03") + piece(b"a"), "SentencePiece"),
    "wordpiece": (b"[PAD]\n[unused0]\n[UNK]\n[CLS]\nthe\n##s\n", "WordPiece"),
    "utf-16": ("{}".encode("utf-16"), "UTF-16"),
    "utf-16, the other end first": (b"\xfe\xff\x00{\x00}", "UTF-16"),
    "utf-32": ("{}".encode("utf-32"), "UTF-32"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "binary": (bytes(range(1, 32)) + b"\x00rest", "binary"),
    "text": (b"hello world, this is text", "not JSON"),
    "unigram": (json.dumps({"model": {"type": "Unigram", "vocab": [["<unk>", 0.0]]}}).encode(), "'Unigram'"),
    "unigram of an old version": (json.dumps({"model": {"vocab": [["<unk>", 0.0]]}}).encode(), "'Unigram'"),
    "word level": (json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0}}}).encode(), "'WordLevel'"),
    "settings": (json.dumps({"tokenizer_class": "GPT2Tokenizer"}).encode(), "tokenizer_config.json"),
    "special tokens": (json.dumps({"bos_token": "<s>"}).encode(), "special_tokens_map.json"),
    "model's settings": (json.dumps({"model_type": "gpt2"}).encode(), "config.json"),
    "index": (json.dumps({"metadata": {}, "weight_map": {}}).encode(), "index of a model's weights"),
    "answer": (b'{"error":"Repository not found"}', "Repository not found"),
    "vocabulary": (b'{"a": 0, "b": 1}', "vocabulary without its merges"),
    "merges": (b"#version: 0.2\na b\n", "merges without their vocabulary"),
    "ranks": (b"IQ== 0\nIg== 1\n", "does not name its pattern.*Name the pattern.*from_tiktoken"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_tokenizer_is_called_by_its_name(tmp_path, name):
    content, named = FOREIGN[name]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=named) as error:
        Tokenizer.load(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.fixture
def tokenizer(make):
    return make("hf", 300, ("<|endoftext|>",))


# Forms of two files


@pytest.mark.parametrize(
    ("vocab", "merges"),
    [
        ("vocab.json", "merges.txt"),
        ("encoder.json", "vocab.bpe"),
        ("encoder.json", "merges.txt"),
        ("gpt2_vocab.json", "gpt2_merges.txt"),
        ("train-bpe-reference-vocab.json", "train-bpe-reference-merges.txt"),
        ("vocab.pkl", "merges.pkl"),
        ("ts_vocab.pickle", "ts_merges.pickle"),
        ("own.json", "merges.txt"),
    ],
)
def test_either_of_two_files_finds_the_other(tokenizer, tmp_path, vocab, merges):
    cs336.save_model(tmp_path / vocab, tmp_path / merges, tokenizer.model)
    if vocab != "own.json":
        assert Tokenizer.load(tmp_path / merges) == tokenizer
    assert Tokenizer.load(tmp_path / vocab) == tokenizer
    if vocab in ("vocab.json", "encoder.json", "vocab.pkl", "ts_vocab.pickle"):
        assert Tokenizer.load(tmp_path) == tokenizer


@pytest.mark.parametrize("name", ["vocab.json", "encoder.json", "x_vocab.json", "vocab.pkl", "mine.pkl", "mine.json"])
def test_merges_are_written_where_they_are_found(tokenizer, tmp_path, name):
    path = tmp_path / name
    cs336.save_model(path, partner_for_merges(path), tokenizer.model)
    assert len(list(tmp_path.iterdir())) == 2
    assert Tokenizer.load(path) == tokenizer


def test_what_the_two_files_do_not_name_is_named_beside_them(make, tmp_path):
    tokenizer = make("cs336", 300, ("<|endoftext|>", "<pad>"))
    vocab, merges = tokenizer.to_vocab_and_merges()
    cs336.save(tmp_path / "vocab.json", tmp_path / "merges.txt", vocab, merges)
    assert Tokenizer.load(tmp_path).special_tokens == {"<|endoftext|>": 256}
    assert Tokenizer.load(tmp_path, special_tokens={"<pad>": 257}) == tokenizer
    assert Tokenizer.load(tmp_path, special_tokens={"<pad>": None}) == tokenizer
    assert (
        Tokenizer.load(tmp_path, special_tokens={"<pad>": None, "<s>": None}).special_tokens["<s>"]
        == tokenizer.vocab_size
    )
    assert Tokenizer.load(tmp_path, pattern="digits1").pattern == "digits1"
    with pytest.raises(TokenizerError, match="'<pad>' has the id 257 there, not 5"):
        Tokenizer.load(tmp_path, special_tokens={"<pad>": 5})


def test_a_form_that_names_its_own_refuses_to_be_told(byte_tokenizer, tmp_path):
    byte_tokenizer.save(tmp_path / "tokenizer.json")
    with pytest.raises(TokenizerError, match="names its own pattern"):
        Tokenizer.load(tmp_path, pattern="gpt2")
    with pytest.raises(TokenizerError, match="names its own special tokens"):
        Tokenizer.load(tmp_path, special_tokens={"<s>": 1})


# Ranks


def write_ranks(path, tokens):
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))


def test_unknown_ranks_are_read_with_what_is_named(tmp_path):
    path = tmp_path / "own.tiktoken"
    write_ranks(path, [*ALL_BYTES, b"ab"])
    tokenizer = Tokenizer.load(path, pattern="cl100k", special_tokens={"<s>": 257})
    assert tokenizer.pattern == "cl100k"
    assert tokenizer.encode("ab<s>", allowed_special="all") == [256, 257]
    with pytest.raises(TokenizerError, match="give '<s>' with its id"):
        Tokenizer.load(path, pattern="cl100k", special_tokens={"<s>": None})
    with pytest.raises(TokenizerError, match="but not the pattern"):
        Tokenizer.load(path, special_tokens={"<s>": 257})


def test_published_ranks_are_known(shared, tmp_path):
    ranks = (shared / "tokenizers" / "gpt2" / "r50k_base.tiktoken").read_bytes()
    (tmp_path / "any name").write_bytes(ranks.replace(b"\n", b"\r\n"))
    gpt2 = Tokenizer.load(shared / "tokenizers" / "gpt2")
    assert Tokenizer.load(tmp_path / "any name") == gpt2
    assert Tokenizer.load(tmp_path / "any name", pattern="gpt2") != gpt2  # as named, without special tokens
    lines = ranks.split(b"\n")
    lines[300], lines[301] = lines[300].replace(b"300", b"301"), lines[301].replace(b"301", b"300")
    (tmp_path / "changed").write_bytes(b"\n".join(lines))
    with pytest.raises(FormatError, match="no published one that is known here"):
        Tokenizer.load(tmp_path / "changed")


# Folders


def test_a_folder_with_several_tokenizers_says_which(tmp_path, character_tokenizer):
    write_ranks(tmp_path / "a.tiktoken", ALL_BYTES)
    write_ranks(tmp_path / "b.tiktoken", ALL_BYTES)
    with pytest.raises(FormatError, match=r"2 files that may be the tokenizer; name one of a\.tiktoken, b\.tiktoken"):
        Tokenizer.load(tmp_path)
    character_tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path) == character_tokenizer


def test_a_folder_with_one_file_that_is_none_says_why(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(FormatError, match=r"a folder without tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(piece(b"<unk>") + piece(b"<s>"))
    with pytest.raises(FormatError, match="SentencePiece"):
        Tokenizer.load(tmp_path)


def test_a_character_tokenizer_is_found_by_its_content(tmp_path, character_tokenizer):
    character_tokenizer.save(tmp_path / "bpe.json")
    (tmp_path / "README.md").write_text("words")
    assert Tokenizer.load(tmp_path) == character_tokenizer
