"""What differs between two tokenizers: the first thing, whether a tie decided it, and which ids change meaning.

    >>> print(difference(a, b, names=("old.json", "new.json")))
    old.json  60b7…
    new.json  9b1c…
    the merge at rank 17: 't' + 'he' in old.json, 'th' + 'e' in new.json
    …

Two tokenizers are the same exactly if their fingerprints are; so the things compared here are those in the
fingerprint's canonical text, in an order in which the first one found explains most of the others.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.model import AddedToken
from minigpt_tok.bpe.ranks import implied_merges
from minigpt_tok.fingerprint import canonical_text
from minigpt_tok.tokenizer import Tokenizer

Pair = tuple[bytes, bytes]
FLAGS = ("special", "lstrip", "rstrip", "single_word")
RANK_RULES = {"bytes": "joined bytes that are a token", "pair": "pairs in the merge list"}


@dataclass(frozen=True, kw_only=True)
class MergeDifference:
    """The first rank at which two merge lists differ.

    Attributes:
        rank: the position in both lists, from 0; all merges before it are equal.
        first, second: the merge there, readable; `None` where a list has ended.
        first_count, second_count: how often the pair occurred when it was chosen, where there is a training record.
        tie: whether both records say that the two pairs were equally frequent in what may be one text (equal sizes,
            equal token counts up to there), so that only the rule for ties decided. `None` without both records.
    """

    rank: int
    first: tuple[str, str] | None
    second: tuple[str, str] | None
    first_count: int | None = None
    second_count: int | None = None
    tie: bool | None = None


class ChangedId(NamedTuple):
    """An id and what it means in each tokenizer, readable; `None`: nothing, it is a hole."""

    id: int
    first: str | None
    second: str | None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How two tokenizers differ; `str()` of it is a page to read.

    Attributes:
        names: what the two are called in the sentences.
        fingerprints: of both.
        vocab_sizes: of both.
        reasons: every kind of thing that differs, a sentence each, the most telling first; empty if they are the same.
        first_merge: the first different merge, or `None` if all are equal or the units differ.
        ids_changed: how many of the ids below the smaller vocabulary size mean something else.
        changed: the first few of them.
        only_first, only_second: how many ids only one of the two has, at its end.
        shared_tokens: how many tokens (by their bytes, whatever the id; specials apart from ordinary ones) both have.
        all_tokens: how many tokens at least one has.
    """

    names: tuple[str, str]
    fingerprints: tuple[str, str]
    vocab_sizes: tuple[int, int]
    reasons: tuple[str, ...]
    first_merge: MergeDifference | None
    ids_changed: int
    changed: tuple[ChangedId, ...]
    only_first: int
    only_second: int
    shared_tokens: int
    all_tokens: int

    @property
    def same(self) -> bool:
        """Whether the two are one tokenizer."""
        return self.fingerprints[0] == self.fingerprints[1]

    @property
    def first(self) -> str | None:
        """The first thing that differs, or `None`."""
        return self.reasons[0] if self.reasons else None

    @property
    def ids_sentence(self) -> str:
        """How many ids change meaning, and how many only one of the two has."""
        sentence = f"{self.ids_changed:,} of {min(self.vocab_sizes):,} ids change meaning"
        for name, only in zip(self.names, (self.only_first, self.only_second), strict=True):
            if only:
                sentence += f"; {counted(only, 'id')} only in {name}"
        return sentence

    @property
    def tie_sentence(self) -> str | None:
        """Whether a tie decided the first different merge; `None` where that is not known."""
        merge = self.first_merge
        if merge is None or merge.tie is None:
            return None
        if merge.tie:
            return f"a tie decided it, if both learned from one text: each pair occurred {counted(merge.first_count or 0, 'time')}"
        return (
            f"no tie decided it: the pairs occurred {merge.first_count:,} and {counted(merge.second_count or 0, 'time')}, "
            "each in its own text"
        )

    def __str__(self) -> str:
        width = max(map(len, self.names))
        lines = [f"{name:<{width}}  {print}" for name, print in zip(self.names, self.fingerprints, strict=True)]
        if self.same:
            return "\n".join([*lines, f"the same tokenizer, {self.vocab_sizes[0]:,} ids"])
        lines += self.reasons
        if (tie := self.tie_sentence) is not None:
            lines.append(tie)
        lines.append(
            f"{self.shared_tokens:,} of {self.all_tokens:,} tokens are in both ({self.shared_tokens / self.all_tokens:.1%})"
        )
        lines.append(self.ids_sentence)
        lines += [f"  id {id}: {_quoted(first)} → {_quoted(second)}" for id, first, second in self.changed]
        if len(self.changed) < self.ids_changed:
            lines.append("  …")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """Two tokenizers on one text.

    Attributes:
        documents: how many texts; documents_that_differ: of these, those whose ids differ.
        bytes: of the texts in UTF-8.
        first, second: tokens.
    """

    names: tuple[str, str]
    documents: int
    documents_that_differ: int
    bytes: int
    first: int
    second: int

    @property
    def bytes_per_token(self) -> tuple[float, float]:
        """Of both; 0 where there are no tokens."""
        first, second = (self.bytes / tokens if tokens else 0.0 for tokens in (self.first, self.second))
        return first, second

    def __str__(self) -> str:
        percent = f" ({(self.second - self.first) / self.first:+.1%})" if self.first else ""
        return (
            f"on {counted(self.bytes, 'byte')}: {counted(self.first, 'token')} with {self.names[0]} "
            f"({self.bytes_per_token[0]:.2f} bytes per token), {counted(self.second, 'token')} with {self.names[1]} "
            f"({self.bytes_per_token[1]:.2f}){percent}; "
            f"ids differ in {self.documents_that_differ:,} of {counted(self.documents, 'document')}"
        )


