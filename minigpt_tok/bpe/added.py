"""Finding added tokens in text, leftmost-longest, before anything else looks at it."""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Literal

from minigpt_tok.bpe.model import AddedToken
from minigpt_tok.bpe.pretokenize import is_letter, is_mark, is_number, is_space
from minigpt_tok.errors import TokenizerError

SpecialTokens = Collection[str] | Literal["all"]


class AddedTokens:
    """The added tokens of one tokenizer, and which of them a caller wants matched."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens = tuple(tokens)
        self._specials = frozenset(token.content for token in self._tokens if token.special)
        self._matchers: dict[frozenset[str], Matcher] = {}

    def matcher(self, allowed_special: SpecialTokens = ()) -> "Matcher":
        """Matches the tokens that are not special, and those specials that are allowed."""
        allowed = self._specials & self._named(allowed_special, "allowed_special")
        if allowed not in self._matchers:
            self._matchers[allowed] = Matcher(
                token for token in self._tokens if not token.special or token.content in allowed
            )
        return self._matchers[allowed]

    def refuse(
        self, text: str, allowed_special: SpecialTokens, disallowed_special: SpecialTokens, *, offset: int = 0
    ) -> None:
        """Raise if `text` has a special token that is disallowed and not allowed; `offset` is where `text` begins.

        Raises:
            TokenizerError: naming the token, its position in characters, and what to pass for each intention.
        """
        if not disallowed_special:
            return
        refused = self._named(disallowed_special, "disallowed_special") - self._named(
            allowed_special, "allowed_special"
        )
        for start, _, token in self.specials.find(text):
            if token.content in refused:
                raise TokenizerError(
                    f"the text has the special token {token.content!r} at character {offset + start:,}, which is disallowed "
                    f"here.\nTo get its id {token.id}, pass allowed_special={{{token.content!r}}}.\n"
                    "To have it encoded as plain text, leave it out of disallowed_special."
                )

    @cached_property
    def specials(self) -> "Matcher":
        """Matches all specials, allowed or not: an allowed token that contains a refused one is not taken for it."""
        return Matcher(token for token in self._tokens if token.special)

    def _named(self, tokens: SpecialTokens, argument: str) -> frozenset[str]:
        if isinstance(tokens, str):
            if tokens != "all":
                raise TokenizerError(f"{argument} is the string {tokens!r}; pass a set of special tokens, or 'all'")
            return self._specials
        return frozenset(tokens)


class Matcher:
    """One set of added tokens to look for."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._by_content = {token.content: token for token in tokens}

    def __bool__(self) -> bool:
        return bool(self._by_content)

    @cached_property
    def _expression(self) -> "re.Pattern[str] | None":
        # Python takes the first alternative that fits, so the longest stands first.
        longest_first = sorted(self._by_content, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def find(self, text: str) -> Iterator[tuple[int, int, AddedToken]]:
        """(start, end, token) of every match, in characters, left to right; white space that a flag takes in included."""
        for start, end, token in self._candidates(text):
            if token is not None:
                yield start, end, token

    def _candidates(self, text: str) -> Iterator[tuple[int, int, AddedToken | None]]:
        """As `find`, with `None` for a token that `single_word` refuses: its characters are not looked at again."""
        if self._expression is None:
            return
        done = 0
        for match in self._expression.finditer(text):
            start, end = match.span()
            token = self._by_content[match.group()]
            if token.single_word and (_word_before(text, start) or _word_at(text, end)):
                yield start, end, None
                continue
            if token.lstrip:
                while start > done and is_space(text[start - 1]):
                    start -= 1
            if token.rstrip:
                while end < len(text) and is_space(text[end]):
                    end += 1
            start = max(start, done)
            done = end
            yield start, end, token

    def split(self, text: str) -> Iterator[tuple[int, str | AddedToken]]:
        """(start in characters, added token or non-empty plain text between them), in order."""
        done = 0
        for start, end, token in self.find(text):
            if start > done:
                yield done, text[done:start]
            yield start, token
            done = end
        if done < len(text):
            yield done, text[done:] if done else text

    @cached_property
    def reach(self) -> int:
        """How many characters from its start, in characters, can decide whether a token is matched; 0 without tokens."""
        return max(map(len, self._by_content), default=-1) + 1

    @cached_property
    def looks_around(self) -> bool:
        """Whether the text beside some token matters: white space taken in, or words that must not touch it."""
        return any(token.lstrip or token.rstrip or token.single_word for token in self._by_content.values())

    def spans(self, text: str) -> list[tuple[int, int]]:
        """(start, end) of what the tokens take up, with the characters beside it that they look at."""
        beside = int(self.looks_around)
        return [(start - beside, end + beside) for start, end, _ in self._candidates(text)]

    def can_end_before_token(self, text: str) -> bool:
        """Whether a token that begins after `text` could not take in white space at its end."""
        return not (is_space(text[-1]) and any(token.lstrip for token in self._by_content.values()))


def _is_word(character: str) -> bool:
    return character == "_" or is_letter(character) or is_number(character) or is_mark(character)


def _word_before(text: str, place: int) -> bool:
    return place > 0 and _is_word(text[place - 1])


def _word_at(text: str, place: int) -> bool:
    return place < len(text) and _is_word(text[place])
