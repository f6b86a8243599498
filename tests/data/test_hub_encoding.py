import datasets
import pytest

from minigpt_tok import encode_dataset
from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.data.hub_encoding import dataset_fingerprint
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.errors import CorpusError, DataError


@pytest.fixture
def rows(texts):
    info = datasets.DatasetInfo(description="Mine.")
    return datasets.Dataset.from_dict({"n": list(range(len(texts))), "text": texts}, info=info)


def test_the_ids_are_those_of_an_id_file_and_columns_are_kept(tmp_path, tokenizer, texts, rows):
    encoded = encode_dataset(rows, tokenizer, batch_size=2)
    file = IdFile(encode_corpus(texts, tokenizer, tmp_path)["train"])
    assert encoded["input_ids"] == [file.document(n).tolist() for n in range(len(texts))]
    assert encoded.column_names == ["n", "text", "input_ids"]
    assert encoded.features["input_ids"].feature.dtype == "uint16"
    assert dataset_fingerprint(encoded) == tokenizer.fingerprint
    assert encoded.info.description.startswith("Mine.\n")
    assert dataset_fingerprint(rows) is None
    encoded.save_to_disk(tmp_path / "saved")
    assert dataset_fingerprint(datasets.load_from_disk(tmp_path / "saved")) == tokenizer.fingerprint


def test_splits_streams_and_other_columns(tokenizer, other_tokenizer, rows):
    both = encode_dataset(datasets.DatasetDict({"train": rows, "test": rows}), tokenizer, separator=None)
    assert isinstance(both, datasets.DatasetDict)
    assert both["test"]["input_ids"] == [tokenizer.encode(text) for text in rows["text"]]
    streamed = encode_dataset(rows.to_iterable_dataset(), tokenizer, separator=None, ids_column="ids")
    assert [row["ids"] for row in streamed] == list(both["train"]["input_ids"])
    assert dataset_fingerprint(streamed) == tokenizer.fingerprint
    again = encode_dataset(both["train"], other_tokenizer, ids_column="other")
    assert dataset_fingerprint(again) == other_tokenizer.fingerprint
    missing = datasets.Dataset.from_dict({"text": ["a", None]})
    assert encode_dataset(missing, tokenizer, separator=None)["input_ids"] == [tokenizer.encode("a"), []]


def test_what_cannot_be(tokenizer, rows):
    with pytest.raises(DataError, match="a column 'n' already"):
        encode_dataset(rows, tokenizer, ids_column="n")
    with pytest.raises(CorpusError, match="no column 'x'"):
        encode_dataset(rows, tokenizer, text_column="x")
    with pytest.raises(CorpusError, match="list is no data set"):
        encode_dataset(["a"], tokenizer)
