"""How much a model may train on: a budget on one axis, and the meter that counts what was spent on all of them.

What is counted are *targets*, the ids that a model learns to predict, each time it sees them (so repeats count):

* bytes and characters are those of the text that the targets stand for. A special token stands for none. A character
  is counted with its first byte, so parts of characters add up to whole ones.
* tokens are the targets, specials included; padding (-100) is no target.
* FLOPs are tokens times the model's training FLOPs per token, 6 × (body + head parameters).
* seconds are those of training: validation, logging and saving between steps stop the clock.

**Where it stops.** On every axis but seconds the last batch is cut after the target that reaches the budget; the
targets behind it are masked. So a run spends at least its budget and less than one token more: models with other
tokenizers, on one budget of bytes, have seen the same number of bytes to within one token. The last step weighs
its loss by the share of the batch that was left, so that a few targets do not move the weights like a whole batch. By
seconds, the run stops after the first step that ends at or past the budget.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from minigpt_tok.errors import ModelError
from minigpt_tok.gpt.loss import IGNORED
from minigpt_tok.tokenizer import Tokenizer

AXES = {
    "bytes": "UTF-8 bytes of the targets' text, repeats counted: fair between tokenizers, the default for comparisons",
    "characters": "characters of the targets' text, repeats counted",
    "tokens": "targets: fair between models of one tokenizer only",
    "flops": "training FLOPs, 6 × (body + head parameters) per token",
    "seconds": "seconds of training, validation and saving apart; not reproducible",
}


@dataclass(frozen=True)
class Budget:
    """So much, on one axis: `Budget("bytes", 5e6)`, `Budget.parse("bytes=5e6")`.

    Attributes:
        axis: one of `AXES`, which says what each counts.
        amount: above 0, in units of the axis.

    Raises:
        ModelError: there is no such axis, or the amount is no number above 0.
    """

    axis: str
    amount: float

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            axes = "\n".join(f"  {axis}: {meaning}" for axis, meaning in AXES.items())
            raise ModelError(f"there is no budget by {self.axis!r}; choose one of\n{axes}")
        if isinstance(self.amount, bool) or not isinstance(self.amount, (int, float)):
            raise ModelError(f"a budget of {self.amount!r} {self.axis} is no number")
        if not 0 < self.amount < math.inf:
            raise ModelError(f"a budget of {self.amount} {self.axis}; give a number above 0")

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """From `axis=amount`; the amount as Python writes numbers: `bytes=5e6`, `tokens=1_000_000`, `seconds=90`.

        Raises:
            ModelError: it is not of this form, or as for the class itself.
        """
        axis, equals, amount = text.partition("=")
        try:
            number = float(amount)
        except ValueError:
            number = math.nan
        if not equals or math.isnan(number):
            raise ModelError(f"the budget {text!r} is not of the form axis=amount; write bytes=5e6 or seconds=90, say")
        return cls(axis.strip(), int(number) if number.is_integer() else number)

    def __str__(self) -> str:
        return f"{self.axis}={self.amount:g}" if self.amount != int(self.amount) else f"{self.axis}={int(self.amount)}"


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a run has spent, on every axis. `bytes` and `characters` are 0 where no tokenizer counted them."""

    bytes: int = 0
    characters: int = 0
    tokens: int = 0
    flops: int = 0
    seconds: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """As plain numbers; `Spent(**plain)` reads them."""
        return dict(vars(self))


class Clock:
    """Seconds of training: runs between `start` and `stop`, stands still inside of `paused`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._before = seconds
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """So far."""
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        """Run on."""
        self._before, self._since = self.seconds, time.perf_counter()

    def stop(self) -> None:
        """Stand still."""
        self._before, self._since = self.seconds, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is not counted."""
        running = self._since is not None
        self.stop()
        try:
            yield
        finally:
            if running:
                self.start()


class Meter:
    """Counts targets against a budget, on the CPU and before a batch goes anywhere: it never waits for a device.

    Attributes:
        budget: what may be spent.
        clock: of training.
        last_tokens: targets of the batch counted last, within the budget.
        last_share: their share of the batch's targets; below 1 only where the budget ends.
    """

    def __init__(self, budget: Budget, *, flops_per_token: int, tokenizer: Tokenizer | None = None) -> None:
        """Begin at nothing.

        Raises:
            ModelError: a budget of bytes or characters without a tokenizer, which alone knows them.
        """
        if tokenizer is None and budget.axis in ("bytes", "characters"):
            raise ModelError(f"a budget of {budget.axis} needs the tokenizer, to know how many each id stands for")
        self.budget = budget
        self.clock = Clock()
        self._flops_per_token = flops_per_token
        self._lengths = (
            {}
            if tokenizer is None
            else {
                "bytes": tokenizer.byte_lengths,
                "characters": tokenizer.character_lengths,
            }
        )
        self._spent = Spent()
        self.last_tokens = 0
        self.last_share = 1.0

    @property
    def spent(self) -> Spent:
        """So far, the batch counted last included."""
        return Spent(**{**self._spent.to_plain(), "seconds": self.clock.seconds})

    @property
    def progress(self) -> float:
        """The share of the budget that is spent, 0 to 1."""
        spent = self.clock.seconds if self.budget.axis == "seconds" else getattr(self._spent, self.budget.axis)
        return min(1.0, float(spent / self.budget.amount))

    @property
    def done(self) -> bool:
        """Whether the budget is spent."""
        return self.progress >= 1.0

    def restore(self, spent: Mapping[str, Any]) -> None:
        """Go on from what an earlier run spent (`Spent.to_plain`)."""
        self._spent = Spent(**spent)
        self.clock = Clock(self._spent.seconds)

    def take(self, targets: Tensor) -> Tensor:
        """Count a batch of targets, int64 of any shape; give those within the budget, -100 in place of the others."""
        before = self._spent.tokens
        within = self.count(targets.cpu().numpy())
        self.last_tokens = self._spent.tokens - before
        self.last_share = 1.0
        if within is None:
            return targets
        self.last_share = self.last_tokens / int((targets != IGNORED).sum())
        cut = targets.clone()
        cut.view(-1)[within:] = IGNORED
        return cut

    def count(self, targets: np.ndarray) -> int | None:
        """Count a batch of targets, int64 of any shape; -100 is none.

        Returns:
            How many places from the first on (row by row) are within the budget, or `None`: all of them.
        """
        flat = targets.reshape(-1)
        kept = flat if flat.min(initial=0) >= 0 else flat[flat != IGNORED]
        amounts = {name: int(lengths[kept].sum()) for name, lengths in self._lengths.items()}
        amounts["tokens"] = len(kept)
        amounts["flops"] = len(kept) * self._flops_per_token
        axis = self.budget.axis
        if axis != "seconds":
            left = self.budget.amount - getattr(self._spent, axis)
            if amounts[axis] > left:
                within = self._places_within(flat, left)
                if within < len(flat):
                    self.count(flat[:within])
                    return within
        before = self._spent
        self._spent = Spent(**{name: getattr(before, name) + amount for name, amount in amounts.items()})
        return None

    def _places_within(self, flat: np.ndarray, left: float) -> int:
        """Places up to and with the target that spends what is `left`."""
        is_target = flat != IGNORED
        if self.budget.axis in self._lengths:
            cost = np.where(is_target, self._lengths[self.budget.axis][np.where(is_target, flat, 0)], 0)
        else:
            cost = is_target * (1 if self.budget.axis == "tokens" else self._flops_per_token)
        return int(np.searchsorted(np.cumsum(cost), left)) + 1
