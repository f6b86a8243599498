import gzip
import os
from pathlib import Path

import pytest

from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.data.source_file import SourceFile
from minigpt_tok.data.text_files import is_one_document
from minigpt_tok.errors import CorpusError

zstandard = pytest.importorskip("zstandard")

TEXT = "".join(f"article {n}, naïve {n * n}\n" for n in range(50_000))


def packed(path: Path, raw: bytes) -> Path:
    """Two members or frames, as `cat a.gz b.gz` makes them."""
    pack = gzip.compress if path.suffix == ".gz" else zstandard.ZstdCompressor().compress
    half = len(raw) // 2
    path.write_bytes(pack(raw[:half]) + pack(raw[half:]))
    return path


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst", "A.TXT.GZ"])
def test_what_is_packed_reads_as_what_is_in_it(tmp_path, name):
    path = packed(tmp_path / name.lower(), TEXT.encode()).rename(tmp_path / name)
    source = SourceFile(path)
    assert (source.kind, source.stem.lower(), source.size_bytes) == (".txt", "a", None)
    with source.open() as file:
        assert file.read() == TEXT.encode()
    with source.open_to_jump() as file:
        file.seek(-7, os.SEEK_END)
        assert file.read() == TEXT.encode()[-7:]
    assert list(open_corpus(path).documents) == [TEXT]
    assert not is_one_document(path, "auto")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_separators_and_articles_in_what_is_packed(tmp_path, suffix):
    texts = [f"story {n}\n" * 3000 for n in range(20)]
    path = packed(tmp_path / f"stories.txt{suffix}", "<|endoftext|>\n".join(texts).encode())
    assert len(list(open_corpus(path).documents)) == 20
    articles = "".join(f" = Title {n} = \n \n some text \n \n" for n in range(30))
    path = packed(tmp_path / f"wiki.train.raw{suffix}", articles.encode())
    assert len(list(open_corpus(path).documents)) == 30


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_damaged_archive_is_an_error_and_not_a_short_text(tmp_path, suffix):
    path = packed(tmp_path / f"a.txt{suffix}", TEXT.encode())
    raw = path.read_bytes()
    for damaged in (raw[:-20], raw[: len(raw) // 3], b"not packed at all", raw + b"rubbish"):
        path.write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"a\.txt.* damaged or cut short"):
            list(open_corpus(path).documents)


def test_a_file_that_changes_or_vanishes_is_said(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n<|endoftext|>\ntwo\n")
    corpus = open_corpus(path)
    assert len(list(corpus.documents)) == 2
    with path.open("a") as file:
        file.write("more")
    with pytest.raises(CorpusError, match=r"a\.txt: changed while it was in use \(22 bytes at first, 26 now\)"):
        list(corpus.documents)
    assert len(list(open_corpus(path).documents)) == 2
    corpus = open_corpus(path)
    reading = iter(corpus.documents)
    next(reading)
    path.unlink()
    with pytest.raises(CorpusError, match="vanished while it was read"):
        list(reading)
    with pytest.raises(CorpusError, match="no such file"):
        list(corpus.documents)


def test_an_encoding_of_a_file_that_changes_leaves_nothing_under_the_final_name(tmp_path, tokenizer):
    from minigpt_tok.data.encode import encode_corpus

    path = tmp_path / "a.txt"
    path.write_text("one\n<|endoftext|>\ntwo\n")
    corpus = open_corpus(path, fractions={"train": 1.0})
    list(corpus.documents)
    os.utime(path, (1, 1))
    with pytest.raises(CorpusError, match="changed while"):
        encode_corpus(corpus, tokenizer, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
