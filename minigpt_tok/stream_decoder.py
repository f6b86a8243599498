"""Text from ids that come bit by bit."""

import codecs
from typing import TYPE_CHECKING, SupportsIndex

from minigpt_tok.arguments import Ids

if TYPE_CHECKING:
    from minigpt_tok.tokenizer import Tokenizer


class StreamDecoder:
    """Feed it ids, get text; bytes of an incomplete character are held back until it is complete."""

    def __init__(self, tokenizer: "Tokenizer", *, skip_special: bool = False, errors: str = "replace") -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._errors = errors
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        # Steps of a decoder may look at the whole text: then it comes at the end.
        self._held: list[SupportsIndex] | None = [] if tokenizer._carried.decode is not None else None

    def feed(self, ids: Ids | SupportsIndex) -> str:
        """The text that one id or several complete; may be empty."""
        if hasattr(ids, "__index__") and not getattr(ids, "shape", ()):
            ids = [ids]  # type: ignore[list-item]
        if self._held is not None:
            self._held += list(ids)  # type: ignore[arg-type]
            return ""
        return self._decoder.decode(self._tokenizer.decode_bytes(ids, skip_special=self._skip_special))  # type: ignore[arg-type]

    def finish(self) -> str:
        """What is left: an incomplete character, by the rule for errors. The decoder may be used again."""
        if self._held is not None:
            text = self._tokenizer.decode(self._held, skip_special=self._skip_special, errors=self._errors)
            self._held = []
            return text
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
