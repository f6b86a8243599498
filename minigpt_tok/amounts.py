"""Sizes, times and counts as people read them."""


def sized(n_bytes: float) -> str:
    """`1 byte`, `1,234 bytes`, `12.3 kB`, `4.5 MB`: powers of 1,000."""
    if abs(n_bytes) < 10_000:
        return counted(round(n_bytes), "byte")
    power = 1
    while abs(n_bytes) >= 999.5 * 1000**power and power < 4:
        power += 1
    shown = n_bytes / 1000**power
    return f"{shown:,.{0 if abs(shown) >= 99.95 else 1}f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def lasted(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `4 min 05 s`, `2 h 13 min`."""
    if seconds < 60:
        return f"{seconds:.{2 if seconds < 10 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def counted(number: int, what: str) -> str:
    """`1 document`, `2,345 documents`."""
    return f"{number:,} {what}{'s' * (number != 1)}"
