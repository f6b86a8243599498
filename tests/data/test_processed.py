import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.data.processed import MANIFEST, write_processed
from minigpt_tok.errors import CorpusError, FormatError

EOT = "<|endoftext|>"
hard_text = st.lists(st.sampled_from([EOT, "\n", "\\", "\r\n", "\r", "a", " ", "é", "\ufeff"]), max_size=12).map(
    "".join
)


@pytest.fixture
def no_flushing(monkeypatch):
    """Waiting for the disk has nothing to do with what is written, and takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(documents=st.lists(hard_text, min_size=1, max_size=6))
def test_what_is_written_reads_back_to_the_same_documents(tmp_path, no_flushing, documents):
    kept = [text for text in documents if text]
    if not kept:
        return
    written = write_processed(open_corpus({"train": documents, "test": kept}, name="hard"), tmp_path)
    again = open_corpus(written.folder)
    assert again.name == "hard"
    assert list(again.splits["train"]) == list(again.splits["test"]) == kept
    assert written.splits["train"].documents == len(kept)
    assert written.splits["train"].n_bytes == sum(len(text.encode()) for text in kept)
    assert written.cleaning["empty_documents"] == len(documents) - len(kept)


def test_a_line_that_reads_like_the_separator_is_escaped_and_counted(tmp_path, caplog):
    written = write_processed(open_corpus([f"a\n{EOT}\nb", f"says {EOT}", f"\\{EOT}"], name="c"), tmp_path)
    assert written.splits["train"].escaped_documents == 2
    assert "2 documents with a line" in caplog.text
    assert (written.folder / "train.txt").read_text() == f"a\n\\{EOT}\nb\n{EOT}\nsays {EOT}\n{EOT}\n\\\\{EOT}"


def test_cleaning_is_counted_and_the_files_read_without_the_manifest_too(tmp_path):
    source = tmp_path / "stories.txt"
    source.write_bytes(f"one\n{EOT}\n\n{EOT}\ntw\xff".encode("latin-1") + f"o\n{EOT}\nthree\n{EOT}\n".encode())
    corpus = open_corpus(source, errors="replace", fractions={"train": 1.0})
    written = write_processed(corpus, tmp_path / "processed")
    assert written.cleaning == {
        "empty_documents": 1, "separators": 4, "separator_bytes": 4 * (len(EOT) + 2) - 0, "undecodable": 1, "byte_order_marks": 0,
    }  # fmt: skip
    (written.folder / MANIFEST).unlink()
    assert list(open_corpus(written.folder / "train.txt").documents) == ["one", "tw\ufffdo", "three"]


def test_a_corpus_divided_by_hash_keeps_its_splits(tmp_path):
    corpus = open_corpus((f"text {n}" for n in range(200)), name="t", fractions={"train": 0.7, "validation": 0.3})
    folder = write_processed(corpus, tmp_path).folder
    again = open_corpus(folder)
    assert {s: list(d) for s, d in again.splits.items()} == {s: list(d) for s, d in corpus.splits.items()}
    assert json.loads((folder / MANIFEST).read_text())["splits"]["train"]["documents"] > 100


def test_files_that_were_not_written_here_are_left_alone(tmp_path):
    published = tmp_path / "corpora" / "mine"
    published.mkdir(parents=True)
    (published / "train.txt").write_text("precious")
    with pytest.raises(CorpusError, match="were not written here"):
        write_processed(open_corpus(published), tmp_path / "corpora")
    assert (published / "train.txt").read_text() == "precious"


def test_a_corpus_written_again_replaces_the_old_one_whole(tmp_path):
    write_processed(open_corpus({"train": ["a"], "test": ["b"]}, name="c"), tmp_path)
    folder = write_processed(open_corpus({"train": ["new"]}, name="c"), tmp_path).folder
    assert {s: list(d) for s, d in open_corpus(folder).splits.items()} == {"train": ["new"]}
    assert not (folder / "test.txt").exists()


def test_a_writing_that_is_cut_short_cannot_be_taken_for_a_corpus(tmp_path):
    def texts():
        yield "a"
        raise OSError(28, "No space left on device")

    folder = write_processed(open_corpus(["old"], name="c"), tmp_path).folder
    with pytest.raises(CorpusError, match=r"c: could not be written \(No space left on device\)"):
        write_processed(open_corpus(texts(), name="c"), tmp_path)
    with pytest.raises(FormatError, match="cut short"):
        open_corpus(folder)
    assert list(open_corpus(write_processed(open_corpus(["b"], name="c"), tmp_path).folder).documents) == ["b"]


def test_a_manifest_of_something_else_or_a_damaged_one(tmp_path):
    (tmp_path / "train.txt").write_text("a")
    (tmp_path / MANIFEST).write_text('{"format": "another program"}')
    assert list(open_corpus(tmp_path).documents) == ["a"]
    (tmp_path / MANIFEST).write_text('{"format": "minigpt-tok corpus", "format_version": 1, "splits": {"train": 1}}')
    with pytest.raises(FormatError, match="damaged"):
        open_corpus(tmp_path)
    (tmp_path / MANIFEST).write_text('{"format": "minigpt-tok corpus", "format_version": 2}')
    with pytest.raises(FormatError, match="format version 2"):
        open_corpus(tmp_path)


def test_nothing_to_write(tmp_path):
    with pytest.raises(CorpusError, match="no documents"):
        write_processed(open_corpus([""], name="c"), tmp_path)


def test_wikitext_2_through_the_files(shared, tmp_path):
    corpus = open_corpus(shared / "corpora" / "wikitext-2")
    written = write_processed(corpus, tmp_path)
    assert written.splits["train"].n_bytes == (shared / "corpora" / "wikitext-2" / "train.txt").stat().st_size
    assert list(open_corpus(written.folder).splits["validation"]) == list(corpus.splits["validation"])
