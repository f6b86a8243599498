import logging
import sys
import tracemalloc
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pytest

from minigpt_tok.data.corpora import Corpus, open_corpus, open_inputs
from minigpt_tok.errors import CorpusError


def texts(corpus: Corpus) -> dict[str, list[str]]:
    return {split: list(documents) for split, documents in corpus.splits.items()}


def put(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8", newline="")
    return folder


# Splits of its own


@pytest.mark.parametrize("validation", ["validation", "val", "valid", "dev"])
def test_a_folder_named_like_splits(tmp_path, validation):
    folder = put(tmp_path / "corpus", train__txt="a", test__txt="c", **{f"{validation}__txt": "b"})
    corpus = open_corpus(folder)
    assert corpus.name == "corpus"
    assert corpus.has_own_splits
    assert texts(corpus) == {"train": ["a"], "validation": ["b"], "test": ["c"]}
    assert list(corpus.documents) == ["a", "b", "c"]
    assert corpus.size_bytes == 3


def test_published_names_of_wikitext_and_tinystories(tmp_path):
    folder = put(
        tmp_path / "w", wiki__train__tokens=" = A = \n \n x \n", wiki__valid__tokens="b", wiki__test__tokens="c"
    )
    assert list(open_corpus(folder).splits) == ["train", "validation", "test"]
    folder = put(
        tmp_path / "t", **{"TinyStoriesV2-GPT4-train__txt": "a\n<|endoftext|>\nb", "TinyStoriesV2-GPT4-valid__txt": "c"}
    )
    assert texts(open_corpus(folder)) == {"train": ["a", "b"], "validation": ["c"]}


def test_wikitext_2_from_its_folder(shared):
    corpus = open_corpus(str(shared / "corpora" / "wikitext-2"))
    assert corpus.name == "wikitext-2"
    assert {split: sum(1 for _ in documents) for split, documents in corpus.splits.items()} == {
        "train": 600, "validation": 60, "test": 60,
    }  # fmt: skip
    assert corpus.splits["test"].counts.n_bytes == (shared / "corpora" / "wikitext-2" / "test.txt").stat().st_size


def test_two_files_for_one_split_are_refused(tmp_path):
    folder = put(tmp_path / "c", train__txt="a", val__txt="b", valid__txt="c")
    with pytest.raises(CorpusError, match=r"val\.txt and .*valid\.txt both look like the split validation"):
        open_corpus(folder)


def test_a_list_of_the_split_files_keeps_the_splits_apart(tmp_path):
    folder = put(tmp_path / "c", train__txt="a", valid__txt="b", test__txt="c")
    assert texts(open_corpus(sorted(folder.glob("*.txt")))) == {"train": ["a"], "validation": ["b"], "test": ["c"]}
    assert texts(open_corpus(str(folder / "*.txt"))) == {"train": ["a"], "validation": ["b"], "test": ["c"]}


def test_a_mapping_says_which_is_which(tmp_path):
    folder = put(tmp_path / "c", one__txt="a", two__txt="b")
    corpus = open_corpus({"train": folder / "one.txt", "dev": [folder / "two.txt"], "test": ["x", "y"]}, name="mine")
    assert corpus.name == "mine"
    assert texts(corpus) == {"train": ["a"], "validation": ["b"], "test": ["x", "y"]}
    with pytest.raises(CorpusError, match="needs the split 'train'"):
        open_corpus({"test": ["x"]})
    with pytest.raises(CorpusError, match="no split"):
        open_corpus({"train": ["x"], "other": ["y"]})


# Splits by hash


def many(tmp_path: Path, n: int = 300) -> Path:
    return put(tmp_path / "many", **{f"{i:03}__txt": f"document {i % 200}\n" for i in range(n)})


def test_files_without_splits_are_divided_by_document_and_copies_stay_together(tmp_path):
    corpus = open_corpus(many(tmp_path))
    assert not corpus.has_own_splits
    divided = texts(corpus)
    assert list(divided) == ["train", "validation", "test"]
    assert sorted(chain.from_iterable(divided.values())) == sorted(corpus.documents)
    assert all(divided.values())
    assert not set(divided["train"]) & set(divided["validation"]) | set(divided["train"]) & set(divided["test"])
    assert texts(open_corpus(many(tmp_path), salt="other")) != divided
    assert list(texts(open_corpus(many(tmp_path), fractions={"train": 0.5, "test": 0.5}))) == ["train", "test"]


def test_one_document_is_all_train(tmp_path):
    path = put(tmp_path, book__txt="one book\n\n\nof two chapters") / "book.txt"
    corpus = open_corpus(path)
    assert corpus.name == "book"
    assert texts(corpus) == {"train": ["one book\n\n\nof two chapters"]}
    assert sorted(open_corpus(path, separator="\n\n\n").documents) == ["of two chapters", "one book"]


def test_folders_are_searched_in_order_of_their_paths_and_other_files_left_out(tmp_path, caplog):
    put(tmp_path / "c" / "b", x__txt="3")
    put(tmp_path / "c" / "a", x__txt="1", y__txt="2", data__bin="\0")
    with caplog.at_level(logging.INFO):
        assert list(open_corpus(tmp_path / "c").documents) == ["1", "2", "3"]
    assert "left out: 1 file of none of the kinds .txt, .jsonl, .ndjson, .parquet, .arrow" in caplog.text


# Texts and data sets at hand


def test_texts_are_all_train_and_can_be_read_again():
    for source in (["hug", "pug"], ("hug", "pug"), iter(["hug", "pug"]), (t for t in ["hug", "", "pug"])):
        corpus = open_corpus(source)
        assert texts(corpus) == {"train": ["hug", "pug"]}
        assert list(corpus.documents) == list(corpus.documents) == ["hug", "pug"]
    assert corpus.documents.counts.empty_documents == 1


def test_texts_are_divided_where_shares_are_given():
    corpus = open_corpus((f"text {n}" for n in range(300)), fractions={"train": 0.8, "validation": 0.2})
    divided = texts(corpus)
    assert len(divided["train"]) + len(divided["validation"]) == 300
    assert 30 < len(divided["validation"]) < 90


def test_iterators_are_read_once_and_hold_any_text():
    seen = []

    def generate():
        for text in ("\ufeffa\r\n", "日本 🏽", "x" * 100_000):
            seen.append(text)
            yield text

    corpus = open_corpus(generate())
    assert seen == []
    assert list(corpus.documents) == list(corpus.splits["train"]) == seen
    assert len(seen) == 3


def test_lone_surrogates_are_named():
    for source in (["fine", "bad \ud800"], iter(["fine", "bad \ud800"])):
        with pytest.raises(CorpusError, match=r"document 1 has a lone surrogate \(U\+D800\) at character 4"):
            list(open_corpus(source).documents)


@pytest.mark.parametrize("source", [[b"bytes"], [1], iter([None, "x"]), b"bytes", 7, None])
def test_what_is_no_text_is_refused(source):
    with pytest.raises(CorpusError, match=r"not str|cannot be made of"):
        list(open_corpus(source).documents)


def test_a_list_of_str_is_paths_only_if_all_exist_and_none_is_a_bare_word(tmp_path, monkeypatch):
    monkeypatch.chdir(put(tmp_path, hug="a file", a__txt="1", b__txt="2"))
    assert list(open_corpus(["hug"]).documents) == ["hug"]
    assert list(open_corpus(["a.txt", "b.txt"]).documents) == ["1", "2"]
    assert list(open_corpus(["a.txt", "some text."]).documents) == ["a.txt", "some text."]
    with pytest.raises(CorpusError, match=r"c\.txt: no such file.*iter\("):
        open_corpus(["a.txt", "c.txt"])
    assert list(open_corpus(iter(["a.txt", "c.txt"])).documents) == ["a.txt", "c.txt"]


def test_words_of_a_command_line_are_never_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(put(tmp_path, hug="a file", a__txt="1", b__txt="2"))
    assert list(open_inputs(["hug", "a.txt"]).documents) == ["a file", "1"]
    assert list(open_inputs(["?.txt"]).documents) == ["1", "2"]
    assert open_inputs(["pydocs"]).name == "pydocs"
    with pytest.raises(CorpusError, match="nothing: no such file or folder"):
        open_inputs(["hug", "nothing"])


def test_data_sets(caplog):
    rows = datasets.Dataset.from_dict({"id": [1, 2, 3], "text": ["a", None, "c"]})
    with caplog.at_level(logging.INFO):
        corpus = open_corpus(rows)
    assert texts(corpus) == {"train": ["a", "c"]}
    assert "column 'text'" in caplog.text
    assert texts(open_corpus(datasets.DatasetDict({"train": rows, "val": rows, "extra": rows}))) == {
        "train": ["a", "c"], "validation": ["a", "c"],
    }  # fmt: skip
    assert texts(open_corpus(rows.to_iterable_dataset())) == {"train": ["a", "c"]}


def test_a_data_set_whose_strings_are_not_utf8():
    offsets = pyarrow.py_buffer(np.array([0, 2, 4], dtype=np.int32))
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, offsets, pyarrow.py_buffer(b"oka\xff")])
    corpus = open_corpus(datasets.Dataset(pyarrow.table({"text": texts})))
    with pytest.raises(CorpusError, match=r"'text' is not UTF-8 somewhere in the [0-9]+ rows from 0 on \(0xff\)"):
        list(corpus.splits["train"])


