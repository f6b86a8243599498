import os
import subprocess
import sys

import pytest

from minigpt_tok.data import pydocs
from minigpt_tok.data.corpora import open_corpus
from minigpt_tok.data.leakage import check_leakage
from minigpt_tok.errors import CorpusError


def test_it_has_topics_docstrings_and_each_text_once():
    documents = pydocs.documents()
    assert any('The "for" statement' in text for text in documents)  # a topic
    assert any(text.startswith("JSON (JavaScript Object Notation)") for text in documents)  # a module's docstring
    assert len(documents) == len(set(documents)) > 4000
    assert sum(len(text.encode()) for text in documents) > 1_000_000


def test_its_splits_divide_it():
    corpus = open_corpus("pydocs")
    assert corpus.name == "pydocs"
    assert list(corpus.splits) == ["train", "validation", "test"]
    assert sorted(text for split in corpus.splits.values() for text in split) == sorted(pydocs.documents())
    assert not check_leakage(corpus).found
    assert list(corpus.splits["train"]) == list(corpus.splits["train"])
    assert corpus.splits["validation"].size_bytes == sum(len(t.encode()) for t in corpus.splits["validation"])


def test_nothing_is_imported_and_hash_seeds_do_not_matter():
    program = (
        "import sys, hashlib; from minigpt_tok.data import pydocs; before = set(sys.modules)\n"
        "text = chr(0).join(pydocs.documents())\n"
        "assert 'this' not in sys.modules and 'antigravity' not in sys.modules and 'pydoc_data' not in sys.modules\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(seen) == 1


def test_sources_are_parsed_and_never_run(tmp_path):
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pydoc_data" / "topics.py").write_text("topics = {'b': 'Topic b.', 'a': 'Topic a.'}\n")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text('"""A module."""\nraise SystemExit("it was run")\n')
    (tmp_path / "abc.py").write_text(
        'class C:\n    """A class,\n\n        indented."""\n    def f():\n        "A module."\n'
    )
    (tmp_path / "cmd.py").write_text("this is not Python\n")
    (tmp_path / "LICENSE.txt").write_text("Do as you like.")
    expected = ("Topic a.", "Topic b.", "A class,\n\nindented.", "A module.", "Do as you like.")
    assert pydocs._documents(tmp_path) == expected


def test_a_python_without_sources_is_said(tmp_path):
    with pytest.raises(CorpusError, match="no sources of its standard library"):
        pydocs._documents(tmp_path)
