"""Sizes, times and counts as people read them."""

import pytest

from minigpt_tok.amounts import counted, lasted, sized


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 bytes"), (1, "1 byte"), (9_999, "9,999 bytes"), (10_000, "10.0 kB"), (99_949, "99.9 kB"), (99_960, "100 kB"),
        (999_499, "999 kB"), (999_559, "1.0 MB"), (12_345_678, "12.3 MB"), (999_600_000, "1.0 GB"),
        (5e12, "5.0 TB"), (5e15, "5,000 TB"),
    ],
)  # fmt: skip
def test_sizes(n_bytes: float, text: str):
    assert sized(n_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.123, "0.12 s"), (12.34, "12.3 s"), (65, "1 min 05 s"), (3599.6, "1 h 00 min"), (8000, "2 h 13 min")]
)  # fmt: skip
def test_times(seconds: float, text: str):
    assert lasted(seconds) == text


def test_counted():
    assert (counted(1, "document"), counted(0, "id"), counted(1_234, "id")) == ("1 document", "0 ids", "1,234 ids")
