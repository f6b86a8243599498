"""A library of an extra that is not there is one error that says how to get it; what needs it not at all goes on."""

import sys

import pytest

from minigpt_tok.cluster import dask_executor
from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.data.leakage import check_leakage
from minigpt_tok.data.near_duplicates import find_near_duplicates
from minigpt_tok.errors import MissingDependencyError


def test_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'minigpt-tok\[dask\]'"), dask_executor():
        pytest.fail("there is no cluster")


def test_datasketch(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketch", None)
    corpus = open_corpus({"train": ["a text of several words"], "test": ["a text of several words"]})
    with pytest.raises(MissingDependencyError, match=r"pip install 'minigpt-tok\[near\]'"):
        find_near_duplicates(corpus)
    assert check_leakage(corpus).between["train", "test"].documents == 1


def test_zstandard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00")
    with pytest.raises(MissingDependencyError, match=r"a\.txt\.zst is read with zstandard.*or unpack it: zstd -d"):
        list(open_corpus(tmp_path / "a.txt.zst").documents)
    (tmp_path / "b.txt").write_text("plain")
    assert list(open_corpus(tmp_path / "b.txt").documents) == ["plain"]
