"""The tables that were read off tokenizers are what it still says."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture
def generator():
    path = Path(__file__).parents[2] / "scripts" / "generate_hugging_face_classes.py"
    spec = importlib.util.spec_from_file_location("generate_hugging_face_classes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_checked_in_tables_are_what_the_script_writes(generator, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    assert generator.main() == 0


def test_ranges_and_runs_are_spelled_shortly(generator):
    assert generator.ranges_of([65, 66, 67, 97]) == "41-43 61"
    assert generator.lower_case_runs({"A": "a", "B": "b", "Ā": "ā", "Ă": "ă", "İ": "i̇"}) == "41-42/1+32 100-102/2+1"


def test_another_version_of_tokenizers_is_refused(generator, monkeypatch):
    import tokenizers

    monkeypatch.setattr(tokenizers, "__version__", "0.99.0")
    with pytest.raises(SystemExit, match=r"0\.99\.0.*0\.23\.3"):
        generator.tables("")
