"""What may be imported, and what must not be: torch and its like cost seconds, and most calls need none of them."""

import subprocess
import sys

import pytest

import minigpt_tok

HEAVY = ("torch", "lightning", "datasets", "matplotlib", "pyarrow", "pandas")


def loaded_after(code: str) -> set[str]:
    """Which of the heavy libraries a fresh Python has loaded after some code."""
    ending = f"\nimport sys; print(*sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    process = subprocess.run([sys.executable, "-c", code + ending], capture_output=True, text=True, check=True)
    return set(process.stderr.splitlines()[-1].split())


def test_the_test_sees_a_heavy_library_where_there_is_one():
    assert "pyarrow" in loaded_after("import pyarrow")


@pytest.mark.parametrize(
    "code",
    [
        "import minigpt_tok",
        "import minigpt_tok; minigpt_tok.__version__; dir(minigpt_tok)",
        "from minigpt_tok import Tokenizer, TokenizerMismatchError",
        "from minigpt_tok import train_tokenizer; train_tokenizer(['low lower lowest'], 300)",
        "import minigpt_tok.cli",
        "from minigpt_tok.data import corpora",
    ],
)
def test_nothing_heavy_is_imported_by(code: str):
    assert loaded_after(code) == set()


def test_importing_the_package_imports_none_of_its_parts():
    code = "import minigpt_tok, sys; print([m for m in sys.modules if m.startswith('minigpt_tok')])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "['minigpt_tok._version', 'minigpt_tok']"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        minigpt_tok.nonsense  # noqa: B018


def test_every_public_name_is_listed_once_and_has_a_home():
    assert sorted(set(minigpt_tok.__all__)) == list(minigpt_tok.__all__)
    assert set(minigpt_tok.__all__) - {"__version__"} == set(minigpt_tok._HOME)


@pytest.mark.parametrize("name", minigpt_tok.__all__)
def test_every_public_name_can_be_imported(name: str):
    assert getattr(minigpt_tok, name) is not None
