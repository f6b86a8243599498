import gzip
import json
import logging
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minigpt_tok.data import hub
from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.errors import CorpusError

TEXTS = ["one", "naïve 日本\n", "", "four\u2028lines"]
KEPT = [text for text in TEXTS if text]
WIKITEXT = ["", " = A = \n", "", " one \n", "", " = B = \n", "", " two \n"]


def put(path: Path, texts=TEXTS, column="text") -> Path:
    """A table in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": list(range(len(texts))), column: pa.array(texts, pa.string())})
    inner = path.with_suffix("") if path.suffix == ".gz" else path
    if inner.suffix == ".parquet":
        pq.write_table(table, inner, row_group_size=2)
    elif inner.suffix == ".arrow":
        with pa.OSFile(str(inner), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table)
    else:
        inner.write_text("".join(json.dumps({"id": 1, column: text}) + "\n" for text in texts), encoding="utf-8")
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(inner.read_bytes()))
        inner.unlink()
    return path


def documents(path, **options) -> list[str]:
    return list(open_corpus(path, **options).documents)


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".parquet", ".arrow", ".jsonl.gz", ".parquet.gz", ".arrow.gz"])
def test_each_row_is_a_document(tmp_path, suffix, caplog):
    path = put(tmp_path / f"a{suffix}")
    with caplog.at_level(logging.INFO):
        assert documents(path) == KEPT
    assert "the text is taken from the column 'text'" in caplog.text
    assert open_corpus(path, fractions={"train": 1.0}).splits["train"].mapped() is None
    assert documents(put(tmp_path / f"b{suffix}", column="plot"), text_column="plot") == KEPT
    with pytest.raises(CorpusError, match=r"no column 'other'|no 'other'"):
        documents(path, text_column="other")


def test_arrow_files_that_can_be_jumped_in(tmp_path):
    table = pa.table({"text": TEXTS})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    assert documents(tmp_path / "a.arrow") == KEPT
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "saved")
    assert documents(tmp_path / "saved") == KEPT


def test_the_column_is_guessed_or_asked_for(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"a": "1", "n": 2, "b": "3"}\n')
    with pytest.raises(CorpusError, match=r"which column holds the text\? Give text_column, one of: a, b"):
        documents(tmp_path / "x.jsonl")
    with pytest.raises(CorpusError, match=r"the column 'id' holds int64, not strings.*text_column: text"):
        documents(put(tmp_path / "y.parquet"), text_column="id")
    assert documents(put(tmp_path / "z.parquet", column="whatever")) == KEPT  # the only one of strings


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"text": "a"', r"line 2 \(at byte 16\): no JSON"),
        (b"[1]", r"line 2 .*: list, not an object"),
        (b'{"other": "a"}', r"line 2 .*has no 'text'; it has 'other'"),
        (b'{"text": 3}', r"line 2 .*'text' is int, not a string"),
        (b'{"text": "\xff"}', r"line 2 .*not UTF-8 at byte 26 \(0xff\)"),
        (b'{"text": "\\ud83d"}', r"line 2 .*lone surrogate"),
        (b'\xef\xbb\xbf{"text": "a"}', r"line 2 .*byte order mark.* save the file without it"),
        (b"[" * 100_000, r"line 2 .*no JSON"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path, line, said):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n' + line + b"\n")
    with pytest.raises(CorpusError, match=r"a\.jsonl, " + said):
        documents(path)


def test_what_is_not_utf8_in_json_may_be_replaced_or_ignored(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a\xffb"}\n\n{"text": "c\\ud83dd\\ud83d\\ude00"}\n')
    corpus = open_corpus(path, errors="replace", fractions={"train": 1.0})
    assert list(corpus.documents) == ["a\ufffdb", "c\ufffdd😀"]
    assert corpus.documents.counts.undecodable == 2
    assert documents(path, errors="ignore") == ["ab", "cd😀"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_what_is_not_utf8_in_a_table_is_named_by_its_row(tmp_path, suffix, kind):
    """Writers need not check what they call a string."""
    raws = [b"good"] * 600 + [b"a\xffb", None, b"c\xe6\x97"] + [b"more"] * 100
    as_bytes = pa.array(raws, pa.large_binary())
    if pa.types.is_string_view(kind):
        texts = pa.Array.from_buffers(kind, len(raws), pa.array(raws, pa.binary_view()).buffers())
    else:
        texts = as_bytes.cast(pa.binary() if kind == pa.string() else pa.large_binary())
        texts = pa.Array.from_buffers(kind, len(raws), texts.buffers())
    table, path = pa.table({"text": texts}), tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path, row_group_size=250)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
            out.write_table(table, max_chunksize=250)
    with pytest.raises(CorpusError, match=rf"a{suffix}, row 600 .*: not UTF-8 at byte 1 \(0xff\).*errors='replace'"):
        documents(path)
    corpus = open_corpus(path, errors="replace", fractions={"train": 1.0})
    assert list(corpus.documents)[600:602] == ["a\ufffdb", "c\ufffd"]
    assert corpus.documents.counts.undecodable == 2
    assert documents(path, errors="ignore")[600:602] == ["ab", "c"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_damaged_tables(tmp_path, suffix):
    path = put(tmp_path / f"a{suffix}", ["some text"] * 1000)
    raw = path.read_bytes()
    for damaged in (b"", b"PAR1", raw[: len(raw) // 2], b"<html>" * 100):
        path.write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"damaged, or no (Parquet|Arrow) file"):
            documents(path)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".arrow"])
def test_published_wikitext_in_tables_is_joined_to_articles_across_files(tmp_path, suffix):
    lines = WIKITEXT * 5
    for split, parts in (("train", 3), ("validation", 1), ("test", 1)):
        size = len(lines) // parts
        for n in range(parts):
            part = lines[n * size : (n + 1) * size if n < parts - 1 else None]
            put(tmp_path / "w" / f"{split}-{n:05}-of-{parts:05}{suffix}", part)
    corpus = open_corpus(tmp_path / "w")
    assert corpus.has_own_splits
    article = " = A = \n \n one \n \n"
    for split in ("train", "validation", "test"):
        found = list(corpus.splits[split])
        assert len(found) == 10
        assert found[0] == " \n" + article
        assert found[2] == article
    assert len(list(open_corpus(str(tmp_path / "w" / f"*{suffix}")).splits["train"])) == 10


def test_wikitext_2_in_parquet_has_600_articles(tmp_path, shared):
    published = (shared / "corpora" / "wikitext-2" / "train.txt").read_bytes()
    rows = ["" if line == " \n" else line for line in published.decode().splitlines(keepends=True)]
    rows = [row for line in rows for row in ([line] if line.endswith("\n") or not line else [line + "\n"])]
    half = len(rows) // 2
    put(tmp_path / "train-00000-of-00002.parquet", rows[:half])
    put(tmp_path / "train-00001-of-00002.parquet", rows[half:])
    put(tmp_path / "test-00000-of-00001.parquet", WIKITEXT)
    found = list(open_corpus(tmp_path).splits["train"])
    assert len(found) == 600
    assert "".join(found).encode() == published


def test_splits_in_folders_named_like_them(tmp_path):
    for split in ("train", "validation"):
        put(tmp_path / "d" / split / "data-00000-of-00002.arrow", [split])
        put(tmp_path / "d" / split / "data-00001-of-00002.arrow", [f"{split} too"])
    (tmp_path / "d" / "dataset_dict.json").write_text("{}")
    corpus = open_corpus(tmp_path / "d")
    assert {split: list(docs) for split, docs in corpus.splits.items()} == {
        "train": ["train", "train too"],
        "validation": ["validation", "validation too"],
    }


def test_a_size_is_known_beforehand_where_it_can_be(tmp_path):
    assert open_corpus(put(tmp_path / "a.parquet", ["some text"] * 1000)).size_bytes > 1000
    assert open_corpus(put(tmp_path / "a.jsonl")).size_bytes == (tmp_path / "a.jsonl").stat().st_size
    assert open_corpus(put(tmp_path / "a.jsonl.gz")).size_bytes is None


def test_every_so_manyth_document_is_held_out(tmp_path):
    texts = [f"text {n}" for n in range(10)]
    corpus = open_corpus(put(tmp_path / "a.jsonl", texts), held_out=4)
    assert list(corpus.splits["validation"]) == ["text 3", "text 7"]
    assert list(corpus.splits["train"]) == [text for text in texts if text not in ("text 3", "text 7")]
    assert sorted(corpus.documents) == texts
    limited = open_corpus(tmp_path / "a.jsonl", held_out=4, max_documents=4)
    assert list(limited.splits["validation"]) == ["text 3"]
    own = {"train": texts, "test": ["t"]}
    assert {s: len(list(d)) for s, d in open_corpus(own, held_out=5).splits.items()} == {
        "train": 8, "validation": 2, "test": 1,
    }  # fmt: skip
    with pytest.raises(CorpusError, match="validation split of its own"):
        open_corpus({"train": texts, "validation": ["v"]}, held_out=5)
    with pytest.raises(CorpusError, match="held_out is 1"):
        open_corpus(texts, held_out=1)


# The hub, with files of this machine in its place


def test_names_on_the_hub():
    assert hub.parse("hf:imdb") == ("imdb", None, None)
    assert hub.parse("hf:Salesforce/wikitext/wikitext-2-raw-v1:train") == (
        "Salesforce/wikitext",
        "wikitext-2-raw-v1",
        "train",
    )
    with pytest.raises(CorpusError, match="not of the form"):
        hub.parse("hf:a//b")


@pytest.fixture
def local_hub(tmp_path, monkeypatch):
    """Data sets by name are found in this folder."""
    original = datasets.load_dataset_builder

    def load_dataset_builder(path, config=None):
        if not (tmp_path / path).is_dir():
            raise ConnectionError(f"Couldn't reach {path!r}\nsecond line")
        return original(str(tmp_path / path))

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache", raising=False)
    return tmp_path


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_data_sets_of_the_hub_are_streamed(local_hub, suffix):
    put(local_hub / "me" / "stories" / "data" / f"train-00000-of-00002{suffix}", TEXTS)
    put(local_hub / "me" / "stories" / "data" / f"train-00001-of-00002{suffix}", ["last"])
    put(local_hub / "me" / "stories" / "data" / f"validation-00000-of-00001{suffix}", ["held out"])
    corpus = open_corpus("hf:me/stories")
    assert corpus.name == "stories"
    assert {s: list(d) for s, d in corpus.splits.items()} == {"train": [*KEPT, "last"], "validation": ["held out"]}
    assert list(open_corpus("hf:me/stories", max_documents=2).splits["train"]) == KEPT[:2]
    only = open_corpus("hf:me/stories:validation")
    assert {s: list(d) for s, d in only.splits.items()} == {"train": ["held out"]}
    with pytest.raises(CorpusError, match="no split 'other'; there are train, validation"):
        open_corpus("hf:me/stories:other")


def test_a_hub_out_of_reach_is_one_error_with_the_offline_way(local_hub, monkeypatch):
    with pytest.raises(CorpusError, match=r"hf:some/thing: .*ConnectionError.*Without a network") as error:
        open_corpus("hf:some/thing")
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        open_corpus("hf:some/thing")


def test_a_process_that_reads_a_part_of_a_parquet_ends_well(tmp_path):
    put(tmp_path / "a.parquet", [f"text {n} " * 100 for n in range(20_000)])
    script = (
        "from minigpt_tok.data.corpora import open_corpus\n"
        "reading = iter(open_corpus('a.parquet').documents)\n"
        "print(len([next(reading) for _ in range(10)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "10", "")


def test_published_tinystories_in_parquet(tmp_path):
    for name in ("train-00000-of-00002-2d5a1467fff1081b", "train-00001-of-00002-5852b56a2bd28fd9"):
        put(tmp_path / "TinyStories" / "data" / f"{name}.parquet", ["a story", "another"])
    put(tmp_path / "TinyStories" / "data" / "validation-00000-of-00001-869c898b519ad725.parquet", ["a third"])
    (tmp_path / "TinyStories" / "README.md").write_text("what it is")
    corpus = open_corpus(tmp_path / "TinyStories")
    assert corpus.has_own_splits
    assert {s: len(list(d)) for s, d in corpus.splits.items()} == {"train": 4, "validation": 1}