def test_the_text_column_is_named_or_guessed_or_asked_for():
    rows = datasets.Dataset.from_dict({"id": [1], "prompt": ["p"], "answer": ["a"]})
    with pytest.raises(CorpusError, match=r"Give text_column, one of: prompt, answer"):
        open_corpus(rows)
    assert texts(open_corpus(rows, text_column="answer")) == {"train": ["a"]}
    with pytest.raises(CorpusError, match="no column 'text'; the columns are id, prompt, answer"):
        open_corpus(rows, text_column="text")
    assert texts(open_corpus(rows.remove_columns("prompt"))) == {"train": ["a"]}


# Names


def test_wikitext_by_name_gives_the_same_articles_as_its_files(tmp_path, monkeypatch):
    lines = [" \n", " = A = \n", " \n", " one \n", " \n", " = B = \n", " \n", " two \n"]
    put(tmp_path / "w", **{f"wiki__{split}__raw": "".join(lines) for split in ("train", "valid", "test")})
    rows = datasets.Dataset.from_dict({"text": [line if line.strip() else "" for line in lines]})

    def load(path, config):
        assert (path, config) == ("Salesforce/wikitext", "wikitext-2-raw-v1")
        return datasets.DatasetDict({"test": rows, "train": rows, "validation": rows})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", load)
    corpus = open_corpus("wikitext-2")
    assert corpus.name == "wikitext-2"
    assert texts(corpus) == texts(open_corpus("w"))
    assert len(texts(corpus)["train"]) == 2


