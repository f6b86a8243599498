import numpy as np
import pytest

from minigpt_tok.errors import DataError
from minigpt_tok.measure.bootstrap import difference_interval, ratio_interval


def documents(n: int, rate: float = 2.0, noise: float = 0.3, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    n_bytes = generator.integers(50, 500, size=n)
    return n_bytes * (rate + noise * generator.standard_normal(n)), n_bytes


def test_documents_that_all_score_the_same_leave_no_room():
    n_bytes = np.array([10, 200, 3000, 7])
    interval = ratio_interval(n_bytes * 1.5, n_bytes)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((1.5, 1.5))


def test_width_is_that_of_the_ratio_estimator():
    """For many documents the bootstrap agrees with the textbook variance of a ratio (Cochran, Sampling Techniques)."""
    bits, n_bytes = documents(2_000)
    interval = ratio_interval(bits, n_bytes, resamples=4_000)
    assert interval is not None
    ratio = bits.sum() / n_bytes.sum()
    error = np.sqrt(((bits - ratio * n_bytes) ** 2).sum()) / n_bytes.sum()
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.06)
    assert interval.contains(ratio)
    assert interval.low + interval.high == pytest.approx(2 * ratio, rel=1e-3)


def test_covers_the_truth_about_as_often_as_it_says():
    hits = 0
    for seed in range(200):
        bits, n_bytes = documents(80, rate=2.0, seed=seed)
        interval = ratio_interval(bits, n_bytes, resamples=300, seed=seed)
        assert interval is not None
        hits += interval.contains(2.0)
    assert 178 <= hits <= 199


def test_same_seed_same_interval_and_another_seed_another():
    bits, n_bytes = documents(50)
    assert ratio_interval(bits, n_bytes, seed=3) == ratio_interval(bits, n_bytes, seed=3)
    assert ratio_interval(bits, n_bytes, seed=3) != ratio_interval(bits, n_bytes, seed=4)


def test_fewer_than_two_documents_have_no_interval():
    assert ratio_interval(np.array([3.0]), np.array([10])) is None
    assert ratio_interval(np.array([3.0, 0.0]), np.array([10, 0])) is None
    assert difference_interval(np.array([3.0]), np.array([2.0]), np.array([10])) is None


def test_empty_documents_change_nothing():
    bits, n_bytes = documents(30)
    with_empty = ratio_interval(np.append(bits, 0.0), np.append(n_bytes, 0))
    assert with_empty == ratio_interval(bits, n_bytes)


def test_memory_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch):
    bits, n_bytes = documents(40)
    whole = ratio_interval(bits, n_bytes, resamples=500)
    monkeypatch.setattr("minigpt_tok.measure.bootstrap._CHUNK", 40 * 7)
    assert ratio_interval(bits, n_bytes, resamples=500) == whole


def test_pairing_finds_a_small_difference_that_the_two_intervals_hide():
    bits, n_bytes = documents(100)
    other = bits - 0.02 * n_bytes
    alone = ratio_interval(bits, n_bytes)
    paired = difference_interval(bits, other, n_bytes)
    assert alone is not None
    assert paired is not None
    assert alone.contains(other.sum() / n_bytes.sum())
    assert (paired.low, paired.high) == pytest.approx((0.02, 0.02))


def test_seeds_that_disagree_widen_the_interval():
    bits, n_bytes = documents(400, noise=0.01)
    agreeing = ratio_interval(np.stack([bits, bits, bits]), n_bytes)
    disagreeing = ratio_interval(np.stack([bits * 0.9, bits, bits * 1.1]), n_bytes)
    one = ratio_interval(bits, n_bytes)
    assert agreeing is not None
    assert disagreeing is not None
    assert one is not None
    assert agreeing.high - agreeing.low == pytest.approx(one.high - one.low, rel=0.1)
    assert disagreeing.high - disagreeing.low > 10 * (one.high - one.low)


@pytest.mark.parametrize(("options", "word"), [({"level": 0.0}, "level"), ({"resamples": 0}, "resamples")])
def test_impossible_options_are_named(options: dict, word: str):
    with pytest.raises(DataError, match=word):
        ratio_interval(np.ones(3), np.ones(3, dtype=np.int64), **options)


def test_arrays_of_different_splits_are_refused():
    with pytest.raises(DataError, match="4 documents and bytes of 3"):
        ratio_interval(np.ones(4), np.ones(3, dtype=np.int64))
