"""Finding added tokens in text, leftmost-longest, before anything else looks at it.

As in `tokenizers`, those that are not `normalized` are found first, in the text as it came; what is between them is
normalized, and the others are found in that, as their own text reads when it is normalized. Each side of a token is a
text of its own to what comes after.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Literal

from minigpt_tok.bpe import character_sets as sets
from minigpt_tok.bpe.model import AddedToken
from minigpt_tok.bpe.normalize import Normalizer, Span, from_printable
from minigpt_tok.bpe.pretokenize import is_space
from minigpt_tok.errors import TokenizerError

SpecialTokens = Collection[str] | Literal["all"]


def added_bytes(token: AddedToken, normalizer: Normalizer | None) -> bytes:
    """What an added token stands for in decoded text: its content, normalized where that is what is looked for."""
    form = added_form(token, normalizer)
    printable = token.normalized and normalizer is not None and normalizer.gives_printable
    return from_printable(form) if printable else form.encode("utf-8")


def added_form(token: AddedToken, normalizer: Normalizer | None) -> str:
    """What is looked for where the token is: its content, normalized or not."""
    return normalizer(token.content) if normalizer is not None and token.normalized else token.content


class AddedTokens:
    """The added tokens of one tokenizer, and which of them a caller wants matched."""

    def __init__(self, tokens: Iterable[AddedToken], normalizer: Normalizer | None = None) -> None:
        self._tokens = tuple(tokens)
        self._normalizer = normalizer
        self._specials = frozenset(token.content for token in self._tokens if token.special)
        self._matchers: dict[frozenset[str], Matcher] = {}

    def matcher(self, allowed_special: SpecialTokens = ()) -> "Matcher":
        """Matches the tokens that are not special, and those specials that are allowed."""
        allowed = self._specials & self._named(allowed_special, "allowed_special")
        if allowed not in self._matchers:
            wanted = (token for token in self._tokens if not token.special or token.content in allowed)
            self._matchers[allowed] = Matcher(wanted, self._normalizer)
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
        return Matcher((token for token in self._tokens if token.special), self._normalizer)

    def _named(self, tokens: SpecialTokens, argument: str) -> frozenset[str]:
        if isinstance(tokens, str):
            if tokens != "all":
                raise TokenizerError(f"{argument} is the string {tokens!r}; pass a set of special tokens, or 'all'")
            return self._specials
        return frozenset(tokens)


class Matcher:
    """One set of added tokens to look for."""

    def __init__(self, tokens: Iterable[AddedToken], normalizer: Normalizer | None = None) -> None:
        self.normalizer = normalizer
        tokens = tuple(tokens)
        raw = {token.content: token for token in tokens if not token.normalized}
        late = {
            normalizer(token.content) if normalizer else token.content: token for token in tokens if token.normalized
        }
        if raw or normalizer is not None:
            self._first, self._second = _Pass(raw), _Pass(late)
        else:  # nothing to do in between, so one pass is enough
            self._first, self._second = _Pass(late), _Pass({})

    def __bool__(self) -> bool:
        return bool(self._first) or bool(self._second)

    def find(self, text: str) -> Iterator[tuple[int, int, AddedToken]]:
        """(start, end, token) of every match, in characters, left to right; white space that a flag takes in included."""
        for span, part in self.parts_with_spans(text):
            if isinstance(part, AddedToken):
                yield *span, part

    def split(self, text: str) -> Iterator[tuple[int, str | AddedToken]]:
        """(start in characters, added token or non-empty plain text between them), in order, as if nothing were normalized."""
        if not self._second or self.normalizer is not None:
            yield from ((start, part) for start, _, part in self._first.split(text))
            return
        for start, _, part in self._first.split(text):
            if isinstance(part, AddedToken):
                yield start, part
            else:
                yield from ((start + within, inner) for within, _, inner in self._second.split(part))

    def parts(self, text: str) -> Iterator[str | AddedToken]:
        """Added tokens, and what is to be cut between them: normalized, and not empty."""
        if self.normalizer is None:
            yield from (part for _, part in self.split(text))
            return
        for _, _, part in self._first.split(text):
            if isinstance(part, AddedToken):
                yield part
            else:
                yield from (inner for _, _, inner in self._second.split(self.normalizer(part)))

    def parts_with_spans(self, text: str) -> Iterator[tuple[Span, AddedToken | tuple[str, list[Span] | None]]]:
        """The same with (start, end) in characters of `text`, and for normalized text the span of each character.

        `None` for the spans where no normalizer has been: the characters of `text` from `start` on.
        """
        for start, end, part in self._first.split(text):
            if isinstance(part, AddedToken):
                yield (start, end), part
            elif self.normalizer is None:
                for first, last, inner in self._second.split(part):
                    yield (start + first, start + last), inner if isinstance(inner, AddedToken) else (inner, None)
            else:
                places = [(place, place + 1) for place in range(start, end)]
                normal, spans = self.normalizer.with_spans(part, places)
                for first, last, inner in self._second.split(normal):
                    span = spans[first][0], spans[last - 1][1]
                    yield span, inner if isinstance(inner, AddedToken) else (inner, spans[first:last])

    @property
    def plain_texts(self) -> tuple[str, ...] | None:
        """What is looked for, where that is found leftmost-longest in the text as it is, and nothing else is done to it."""
        if self.normalizer is not None or self._second or self._first.looks_around:
            return None
        return self._first.texts

    @cached_property
    def reach(self) -> int:
        """How many characters from its start, in characters, can decide whether a token is matched; 0 without tokens."""
        return max(self._first.reach, self._second.reach)

    @cached_property
    def looks_around(self) -> bool:
        """Whether the text beside some token matters: white space taken in, or words that must not touch it."""
        return self._first.looks_around or self._second.looks_around

    @cached_property
    def finds_normalized(self) -> bool:
        """Whether some token is looked for in normalized text."""
        return self.normalizer is not None and bool(self._second)

    def spans(self, text: str) -> list[Span]:
        """(start, end) of what the tokens take up, with the characters beside it that they look at."""
        beside = int(self.looks_around)
        found = self._first.spans(text)
        if self._second:
            plain = ((start, part) for start, _, part in self._first.split(text) if isinstance(part, str))
            found += [(start + a, start + b) for start, part in plain for a, b in self._second.spans(part)]
        return [(start - beside, end + beside) for start, end in found]

    def can_end_before_token(self, text: str) -> bool:
        """Whether a token that begins after `text` could not take in white space at its end."""
        return not (is_space(text[-1]) and (self._first.takes_space_before or self._second.takes_space_before))


class _Pass:
    """Texts to look for, and the tokens that they are."""

    def __init__(self, by_content: dict[str, AddedToken]) -> None:
        self._by_content = by_content
        self.texts = tuple(by_content)
        self.reach = max(map(len, by_content), default=-1) + 1
        self.looks_around = any(token.lstrip or token.rstrip or token.single_word for token in by_content.values())
        self.takes_space_before = any(token.lstrip for token in by_content.values())

    def __bool__(self) -> bool:
        return bool(self._by_content)

    @cached_property
    def _expression(self) -> "re.Pattern[str]":
        # Python takes the first alternative that fits, so the longest stands first.
        return re.compile("|".join(map(re.escape, sorted(self._by_content, key=len, reverse=True))))

    def _candidates(self, text: str) -> Iterator[tuple[int, int, AddedToken | None]]:
        """(start, end, token); `None` for one that `single_word` refuses: its characters are not looked at again."""
        if not self._by_content:
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
            done = end
            yield start, end, token

    def split(self, text: str) -> Iterator[tuple[int, int, str | AddedToken]]:
        """(start, end, token or non-empty text between them), in order.

        A token that is or begins with white space can be found in what the one before has taken in, as in `tokenizers`.
        """
        done = 0
        for start, end, token in self._candidates(text):
            if token is None:
                continue
            if start > done:
                yield done, start, text[done:start]
            yield start, end, token
            done = end
        if done < len(text):
            yield done, len(text), text[done:] if done else text

    def spans(self, text: str) -> list[Span]:
        return [(start, end) for start, end, _ in self._candidates(text)]


def _is_word(character: str) -> bool:
    return sets.contains(sets.rust_word(), ord(character))


def _word_before(text: str, place: int) -> bool:
    return place > 0 and _is_word(text[place - 1])


def _word_at(text: str, place: int) -> bool:
    return place < len(text) and _is_word(text[place])
