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
        return next(n for n, id in enumerate(plain) if not 0 <= id < len(tokens) or tokens[id] is None)

    def decode(self, ids: list[int] | np.ndarray, errors: str) -> str | int:
        """As `decode_bytes`, then as UTF-8."""
        raw = self.decode_bytes(ids)
        return raw if isinstance(raw, int) else raw.decode("utf-8", errors)
