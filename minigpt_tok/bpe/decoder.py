"""From ids to bytes in Python."""

from collections.abc import Sequence

import numpy as np


class Decoder:
    """Joins the raw bytes of ids. Bytes of a character may be spread over tokens, so text is decoded once, at the end."""

    def __init__(self, tokens: Sequence[bytes | None]) -> None:
        self._tokens = tokens

    def decode_bytes(self, ids: list[int] | np.ndarray) -> bytes | int:
        """The bytes of all ids; or, where one is no id, its position."""
        plain = ids.tolist() if isinstance(ids, np.ndarray) else ids
        tokens = self._tokens
        try:
            if min(plain, default=0) >= 0:
                return b"".join([tokens[id] for id in plain])  # type: ignore[misc]  # a hole raises TypeError
        except (IndexError, TypeError):
            pass
        parts = []
        for place, id in enumerate(plain):  # one by one, to find out where it is
            number = id.__index__() if hasattr(id, "__index__") else -1
            raw = tokens[number] if 0 <= number < len(tokens) else None
            if raw is None:
                return place
            parts.append(raw)
        return b"".join(parts)

    def decode(self, ids: list[int] | np.ndarray, errors: str) -> str | int:
        """As `decode_bytes`, then as UTF-8."""
        raw = self.decode_bytes(ids)
        return raw if isinstance(raw, int) else raw.decode("utf-8", errors)