def test_no_network_is_one_error_with_the_offline_way(tmp_path, monkeypatch):
    def load(path, config):
        raise ConnectionError("Couldn't reach the hub\nand more")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(
        CorpusError, match=r"wikitext-2: .*ConnectionError.*give the path of a folder with wiki"
    ) as error:
        open_corpus("wikitext-2")
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        open_corpus("tinystories")


@pytest.mark.parametrize("source", ["nowhere", "hf:", "hf:a/b/c/d", "no/where/*.txt", "x" * 5000, "a\0b"])
def test_what_is_not_there_is_said(source):
    with pytest.raises(CorpusError, match=r"no such file|no file matches|not of the form hf:NAME|is no path"):
        open_corpus(source)


def test_an_empty_folder_and_a_folder_of_other_formats(tmp_path):
    with pytest.raises(CorpusError, match="it is empty"):
        open_corpus(tmp_path)
    (tmp_path / "a.csv").write_bytes(b"a,b")
    with pytest.raises(CorpusError, match=r"no \.txt files.*it has \.csv"):
        open_corpus(tmp_path)
    with pytest.raises(CorpusError, match=r"\.csv files are not read"):
        open_corpus(tmp_path / "a.csv")


# Limits


def test_limits_count_whole_documents(tmp_path):
    folder = put(tmp_path / "c", train__txt="aa\n<|endoftext|>\nbb\n<|endoftext|>\ncc", test__txt="é\n<|endoftext|>\nd")
    assert texts(open_corpus(folder, max_documents=2)) == {"train": ["aa", "bb"], "test": ["é", "d"]}
    assert texts(open_corpus(folder, max_bytes=5)) == {"train": ["aa", "bb"], "test": ["é", "d"]}
    assert texts(open_corpus(folder, max_bytes=2)) == {"train": ["aa"], "test": ["é"]}
    with pytest.raises(CorpusError, match="the first document alone has 2 bytes"):
        list(open_corpus(folder, max_bytes=1).documents)
    for options in ({"max_bytes": 0}, {"max_documents": -1}, {"errors": "skip"}, {"separator": ""}):
        with pytest.raises(CorpusError, match=next(iter(options))):
            open_corpus(folder, **options)


def test_limits_of_a_corpus_divided_by_hash_are_of_the_whole(tmp_path):
    corpus = open_corpus(many(tmp_path), max_documents=100)
    assert sum(len(split) for split in texts(corpus).values()) == 100


def test_a_corpus_is_returned_as_it_is(tmp_path):
    corpus = open_corpus(["a"])
    assert open_corpus(corpus) is corpus


def test_two_corpora_in_a_list_are_joined_split_by_split(tmp_path):
    a = put(tmp_path / "a", train__txt="1", test__txt="2")
    b = put(tmp_path / "b", train__txt="3", valid__txt="4")
    corpus = open_corpus([a, b])
    assert corpus.name == "a+b"
    assert texts(corpus) == {"train": ["1", "3"], "validation": ["4"], "test": ["2"]}
    with pytest.raises(CorpusError, match="splits of its own"):
        open_corpus([a, put(tmp_path / "c", x__txt="5")])


def test_one_document_at_a_time(tmp_path):
    path = tmp_path / "big.txt"
    with open(path, "wb") as file:
        for n in range(200):
            file.write(b"%d" % n * 20_000 + b"\n<|endoftext|>\n")
    documents = open_corpus(path).documents
    tracemalloc.start()
    sizes = [len(text) for text in documents]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(sizes) == 200
    assert sum(sizes) > 9_000_000
    assert peak < 5_000_000
