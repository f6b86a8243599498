"""The learning rate over a run, by the share of the budget that is spent."""

import math


def learning_rate(progress: float, *, peak: float, warmup: float, floor: float) -> float:
    """A straight line up to `peak`, then half a cosine down to `floor`.

    The progress is that *after* the step at hand, so the first step's rate is above 0 and the last one's is `floor`;
    and models that take other numbers of steps for one budget go through the same rates at the same share of it.

    Args:
        progress: share of the budget spent, 0 to 1.
        peak: the highest rate.
        warmup: share of the budget in which the rate rises.
        floor: the rate at the end.
    """
    if progress < warmup:
        return peak * progress / warmup
    fallen = (progress - warmup) / (1 - warmup) if warmup < 1 else 1.0
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, fallen)))