def difference(
    first: Tokenizer, second: Tokenizer, *, names: tuple[str, str] = ("the first", "the second"), show: int = 5
) -> Difference:
    """Compare two tokenizers.

    Args:
        first, second: the two.
        names: what to call them in the sentences.
        show: how many of the ids that change meaning to list.
    """
    meanings = (_meanings(first), _meanings(second))
    changed = [id for id, (a, b) in enumerate(zip(*meanings, strict=False)) if a != b]
    tokens = tuple({meaning for meaning in side if meaning is not None} for side in meanings)
    same = first.fingerprint == second.fingerprint
    first_merge = None
    reasons: list[str] = []
    if not same:
        sides = (_Side(first), _Side(second))
        if first.unit == second.unit:
            first_merge = _first_merge(sides)
        reasons = _reasons(sides, first_merge, changed, meanings, names)
    return Difference(
        names=names,
        fingerprints=(first.fingerprint, second.fingerprint),
        vocab_sizes=(first.vocab_size, second.vocab_size),
        reasons=tuple(reasons),
        first_merge=first_merge,
        ids_changed=len(changed),
        changed=tuple(ChangedId(id, _shown(meanings[0][id]), _shown(meanings[1][id])) for id in changed[:show]),
        only_first=max(0, first.vocab_size - second.vocab_size),
        only_second=max(0, second.vocab_size - first.vocab_size),
        shared_tokens=len(tokens[0] & tokens[1]),
        all_tokens=len(tokens[0] | tokens[1]),
    )


def first_difference(
    first: Tokenizer, second: Tokenizer, *, names: tuple[str, str] = ("the first", "the second")
) -> str | None:
    """The first thing that differs, in a sentence; `None` if they are the same tokenizer."""
    return difference(first, second, names=names).first


def counts_on(
    first: Tokenizer,
    second: Tokenizer,
    texts: Iterable[str],
    *,
    names: tuple[str, str] = ("the first", "the second"),
) -> TextCounts:
    """Encode texts with both and count.

    Raises:
        TokenizerError: a text that one of them cannot encode.
    """
    documents = differ = size = first_tokens = second_tokens = 0
    for text in texts:
        ids = (first.encode(text), second.encode(text))
        documents += 1
        differ += ids[0] != ids[1]
        size += len(text.encode("utf-8"))
        first_tokens += len(ids[0])
        second_tokens += len(ids[1])
    return TextCounts(
        names=names,
        documents=documents,
        documents_that_differ=differ,
        bytes=size,
        first=first_tokens,
        second=second_tokens,
    )


def readable(raw: bytes) -> str:
    """Raw bytes as a person reads them: `␣the` for ` the`, `\\xe6` for a byte that is no character alone."""
    text = raw.decode("utf-8", "backslashreplace").replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


