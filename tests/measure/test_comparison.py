"""Verdicts, from scores made up so that the answer is known."""

import dataclasses
import json

import numpy as np
import pytest

from minigpt_tok.measure.comparison import Comparison, Entry, Run
from minigpt_tok.measure.compression import Compression
from minigpt_tok.measure.scores import BitsPerByte

SIZES = np.random.default_rng(1).integers(100, 900, size=50)


def score(rates: np.ndarray | float, sizes: np.ndarray = SIZES) -> BitsPerByte:
    return BitsPerByte(
        document_bits=sizes * rates, document_bytes=sizes, tokens=9000, special_tokens=0, characters=int(sizes.sum()),
        scored=9000, charged=1, context="sliding", block_size=8, stride=4, own_context=False, separator=None,
        count_special=False, vocab_size=300, fingerprint="f" * 64, corpus="c", split="validation", text_sha256="t",
    )  # fmt: skip


def entry(name: str, *scores: BitsPerByte, kind: str = "bpe") -> Entry:
    runs = tuple(
        Run(
            seed=n, score=one, curve=(), bytes=10, tokens=5, flops=1e6, seconds=2.0 + n, sample="s", checkpoint="c.ckpt"
        )
        for n, one in enumerate(scores)
    )
    cut = Compression(tokens=5, bytes=10, characters=10, words=2, documents=1, vocab_size=300, renyi_efficiency=0.5)
    return Entry(
        name=name, kind=kind, fingerprint="f" * 64, tokenizer="t.json", pattern="gpt2", vocab_size=300, compression=cut,
        body_parameters=10, position_parameters=4, embedding_parameters=20, embedding_share=2 / 3, training_flops_per_byte=1.0,
        attention_flops_per_byte=1.0, window_bytes=16.0, window_characters=16.0, first_block="ab", runs=runs,
    )  # fmt: skip


def compared(*entries: Entry) -> Comparison:
    seeds = tuple(range(len(entries[0].runs)))
    return Comparison(
        corpus="c", budget="bytes=10", budget_axis="bytes", block_size=8, prompt="p", seeds=seeds, settings={},
        entries=entries,
    )  # fmt: skip


NOISE = np.random.default_rng(2).normal(0, 0.1, size=50)


def test_a_clear_difference_is_said_with_its_interval():
    found = compared(entry("characters", score(2.0), kind="characters"), entry("bpe", score(1.9 + 0.1 * NOISE)))
    (verdict,) = found.verdicts
    assert (verdict.first, verdict.second) == ("bpe", "characters")
    interval = verdict.difference.interval
    assert verdict.difference.is_shown
    assert verdict.text == (
        f"bpe needs {-verdict.difference.difference:.4f} fewer bits per byte than characters "
        f"(95% interval {-interval.high:.4f} to {-interval.low:.4f})."
    )
    assert -interval.high < 0.1 < -interval.low


def test_the_baseline_may_win():
    found = compared(entry("characters", score(1.0), kind="characters"), entry("bpe", score(1.5)))
    assert found.verdicts[0].text.startswith("characters needs 0.5000 fewer bits per byte than bpe")


def test_an_interval_that_contains_0_shows_no_difference():
    found = compared(entry("characters", score(2.0), kind="characters"), entry("bpe", score(2.0 + NOISE)))
    (verdict,) = found.verdicts
    assert not verdict.difference.is_shown
    assert verdict.text.startswith("No difference is shown between")
    assert "contains 0" in verdict.text
    assert "fewer" not in verdict.text


def test_one_document_allows_no_verdict_on_others():
    sizes = SIZES[:1]
    found = compared(
        entry("characters", score(2.0, sizes), kind="characters"), entry("bpe", score(1.0, sizes), kind="bpe")
    )
    assert "there is no interval" in found.verdicts[0].text
    assert found.to_plain()["verdicts"][0]["interval"] is None


def test_best_against_second_and_each_against_the_baseline():
    found = compared(
        entry("characters", score(2.0), kind="characters"),
        entry("a", score(1.9)),
        entry("b", score(1.8)),
        entry("c", score(2.1)),
    )
    assert [(one.first, one.second) for one in found.verdicts] == [
        ("b", "a"),
        ("a", "characters"),
        ("b", "characters"),
        ("characters", "c"),
    ]
    assert [one.name for one in found.ranked] == ["b", "a", "characters", "c"]


def test_seeds_count_in_the_mean_the_spread_and_the_interval():
    one = compared(entry("characters", score(2.0), kind="characters"), entry("bpe", score(1.95)))
    several = compared(
        entry("characters", score(1.8), score(2.2), kind="characters"), entry("bpe", score(1.75), score(2.15))
    )
    assert several.entries[0].bits_per_byte == pytest.approx(2.0)
    assert several.entries[0].spread == pytest.approx((1.8, 2.2))
    assert several.entries[0].seconds == 2.5
    assert one.entries[0].spread is None
    assert one.verdicts[0].difference.is_shown
    assert not several.verdicts[0].difference.is_shown
    assert any("luck of a training run" in caveat for caveat in one.caveats)
    assert any("of documents and of seeds" in caveat for caveat in several.caveats)


def test_json_holds_every_document_and_no_number_that_json_lacks(tmp_path):
    rates = np.full(50, 2.0)
    rates[3] = np.inf
    found = compared(entry("characters", score(2.0), kind="characters"), entry("bpe", score(rates)))
    found.save(tmp_path / "comparison.json")
    text = (tmp_path / "comparison.json").read_text(encoding="utf-8")
    assert "Infinity" not in text
    assert "NaN" not in text
    plain = json.loads(text)
    assert plain["entries"][0]["runs"][0]["score"]["document_bits"] == score(2.0).document_bits.tolist()
    assert plain["entries"][1]["runs"][0]["score"]["document_bits"][3] is None
    assert plain["format"] == "minigpt-tok comparison"
    assert plain["entries"][0]["bits_per_byte"] == 2.0


def test_budget_in_words():
    found = compared(entry("characters", score(2.0), kind="characters"))
    assert found.budget_in_words == "10 bytes of text seen each"
    tokens = dataclasses.replace(found, budget="flops=5e12", budget_axis="flops")
    assert tokens.budget_in_words == "5,000,000,000,000 training FLOPs each"
