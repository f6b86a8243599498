"""Numbers as people read them in tables."""

import math

from minigpt_tok.measure.bootstrap import Interval


def short(value: float) -> str:
    """`812`, `64.0k`, `1.02M`, `3.4G`, `1.2T`: three digits or so, powers of 1,000."""
    if not math.isfinite(value):
        return str(value)
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            return f"{scaled:.{2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0}f}{unit}"
    return f"{value:.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.3g}"


def tick(value: float) -> str:
    """As `short`, without zeros at the end: `2M`, `2.5M`."""
    text = short(value)
    digits = text.rstrip("kMGTP")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + text[len(digits) :]


def duration(seconds: float) -> str:
    """`0.42 s`, `62.3 s`, `4 min 05 s`, `2 h 13 min`."""
    if seconds < 99.95:
        return f"{seconds:.{2 if seconds < 9.995 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def between(interval: Interval | None, digits: int = 4) -> str:
    """`1.2341 to 1.3450`, or a dash where there is no interval."""
    return "–" if interval is None else f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"