# What an id means: (special or ordinary, its bytes); None: a hole.
_Meaning = tuple[str, bytes] | None


def _meanings(tokenizer: Tokenizer) -> list[_Meaning]:
    meanings: list[_Meaning] = [None if raw is None else ("", raw) for raw in tokenizer.model.tokens]
    for token in tokenizer.model.added_tokens:
        meanings[token.id] = (_kind(token), token.content.encode("utf-8"))
    return meanings


def _kind(token: AddedToken) -> str:
    return "special" if token.special else "added"


def _shown(meaning: _Meaning) -> str | None:
    if meaning is None:
        return None
    kind, raw = meaning
    return f"{readable(raw)} ({kind})" if kind else readable(raw)


def _quoted(text: str | None) -> str:
    return "nothing" if text is None else f"'{text}'"


class _Side:
    """One of the two, in the terms of the fingerprint's canonical text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.model = tokenizer.model
        form: dict[str, Any] = json.loads(canonical_text(self.model))
        self.pattern: str = form.get("pattern", "none") if self.model.pipeline is None else str(self.model.pipeline)
        self.normalizer = str(form.get("normalizer", "none"))
        self.rank_rule: str = form.get("rank_rule", "pair")
        self.whole_piece: bool = form.get("whole_piece", False)
        self.added = {token.content: token for token in self.model.added_tokens}

    def merges(self) -> list[Pair]:
        """By rank. Where ranks say it all, the merges they imply, however the tokenizer's file wrote them down."""
        tokens = self.model.tokens
        several_splits = len(self.model.merges) > len(set(self.model.merge_results))
        if self.rank_rule == "bytes" and (self.model.rank_rule == "bytes" or several_splits):
            pairs: Iterable[tuple[int, int]] = implied_merges(self.model).values()
        else:
            pairs = self.model.merges
        return [(tokens[left] or b"", tokens[right] or b"") for left, right in pairs]


def _first_merge(sides: tuple[_Side, _Side]) -> MergeDifference | None:
    lists = (sides[0].merges(), sides[1].merges())
    if lists[0] == lists[1]:
        return None
    shorter = min(map(len, lists))
    rank = next((rank for rank in range(shorter) if lists[0][rank] != lists[1][rank]), shorter)
    first, second = (merges[rank] if rank < len(merges) else None for merges in lists)
    counts = [_count(side, len(merges), rank) for side, merges in zip(sides, lists, strict=True)]
    return MergeDifference(
        rank=rank,
        first=None if first is None else (readable(first[0]), readable(first[1])),
        second=None if second is None else (readable(second[0]), readable(second[1])),
        first_count=counts[0],
        second_count=counts[1],
        tie=None if None in counts else counts[0] == counts[1] and _may_be_one_text(sides, rank),
    )


def _count(side: _Side, merges: int, rank: int) -> int | None:
    training = side.tokenizer.training
    if training is None or len(training.counts) != merges or rank >= merges:
        return None
    return training.counts[rank]


def _may_be_one_text(sides: tuple[_Side, _Side], rank: int) -> bool:
    first, second = (side.tokenizer.training for side in sides)
    return (
        first is not None
        and second is not None
        and (first.documents, first.bytes, first.distinct_pieces, first.base_tokens)
        == (second.documents, second.bytes, second.distinct_pieces, second.base_tokens)
        and first.curve[:rank] == second.curve[:rank]
    )


