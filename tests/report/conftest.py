"""A comparison as `compare_tokenizers` gives it, with numbers made up but of one piece."""

from collections.abc import Callable

import numpy as np
import pytest

from minigpt_tok.measure.comparison import Comparison, CurvePoint, Entry, Run
from minigpt_tok.measure.compression import Compression
from minigpt_tok.measure.scores import BitsPerByte

SAMPLE = "The fox <b>&amp; \x1b[31m日本</b>\n\n  \x00 ran"


def _score(rate: float, seed: int, documents: int, fingerprint: str, vocab_size: int, tokens: int) -> BitsPerByte:
    sizes = np.random.default_rng(7).integers(200, 4000, size=documents)
    noise = np.random.default_rng(seed).normal(0, 0.05, size=documents)
    common = np.random.default_rng(8).normal(0, 0.3, size=documents)
    return BitsPerByte(
        document_bits=sizes * (rate + noise + common),
        document_bytes=sizes,
        tokens=tokens,
        special_tokens=0,
        characters=int(sizes.sum()) - 17,
        scored=tokens,
        charged=1,
        context="sliding",
        block_size=128,
        stride=64,
        own_context=False,
        separator=None,
        count_special=False,
        vocab_size=vocab_size,
        fingerprint=fingerprint,
        corpus="stories",
        split="validation",
        text_sha256="ab" * 32,
    )


def _entry(name: str, kind: str, vocab_size: int, held: float, rate: float, seeds: int, documents: int) -> Entry:
    fingerprint = f"{vocab_size:064x}"
    n_bytes = int(np.random.default_rng(7).integers(200, 4000, size=documents).sum())
    tokens = int(n_bytes / held)
    runs = []
    for seed in range(seeds):
        score = _score(rate + 0.01 * seed, 100 * vocab_size + seed, documents, fingerprint, vocab_size, tokens)
        curve = tuple(
            CurvePoint(
                bytes=500_000 * step,
                tokens=int(500_000 * step / held),
                flops=4e11 * step / held,
                seconds=9.0 * step / held,
                bits_per_byte=score.bits_per_byte + 2.0 / step - 0.2,
            )
            for step in range(1, 11)
        )
        last = curve[-1]
        runs.append(
            Run(
                seed=seed,
                score=score,
                curve=curve,
                bytes=last.bytes,
                tokens=last.tokens,
                flops=last.flops,
                seconds=last.seconds,
                sample=SAMPLE,
                checkpoint=f"{name}/seed-{seed}/model.ckpt",
            )
        )
    compression = Compression(
        tokens=tokens,
        bytes=n_bytes,
        characters=n_bytes - 17,
        words=n_bytes // 6,
        documents=documents,
        vocab_size=vocab_size,
        renyi_efficiency=0.42,
    )
    return Entry(
        name=name,
        kind=kind,
        fingerprint=fingerprint,
        tokenizer=f"{name}/tokenizer.json",
        pattern="gpt2",
        vocab_size=vocab_size,
        compression=compression,
        body_parameters=793_344,
        position_parameters=16_384,
        embedding_parameters=vocab_size * 128,
        embedding_share=vocab_size * 128 / (793_344 + vocab_size * 128),
        training_flops_per_byte=6 * (793_344 + vocab_size * 128) / held,
        attention_flops_per_byte=12 * 4 * 128 * 128 / held,
        window_bytes=128 * held,
        window_characters=128 * held * 0.999,
        first_block="Once upon a time <there> was a fox.\n\nIt ran.",
        runs=tuple(runs),
    )


def _comparison(seeds: int = 1, documents: int = 60, close: bool = False) -> Comparison:
    return Comparison(
        corpus="stories <1>",
        budget="bytes=5000000",
        budget_axis="bytes",
        block_size=128,
        prompt="The <fox>",
        seeds=tuple(range(seeds)),
        settings={
            "recipe": "hf",
            "special_tokens": [],
            "body": {"embedding_dim": 128, "num_layers": 4, "dropout": 0.1},
            "command": "minigpt-tok compare 'a & b'",
            "threads": None,
            "documents": list(range(1000, 4000)),
        },
        entries=(
            _entry("characters", "characters", 97, 1.0, 2.31, seeds, documents),
            _entry("bpe-1024", "bpe", 1024, 2.9, 2.3095 if close else 1.95, seeds, documents),
            _entry("bpe-4096", "bpe", 4096, 3.6, 2.4 if close else 1.99, seeds, documents),
        ),
    )


@pytest.fixture(scope="session")
def comparison() -> Callable[..., Comparison]:
    """(seeds=1, documents=60, close=False) → a comparison of three tokenizers."""
    return _comparison
