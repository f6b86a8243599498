"""What every test may use: the data beside the project, where it is there."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="takes minutes; run with --slow"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have to report beside that they passed: `record_property("summary", …)`."""
    reports = [report for passed in terminalreporter.stats.get("passed", []) if (report := passed.user_properties)]
    lines = [line for properties in reports for name, line in properties if name == "summary"]
    if lines:
        terminalreporter.section("reported")
        for line in sorted(set(lines)):
            terminalreporter.line(line)


def _shared_folder() -> Path:
    return Path(os.environ.get("MINIGPT_TOK_SHARED") or ROOT.parent / "shared")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with corpora, published tokenizers and id vectors; the test skips where there is none."""
    folder = _shared_folder() / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the test data: set MINIGPT_TOK_SHARED or lay it at {_shared_folder()}")
    return folder