def _reasons(
    sides: tuple[_Side, _Side],
    first_merge: MergeDifference | None,
    changed: list[int],
    meanings: tuple[list[_Meaning], list[_Meaning]],
    names: tuple[str, str],
) -> list[str]:
    first, second = sides
    reasons = []

    def compare(what: str, one: str, other: str) -> None:
        if one != other:
            reasons.append(f"{what}: {one} in {names[0]}, {other} in {names[1]}")

    compare("the unit", f"{first.model.unit}s", f"{second.model.unit}s")
    compare("the vocabulary size", f"{first.model.vocab_size:,}", f"{second.model.vocab_size:,}")
    if first.model.unit == second.model.unit:
        if (base := _base_reason(sides, names)) is not None:
            reasons.append(base)
        if first_merge is not None:
            reasons.append(_merge_reason(first_merge, names))
        compare("what merges", RANK_RULES[first.rank_rule], RANK_RULES[second.rank_rule])
    if first.whole_piece != second.whole_piece:
        where = names[0] if first.whole_piece else names[1]
        reasons.append(f"the rule that a piece which is a token is taken whole: only in {where}")
    if first.pattern != second.pattern:
        reasons.append(
            f"the pre-tokenizer: {_short(first.pattern)} in {names[0]}, {_short(second.pattern)} in {names[1]}"
        )
    compare("the normalizer", _short(first.normalizer), _short(second.normalizer))
    reasons += _added_reasons(sides, names)
    base_moved = first.model.base_ids != second.model.base_ids and set(first.model.base_ids) == set(
        second.model.base_ids
    )
    if first.model.unit == second.model.unit and (first_merge is None or base_moved):
        # Of ordinary tokens: where added tokens stand is said above.
        moved = (id for id in changed if any(side[id] is None or side[id][0] == "" for side in meanings))  # type: ignore[index]
        if (id := next(moved, None)) is not None:
            shown = [_quoted(_shown(side[id])) for side in meanings]
            reasons.append(f"the numbering: id {id} is {shown[0]} in {names[0]}, {shown[1]} in {names[1]}")
    return reasons or ["other rules of encoding: compare the canonical texts of both fingerprints"]


def _base_reason(sides: tuple[_Side, _Side], names: tuple[str, str]) -> str | None:
    base = [set(side.model.base_ids) for side in sides]
    parts = [
        f"{_listed(sorted(only))}{'' if number else ' is'} only in {name}"
        for number, (only, name) in enumerate(
            (only, name) for only, name in ((base[0] - base[1], names[0]), (base[1] - base[0], names[1])) if only
        )
    ]
    return f"the base tokens: {', '.join(parts)}" if parts else None


def _listed(tokens: list[bytes]) -> str:
    shown = " ".join(f"'{readable(token)}'" for token in tokens[:5])
    return shown if len(tokens) <= 5 else f"{shown} and {len(tokens) - 5:,} more"


def _merge_reason(merge: MergeDifference, names: tuple[str, str]) -> str:
    if merge.first is None or merge.second is None:
        longer, shorter = names if merge.second is None else names[::-1]
        left, right = merge.first or merge.second or ("", "")
        return (
            f"the merge at rank {merge.rank:,}: '{left}' + '{right}' in {longer}, none in {shorter}; "
            f"the first {merge.rank:,} are equal"
        )
    shown = [f"'{left}' + '{right}'" for left, right in (merge.first, merge.second)]
    return f"the merge at rank {merge.rank:,}: {shown[0]} in {names[0]}, {shown[1]} in {names[1]}"


def _added_reasons(sides: tuple[_Side, _Side], names: tuple[str, str], most: int = 5) -> list[str]:
    contents = {**sides[0].added, **sides[1].added}
    pairs = [(sides[0].added.get(content), sides[1].added.get(content)) for content in contents]
    reasons = [reason for first, second in pairs if (reason := _added_reason(first, second, names)) is not None]
    if len(reasons) > most:
        reasons[most:] = [f"{counted(len(reasons) - most, 'more difference')} of special or added tokens"]
    return reasons


def _added_reason(first: AddedToken | None, second: AddedToken | None, names: tuple[str, str]) -> str | None:
    if first is not None and second is not None:
        what = _named(first if not first.special else second)
        for flag in FLAGS:
            if getattr(first, flag) != getattr(second, flag):
                return f"{what}: {flag} only in {names[0] if getattr(first, flag) else names[1]}"
        if first.id != second.id:
            return f"{what}: id {first.id:,} in {names[0]}, id {second.id:,} in {names[1]}"
        return None
    if first is not None:
        return f"{_named(first)}: only in {names[0]}, with id {first.id:,}"
    if second is not None:
        return f"{_named(second)}: only in {names[1]}, with id {second.id:,}"
    return None


def _named(token: AddedToken) -> str:
    return f"the {_kind(token)} token '{readable(token.content.encode('utf-8'))}'"


def _short(pattern: str, most: int = 60) -> str:
    return pattern if len(pattern) <= most else f"{pattern[: most - 1]}…"
