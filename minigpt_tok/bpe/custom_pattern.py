"""Pre-tokenizers from a user's own regular expression."""

import warnings
from collections.abc import Callable, Iterator

from minigpt_tok.bpe.expression import get_expression
from minigpt_tok.bpe.oniguruma import UnreadableError
from minigpt_tok.bpe.patterns import pattern_names, shortened
from minigpt_tok.bpe.pretokenize import PreTokenizer, UnicodeVersionWarning
from minigpt_tok.errors import TokenizerError


class CustomPattern(PreTokenizer):
    """Any other regular expression.

    Text between two matches is a piece of its own, as is each match: what Hugging Face calls Split, "isolated"
    (tiktoken would drop the text between). So pieces join back to the text whatever the expression.

    One that every engine reads alike is run over our own class table (`expression`). What any other means and how long
    it takes is up to the `regex` package: `$`, for one, also matches before a last newline there, before any newline
    in Hugging Face's engine, and at the very end alone in tiktoken's.
    """

    name = None
    expression: str

    def __init__(self, expression: str) -> None:
        self.expression = expression
        try:
            read = get_expression(expression)
        except (UnreadableError, RecursionError):
            self._matches = self._by_regex(expression)
        else:
            self._matches = read.matches if read.neutral else self._by_regex(expression)

    def _by_regex(self, expression: str) -> Callable[[str], Iterator[tuple[int, int]]]:
        import regex

        try:
            compiled = regex.compile(expression)
        except (regex.error, OverflowError, RecursionError) as error:
            position = getattr(error, "pos", None)
            where = "" if position is None else f" at character {position}, {expression[position : position + 20]!r}"
            raise TokenizerError(
                f"the pattern {shortened(expression)} is no regular expression that the regex package can run: "
                f"{getattr(error, 'msg', error)}{where}. Correct it there, or name one of {pattern_names()}"
            ) from error
        warnings.warn(
            f"the pattern {shortened(expression)} has no name here, and engines read it differently, so the installed "
            f"regex package {regex.__version__} cuts by it, with its own version of Unicode: another version of the package "
            f"may give other ids. The patterns {pattern_names()} do not depend on it",
            UnicodeVersionWarning,
            stacklevel=4,
        )

        def matches(text: str) -> Iterator[tuple[int, int]]:
            search_from = 0
            while search_from <= len(text):
                for match in compiled.finditer(text, search_from):
                    start, end = match.span()
                    yield start, end
                    if start == end:  # The next match may begin at the next character only, as in Oniguruma.
                        search_from = end + 1
                        break
                else:
                    return

        return matches

    def pieces(self, text: str) -> list[str]:
        return [text[start:end] for start, end, _ in self._spans(text)]

    def explain(self, text: str) -> list[tuple[str, str]]:
        return [
            (text[start:end], "the expression" if matched else "between matches")
            for start, end, matched in self._spans(text)
        ]

    def _spans(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Start, end and whether the expression matched there, for each piece; an empty match only cuts."""
        done = 0
        for start, end in self._matches(text):
            if done < start:
                yield done, start, False
            if start < end:
                yield start, end, True
            done = end
        if done < len(text):
            yield done, len(text), False
