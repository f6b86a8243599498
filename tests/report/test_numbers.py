import pytest

from minigpt_tok.measure.bootstrap import Interval
from minigpt_tok.report.numbers import between, duration, short, tick


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (0.125, "0.125"),
        (812.4, "812"),
        (999, "999"),
        (999.9, "1.00k"),
        (64_000, "64.0k"),
        (99_960, "100k"),
        (1_024_000, "1.02M"),
        (999_999, "1.00M"),
        (3.4e9, "3.40G"),
        (1.2e12, "1.20T"),
        (5e15, "5.00P"),
        (float("inf"), "inf"),
    ],
)
def test_short(value: float, text: str):
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.421, "0.42 s"),
        (9.996, "10.0 s"),
        (59.97, "60.0 s"),
        (99.97, "1 min 40 s"),
        (245, "4 min 05 s"),
        (7980, "2 h 13 min"),
    ],
)
def test_duration(seconds: float, text: str):
    assert duration(seconds) == text


def test_between():
    assert between(Interval(low=1.0, high=1.23456, level=0.95, resamples=10, seed=0)) == "1.0000 to 1.2346"
    assert between(None) == "–"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (100, "100"), (2_000_000, "2M"), (2_500_000, "2.5M"), (100_000, "100k"), (0.2, "0.2")]
)
def test_tick(value: float, text: str):
    assert tick(value) == text
