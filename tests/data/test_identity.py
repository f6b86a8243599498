"""Which data: id files found in whatever a user trains on, and the fingerprint of their ids."""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.data.identity import data_fingerprint, id_metadata
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError, FormatError


def write(path, ids, fingerprint="ab" * 32, split="train"):
    metadata = IdFileMetadata(
        tokenizer_fingerprint=fingerprint, tokenizer_fingerprint_version=1, vocab_size=300, corpus="c", split=split
    )
    return write_id_file(path, [("text", np.array(ids))], metadata)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "train.safetensors", range(50))
    write(tmp_path / "validation.safetensors", range(20), split="validation")
    return tmp_path


def test_files_and_folders(folder):
    train = IdFile(folder / "train.safetensors").metadata
    assert id_metadata(folder / "train.safetensors") == {str(folder / "train.safetensors"): train}
    assert id_metadata(str(folder / "train.safetensors")) == id_metadata(folder / "train.safetensors")
    assert [metadata.split for metadata in id_metadata(folder).values()] == ["train", "validation"]


def test_objects(folder):
    path = folder / "train.safetensors"
    dataset = TokenDataset(path, 8)
    for thing in (
        IdFile(path),
        dataset,
        Subset(dataset, [0, 1]),
        DataLoader(dataset, batch_size=2),
        DataLoader(Subset(dataset, [0]), batch_size=2),
        [DataLoader(dataset)],
        {"a": DataLoader(dataset)},
    ):
        assert list(id_metadata(thing).values()) == [IdFile(path).metadata]
    both = ConcatDataset([dataset, TokenDataset(folder / "validation.safetensors", 8)])
    assert len(id_metadata(both)) == 2


def test_things_without_id_files(tmp_path):
    assert id_metadata(DataLoader(TensorDataset(torch.zeros(3)))) == {}
    assert id_metadata(None) == {}
    assert id_metadata(object()) == {}


def test_other_peoples_attributes_are_not_taken_for_ours(tmp_path):
    class Theirs:
        data_dir = str(tmp_path / "images")
        datasets = ("mnist", "cifar")
        dataset = "mnist"
        iterables = 7

    assert id_metadata(Theirs()) == {}
    circle = Theirs()
    circle.dataset = circle
    assert id_metadata(circle) == {}
    assert id_metadata(DataLoader(["a text", "another"])) == {}


def test_paths_that_hold_none(tmp_path):
    with pytest.raises(DataError, match=r"no id files"):
        id_metadata(tmp_path)
    with pytest.raises(FileNotFoundError):
        id_metadata(tmp_path / "none.safetensors")
    (tmp_path / "train.safetensors").write_bytes(b"no id file")
    with pytest.raises(FormatError):
        id_metadata(tmp_path)


def test_fingerprint_is_of_the_train_ids(folder, tmp_path):
    train = IdFile(folder / "train.safetensors").metadata.ids_sha256
    assert data_fingerprint(folder) == train
    assert data_fingerprint(folder / "train.safetensors") == train
    assert data_fingerprint(TokenDataset(folder, 8)) == train
    other = write(tmp_path / "other" / "train.safetensors", range(49))
    assert data_fingerprint(tmp_path / "other") == other.ids_sha256 != train


def test_the_validation_split_is_no_part_of_it(folder):
    before = data_fingerprint(folder)
    write(folder / "validation.safetensors", range(21), split="validation")
    assert data_fingerprint(folder) == before


def test_one_file_is_taken_whatever_its_split(folder):
    only = IdFile(folder / "validation.safetensors").metadata.ids_sha256
    assert data_fingerprint(folder / "validation.safetensors") == only


def test_several_train_files_have_one_fingerprint_in_either_order(tmp_path):
    a, b = write(tmp_path / "a.safetensors", range(5)), write(tmp_path / "b.safetensors", range(6))
    both = data_fingerprint([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    assert both == data_fingerprint([tmp_path / "b.safetensors", tmp_path / "a.safetensors"])
    assert both not in (a.ids_sha256, b.ids_sha256)
    assert len(both) == 64


def test_nothing_to_take_a_fingerprint_of(tmp_path):
    with pytest.raises(DataError, match="no id file"):
        data_fingerprint(object())
    write(tmp_path / "validation.safetensors", range(5), split="validation")
    write(tmp_path / "test.safetensors", range(5), split="test")
    with pytest.raises(DataError, match="train"):
        data_fingerprint(tmp_path)
