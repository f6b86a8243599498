"""What every test may use: the data beside the project, where it is there."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes as well")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts in the background deaf to Ctrl-C, and so would be the processes that are to be interrupted.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


_SCRIPTS = (
    "abcdefKksSſK'’`\"xyzABCÀÉßüσςΣ 0123456789²½٣ \t\n\r\n  \u2028\u00a0\u3000\u200b\u200d.,!?-_/\\|()[]{}<>@#$%^&*+=~…"
    "。，、।۔،日本語漢字かなカナ한국어สวัสดีनमस्तेمرحباéè\u0301\u0308\u0345ǅʰªⅧ一龥𐐀𝒜😀😁👍🏽🌍𠀀\U0001e900\U000e0100"
    "\U00011de1\ufdd0\U0010ffff\u0378\u105d2\U000105d2"
)
_RANGES = ((0x20, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000))


def unlike_texts(seed: int, count: int) -> Iterator[str]:
    """Random short texts: of many scripts, of what patterns are made for, of any characters; the same for a seed."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.random()
        if kind < 0.5:
            yield "".join(rng.choice(_SCRIPTS) for _ in range(rng.randint(0, 40)))
        elif kind < 0.7:
            yield "".join(rng.choice("ab'sll \n1x\r ") for _ in range(rng.randint(0, 30)))
        elif kind < 0.9:
            yield "".join(chr(rng.randrange(*rng.choice(_RANGES))) for _ in range(rng.randint(1, 25)))
        else:
            texts = ["don't I'M WE'LL he'S  x\n\n  y  ", "a\n  ", "123456 7890\t\n", "  \n \n"]
            yield rng.choice(texts) * rng.randint(1, 3)


@pytest.fixture(scope="session", name="unlike_texts")
def _unlike_texts():
    return unlike_texts
