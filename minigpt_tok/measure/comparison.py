"""The result of a comparison of tokenizers: what was trained, how each scored, and what may be concluded.

Only values: no torch here, so that reports are made from it without.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from minigpt_tok.files import StrPath, write_text
from minigpt_tok.measure.bootstrap import Interval, ratio_interval
from minigpt_tok.measure.compression import Compression
from minigpt_tok.measure.scores import PERPLEXITY_NOTE, BitsPerByte, PairedDifference, paired_difference

RESULT = "comparison.json"  # its name in a comparison's folder
FORMAT = "minigpt-tok comparison"
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Where a run stood at one moment of its training.

    Attributes:
        bytes, tokens: of text seen so far as targets, repeats counted.
        flops: spent on training so far.
        seconds: of training so far, evaluation not counted.
        bits_per_byte: on the curve's sample of the validation text.
    """

    bytes: int
    tokens: int
    flops: float
    seconds: float
    bits_per_byte: float


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run with one seed.

    Attributes:
        seed: of initialization, dropout and the order of batches.
        score: on the validation text, at the end.
        curve: on a sample of it, on the way.
        bytes, tokens: of text seen as targets, repeats counted.
        flops: spent on training.
        seconds: of training, evaluation not counted.
        sample: the text generated from the prompt, the prompt included.
        checkpoint: where the model lies, relative to the comparison's folder.
    """

    seed: int
    score: BitsPerByte
    curve: tuple[CurvePoint, ...]
    bytes: int
    tokens: int
    flops: float
    seconds: float
    sample: str
    checkpoint: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tokenizer of the comparison, with the model trained on it.

    Attributes:
        name: unique in the comparison.
        kind: `characters`, `bytes`, `bpe` (trained here) or `given` (a published one).
        fingerprint: of the tokenizer.
        tokenizer: its file, relative to the comparison's folder.
        pattern: its pre-tokenizer.
        vocab_size: ids in all.
        compression: of the validation text.
        body_parameters: of the model's layers.
        position_parameters: of its learned positions.
        embedding_parameters: of its embedding, which is its head too.
        embedding_share: of all parameters, 0 to 1.
        training_flops_per_byte, attention_flops_per_byte: see `measure.compression`.
        window_bytes, window_characters: what a context window holds on average.
        first_block: the text of the first block of the validation text.
        runs: one for each seed.
    """

    name: str
    kind: str
    fingerprint: str
    tokenizer: str
    pattern: str
    vocab_size: int
    compression: Compression
    body_parameters: int
    position_parameters: int
    embedding_parameters: int
    embedding_share: float
    training_flops_per_byte: float
    attention_flops_per_byte: float
    window_bytes: float
    window_characters: float
    first_block: str
    runs: tuple[Run, ...]

    @property
    def bits_per_byte(self) -> float:
        """The mean over seeds."""
        return math.fsum(run.score.bits_per_byte for run in self.runs) / len(self.runs)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest bits per byte of the seeds; `None` with one seed."""
        scores = [run.score.bits_per_byte for run in self.runs]
        return (min(scores), max(scores)) if len(scores) > 1 else None

    @cached_property
    def interval(self) -> Interval | None:
        """The 95% interval of the mean over seeds: documents are drawn, and seeds where there are several."""
        bits = np.stack([run.score.document_bits for run in self.runs])
        return ratio_interval(bits, self.runs[0].score.document_bytes)

    @property
    def scores(self) -> tuple[BitsPerByte, ...]:
        """Of all seeds."""
        return tuple(run.score for run in self.runs)

    @property
    def seconds(self) -> float:
        """Of training, the mean over seeds."""
        return math.fsum(run.seconds for run in self.runs) / len(self.runs)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What may be said of two entries.

    Attributes:
        first, second: their names; the first has the lower mean.
        difference: bits per byte of the first minus the second, with its interval.
        text: in words, with the interval, honest about what it does not show.
    """

    first: str
    second: str
    difference: PairedDifference
    text: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All entries of a comparison, in the order in which they were asked for, and the settings that they share.

    Attributes:
        corpus: its name.
        budget: as given, `bytes=5000000`.
        budget_axis: `bytes`, `characters`, `tokens`, `flops` or `seconds`.
        block_size: of every model, in tokens.
        prompt: from which every model generated.
        seeds: of the runs of every entry.
        settings: everything else that is needed to do it again, as JSON can hold it.
        entries: the tokenizers.
    """

    corpus: str
    budget: str
    budget_axis: str
    block_size: int
    prompt: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    entries: tuple[Entry, ...]

    @property
    def budget_in_words(self) -> str:
        """`5,000,000 bytes of text seen each`."""
        return f"{float(self.budget.partition('=')[2]):,.0f} {AXES[self.budget_axis]} each"

    @cached_property
    def ranked(self) -> tuple[Entry, ...]:
        """The entries from the lowest to the highest bits per byte."""
        return tuple(sorted(self.entries, key=lambda entry: entry.bits_per_byte))

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The best against the second best, and everything against the character baseline, the best first."""
        pairs = [(first.name, second.name) for first, second in zip(self.ranked[:1], self.ranked[1:2], strict=False)]
        for entry in self.entries:
            if entry.kind != "characters":
                pairs += [
                    (better.name, worse.name)
                    for baseline in self.entries
                    if baseline.kind == "characters"
                    for better, worse in [sorted((entry, baseline), key=lambda one: one.bits_per_byte)]
                ]
        return tuple(self.verdict(*pair) for pair in dict.fromkeys(pairs))

    def verdict(self, first: str, second: str) -> Verdict:
        """Compare two entries by name."""
        by_name = {entry.name: entry for entry in self.entries}
        better, worse = sorted((by_name[first], by_name[second]), key=lambda entry: entry.bits_per_byte)
        difference = paired_difference(better.scores, worse.scores)
        return Verdict(
            first=better.name,
            second=worse.name,
            difference=difference,
            text=_in_words(better.name, worse.name, difference),
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the numbers do not say, in words."""
        said = [
            f"Equal {AXES[self.budget_axis]} for every model; the same body, optimizer, schedule, data and evaluation."
        ]
        if len(self.seeds) == 1:
            said.append(
                "One seed each: the intervals cover the choice of documents, not the luck of a training run. "
                "Several seeds show that too."
            )
        else:
            said.append(f"{len(self.seeds)} seeds each: the intervals cover the choice of documents and of seeds.")
        said.append(f"Token perplexity is {PERPLEXITY_NOTE}.")
        return tuple(said)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it: settings, entries with every document's bits, and verdicts."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "corpus": self.corpus,
            "budget": self.budget,
            "block_size": self.block_size,
            "prompt": self.prompt,
            "seeds": list(self.seeds),
            "settings": self.settings,
            "entries": [_plain_entry(entry) for entry in self.entries],
            "verdicts": [
                {
                    "first": verdict.first,
                    "second": verdict.second,
                    "text": verdict.text,
                    **verdict.difference.to_plain(),
                }
                for verdict in self.verdicts
            ],
            "caveats": list(self.caveats),
        }

    def save(self, path: StrPath) -> None:
        """Write `to_plain` as JSON, whole or not at all. Numbers that JSON lacks (infinity) become `null`."""
        write_text(path, json.dumps(_finite(self.to_plain()), ensure_ascii=False, indent=1, allow_nan=False) + "\n")


AXES = {
    "bytes": "bytes of text seen",
    "characters": "characters of text seen",
    "tokens": "tokens seen",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}


def _in_words(better: str, worse: str, found: PairedDifference) -> str:
    by = f"{-found.difference:.4f}"
    if found.interval is None:
        return (
            f"{better} needs {by} fewer bits per byte than {worse}, on a validation text of one document: "
            "there is no interval, and nothing can be said about other texts."
        )
    low, high = -found.interval.high, -found.interval.low
    level = f"{found.interval.level:.0%} interval"
    if found.is_shown:
        return f"{better} needs {by} fewer bits per byte than {worse} ({level} {low:.4f} to {high:.4f})."
    return (
        f"No difference is shown between {better} and {worse}: {by} bits per byte, but the {level}, "
        f"{_signed(low)} to {_signed(high)}, contains 0. More documents, more seeds or a larger budget may show one."
    )


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def _plain_entry(entry: Entry) -> dict[str, Any]:
    plain = {key: value for key, value in entry.__dict__.items() if key not in ("runs", "compression")}
    return {
        **plain,
        "bits_per_byte": entry.bits_per_byte,
        "spread": entry.spread,
        "compression": entry.compression.to_plain(),
        "runs": [
            {
                **{key: value for key, value in run.__dict__.items() if key not in ("score", "curve")},
                "score": run.score.to_plain(with_documents=True),
                "curve": [asdict(point) for point in run.curve],
            }
            for run in entry.runs
        ],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value
