"""From text to ids in Python: added tokens, pieces, and a cache in front of `reference.merge_by_rank`.

More than 99% of the pieces of ordinary text have been seen before, so the speed is that of the pre-tokenizer and of
one dictionary lookup a piece. Long pieces (a whole document under the pattern `none`) are first cut between units
that no token joins: no merge can cross such a place, and the parts repeat as words do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.added import AddedTokens, Matcher, SpecialTokens
from minigpt_tok.bpe.joints import Joints
from minigpt_tok.bpe.model import CHARACTER_TO_BYTE, AddedToken, BPEModel
from minigpt_tok.bpe.normalize import Span, from_printable
from minigpt_tok.bpe.pipeline import Pipeline
from minigpt_tok.bpe.pretokenize import PreTokenizer, get_pretokenizer
from minigpt_tok.bpe.reference import merge_by_rank
from minigpt_tok.bpe.stretches import stretches
from minigpt_tok.errors import TokenizerError

CACHED_PIECES = 1 << 17  # at most; then the cache starts anew. About 200 bytes each.
LONG_PIECE = 256  # units; a longer piece is not worth a place in the cache as a whole
CUTS_TRIED = 16  # the last ones in a text, before more text is waited for
MARKS_LOOKED_AT = 64  # characters after a cut that may join the first of them


class _Cache(dict[str | bytes, list[int]]):
    """Piece → ids, filled on demand and bounded."""

    def __init__(self, encode: Callable[[str | bytes], list[int]]) -> None:
        self._encode = encode

    def __missing__(self, piece: str | bytes) -> list[int]:
        ids = self._encode(piece)
        if len(piece) <= LONG_PIECE:
            if len(self) >= CACHED_PIECES:
                self.clear()
            self[piece] = ids
        return ids


class Step(NamedTuple):
    """One merge of `explain`: its rank, the two tokens, and all tokens of the piece after it."""

    rank: int
    left: int
    right: int
    ids_after: list[int]


class Batch(NamedTuple):
    """Many texts as one flat array: the ids of text n are `ids[offsets[n]:offsets[n + 1]]`."""

    ids: np.ndarray
    offsets: np.ndarray


Encode = Callable[..., list[int]]
Around = tuple[tuple[int, ...], tuple[int, ...]]


class Encoder:
    """Encodes with one model. A function of text and model alone: the caches never change a result.

    `around` are the ids that go before and after those of a text where special tokens are asked for.
    """

    def __init__(self, model: BPEModel, around: Around = ((), ())) -> None:
        self.model = model
        self.before, self.after = map(list, around)
        self.pretokenizer: PreTokenizer = get_pretokenizer(model.pattern)
        self.normalizer = model.normalizer
        self.pipeline = model.pipeline
        self.added = AddedTokens(model.added_tokens, model.normalizer)
        # Else the pieces are spelled in printable characters, and may be parts of a character.
        printable = self.normalizer is not None and self.normalizer.gives_printable
        self._pieces_are_text = not printable and (self.pipeline is None or self.pipeline.gives_text)

    # Made when they are first needed: they refer back to the encoder, which then lives until the next garbage collection.
    @cached_property
    def _pieces(self) -> _Cache:
        return _Cache(self._encode_piece)

    @cached_property
    def _parts(self) -> _Cache:
        return _Cache(self.merge)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """What ids are kept in: `uint16` for up to 65,536 ids, else `uint32`."""
        return np.dtype(np.uint16 if self.model.vocab_size <= 1 << 16 else np.uint32)

    @property
    def is_parallel(self) -> bool:
        """Whether batches are encoded on all cores, and without Python's lock."""
        return False

    def shortcut(self) -> Encode | None:
        """A faster `encode` for callers in a hurry, if there is one."""
        return None

    def encode(
        self,
        text: str,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> list[int]:
        """Ids of `text`; see `Tokenizer.encode`."""
        ids = self._encode(text, self._matcher(text, allowed_special, disallowed_special))
        return [*self.before, *ids, *self.after] if add_special_tokens else ids

    def encode_to_numpy(
        self,
        text: str | memoryview,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> np.ndarray:
        """Ids of `text`, or of UTF-8 in memory; see `Tokenizer.encode_to_numpy`."""
        if isinstance(text, memoryview) and not text.c_contiguous:
            text = memoryview(text.tobytes())
        if not isinstance(text, str) and (allowed_special or disallowed_special or self.added.matcher()):
            text = from_utf8(text)  # added tokens are looked for in characters
        ids = self._encode_to_numpy(text, self._matcher(text, allowed_special, disallowed_special))
        return self._with_around([ids], self.after) if add_special_tokens else ids

    def count(
        self,
        text: str,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> int:
        """Number of ids of `text`."""
        count = self._count(text, self._matcher(text, allowed_special, disallowed_special))
        return count + len(self.before) + len(self.after) if add_special_tokens else count

    def encode_batch(
        self,
        texts: list[str],
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> list[list[int]]:
        """Ids of each text; see `Tokenizer.encode_batch`."""
        self._refuse_in_any(texts, allowed_special, disallowed_special)
        many = self._encode_batch(texts, self.added.matcher(allowed_special))
        return [[*self.before, *ids, *self.after] for ids in many] if add_special_tokens else many

    def encode_batch_to_numpy(
        self,
        texts: Sequence[str | bytes],
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
        separator_id: int | None = None,
    ) -> Batch:
        """Ids of each text, flat; see `Tokenizer.encode_batch_to_numpy`."""
        self._refuse_in_any(texts, allowed_special, disallowed_special)
        matcher = self.added.matcher(allowed_special)
        if not add_special_tokens or not texts:
            return Batch(*self._encode_batch_to_numpy(texts, matcher, separator_id))
        ids, offsets = self._encode_batch_to_numpy(texts, matcher, None)
        after = [*self.after, *([] if separator_id is None else [separator_id])]
        each = [ids[start:end] for start, end in pairwise(offsets.tolist())]
        more = len(self.before) + len(after)
        return Batch(self._with_around(each, after), offsets + more * np.arange(len(offsets)))

    def _with_around(self, many: list[np.ndarray], after: Sequence[int]) -> np.ndarray:
        ends = [np.array(ids, dtype=self.dtype) for ids in (self.before, after)]
        return np.concatenate([part for ids in many for part in (ends[0], ids, ends[1])])

    def _matcher(
        self, text: str | memoryview, allowed_special: SpecialTokens, disallowed_special: SpecialTokens
    ) -> Matcher:
        """What to look for in `text`, once it has been checked for what must not be in it."""
        if isinstance(text, str):
            self.added.refuse(text, allowed_special, disallowed_special)
        elif not isinstance(text, memoryview):
            raise TokenizerError(
                f"text is {type(text).__name__}, not str; decode bytes first, e.g. data.decode('utf-8')"
            )
        return self.added.matcher(allowed_special)

    def _refuse_in_any(
        self, texts: Sequence[str | bytes], allowed_special: SpecialTokens, disallowed_special: SpecialTokens
    ) -> None:
        self.added.refuse("", allowed_special, disallowed_special)  # which are no fault of a text
        for number, given in enumerate(texts if disallowed_special else ()):
            text: object = _numbered_text(number, given)
            if not isinstance(text, str):
                raise TokenizerError(f"texts[{number}] is {type(text).__name__}, not str")
            try:
                self.added.refuse(text, allowed_special, disallowed_special)
            except TokenizerError as error:
                raise TokenizerError(f"texts[{number}]: {error}") from None

    # What the core has a faster way for.

    def _encode_to_numpy(self, text: str | memoryview, matcher: Matcher) -> np.ndarray:
        return np.array(self._encode(from_utf8(text), matcher), dtype=self.dtype)

    def _count(self, text: str, matcher: Matcher) -> int:
        return len(self._encode(text, matcher))

    def _encode_batch(self, texts: list[str], matcher: Matcher) -> list[list[int]]:
        return [self._encode_number(number, text, matcher) for number, text in enumerate(texts)]

    def _encode_batch_to_numpy(self, texts: Sequence[str | bytes], matcher: Matcher, separator_id: int | None) -> Batch:
        many = self._encode_batch([_numbered_text(number, text) for number, text in enumerate(texts)], matcher)
        last = [] if separator_id is None else [separator_id]
        arrays = [np.array(ids + last, dtype=self.dtype) for ids in many]
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        return Batch(np.concatenate([np.empty(0, dtype=self.dtype), *arrays]), offsets)

    def _encode_number(self, number: int, text: str, matcher: Matcher) -> list[int]:
        if not isinstance(text, str):
            raise TokenizerError(f"texts[{number}] is {type(text).__name__}, not str")
        try:
            return self._encode(text, matcher)
        except TokenizerError as error:
            raise TokenizerError(f"texts[{number}]: {error}") from None

    def _encode(self, text: str, matcher: Matcher, *, offset: int = 0) -> list[int]:
        ids: list[int] = []
        try:
            if self.pipeline is not None and self.pipeline.needs_spans:
                return self._encode_with_spans(text, matcher)[0]
            for part in matcher.parts(text):
                if isinstance(part, AddedToken):
                    ids.append(part.id)
                    continue
                for pieces in self._cut_text(part):
                    ids.extend(chain.from_iterable(map(self._pieces.__getitem__, pieces)))
        except (UnicodeEncodeError, KeyError):
            raise self._complaint(text, offset) from None
        return ids

    def _cut_text(self, part: str) -> Iterator[Sequence[str | bytes]]:
        """The pieces of normalized text without added tokens, some at a time."""
        if self._pieces_are_text and self.pipeline is None:
            yield from (self.pretokenizer.pieces(stretch) for stretch in stretches(part, self.pretokenizer))
        elif self._pieces_are_text and self.pipeline is not None:
            yield self.pipeline.pieces(part, as_text=True)
        else:
            pipeline = self.pipeline or Pipeline(())
            yield [from_printable(piece) for piece in pipeline.pieces(part, as_text=False)]

    def encode_iter(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> Iterator[int]:
        """Ids of the joined texts, one by one; memory is that of the longest stretch that cannot be cut."""
        if add_special_tokens:
            yield from self.before
        matcher = self.added.matcher(allowed_special)
        others = [self.added.specials] if disallowed_special else []
        done = 0  # characters encoded
        held: list[str] = []  # what came after them,
        size = 0  # so many characters,
        wait = 0  # to be looked at again when there are so many: twice as many as last time, so linear in all
        for text in texts:
            if not isinstance(text, str):
                raise TokenizerError(f"one of the texts is {type(text).__name__}, not str")
            held.append(text)
            size += len(text)
            if size < wait:
                continue
            joined = "".join(held)
            cut = self._safe_cut(joined, matcher, others)
            if cut > 0:
                part = joined[:cut]
                self.added.refuse(part, allowed_special, disallowed_special, offset=done)
                yield from self._encode(part, matcher, offset=done)
                done += cut
            held = [joined[cut:]]
            size = len(held[0])
            wait = 2 * size
        rest = "".join(held)
        self.added.refuse(rest, allowed_special, disallowed_special, offset=done)
        yield from self._encode(rest, matcher, offset=done)
        if add_special_tokens:
            yield from self.after

    def _safe_cut(self, text: str, matcher: Matcher, others: list[Matcher]) -> int:
        """Where `text` can be cut, whatever follows it, without a change of ids; 0 if nowhere."""
        if self.pipeline is not None or not self._pieces_are_text or matcher.finds_normalized:
            return 0
        matchers = [matcher, *others]
        limit = len(text) - max(each.reach for each in matchers)  # beyond it, a token may still be growing
        if limit <= 0:
            return 0
        spans = [span for each in matchers for span in each.spans(text)]
        bound = limit
        for _ in range(CUTS_TRIED):
            cut = self.pretokenizer.last_certain_cut(text[: bound + 1])
            if cut == 0:
                break
            across = [start for start, end in spans if start < cut < end]
            if not across and matcher.can_end_before_token(text[:cut]) and self._normalizes_apart(text, cut):
                return cut
            bound = min([cut - 1, *across])
        if others or matcher.looks_around:
            return 0
        return max((end for _, end in spans if end <= limit), default=0)

    def _normalizes_apart(self, text: str, cut: int) -> bool:
        """Whether both sides of a cut can be normalized by themselves, and the cut is still certain then."""
        if self.normalizer is None:
            return True
        if not self.normalizer.local or not text[cut].isascii():
            return False
        before, after = self.normalizer(text[:cut]), self.normalizer(text[cut : cut + MARKS_LOOKED_AT])
        return bool(before) and bool(after) and self.pretokenizer.is_certain_cut(before[-1], after[0])

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> tuple[list[int], list[Span]]:
        """Ids, and for each the (start, end) in characters of the text that it covers, partly covered ones included.

        Ids that go around the text cover nothing: (0, 0).
        """
        self.added.refuse(text, allowed_special, disallowed_special)
        try:
            ids, spans = self._encode_with_spans(text, self.added.matcher(allowed_special))
        except (ValueError, KeyError):
            raise self._complaint(text) from None
        if not add_special_tokens:
            return ids, spans
        nothing = [(0, 0)]
        spans = [*(nothing * len(self.before)), *spans, *(nothing * len(self.after))]
        return [*self.before, *ids, *self.after], spans

    def _encode_with_spans(self, text: str, matcher: Matcher) -> tuple[list[int], list[Span]]:
        ids: list[int] = []
        spans: list[Span] = []
        for (start, end), part in matcher.parts_with_spans(text):
            if isinstance(part, AddedToken):
                ids.append(part.id)
                spans.append((start, end))
                continue
            segment, owners = part
            if owners is None and self.pipeline is None:
                segment_ids, segment_spans = self._segment_spans(segment, start)
            else:
                owners = owners or [(place, place + 1) for place in range(start, end)]
                segment_ids, segment_spans = self._owned_spans(segment, owners)
            ids += segment_ids
            spans += segment_spans
        return ids, spans

    def _segment_spans(self, segment: str, start: int) -> tuple[list[int], list[Span]]:
        """Ids and spans of plain text that begins at character `start`."""
        return self._owned_spans(segment, [(start + place, start + place + 1) for place in range(len(segment))])

    def _owned_spans(self, segment: str, owners: list[Span]) -> tuple[list[int], list[Span]]:
        """Ids and spans of text whose characters stand for the spans `owners`."""
        ids: list[int] = []
        spans: list[Span] = []
        for piece, units in self._cut_with_spans(segment, owners):
            piece_ids = self._pieces[piece]
            ids += piece_ids
            done = 0
            for end in accumulate(self._lengths[id] for id in piece_ids):
                spans.append((units[done][0], units[end - 1][1]))
                done = end
        return ids, spans

    def _cut_with_spans(self, segment: str, owners: list[Span]) -> Iterator[tuple[str | bytes, list[Span]]]:
        """The pieces, and for every byte of each, of those that the vocabulary has, the span that it stands for."""
        if not self._pieces_are_text:
            pipeline = self.pipeline or Pipeline(())
            for spelled, spans in pipeline.pieces_with_spans(segment, owners, as_text=False):
                of_bytes = zip(map(CHARACTER_TO_BYTE.get, spelled), spans, strict=True)
                known = [(byte, span) for byte, span in of_bytes if byte is not None]
                kept = [span for byte, span in known if self._base_id_of_byte[byte] is not None]
                yield bytes(byte for byte, _ in known), kept
            return
        if self.pipeline is not None:
            pieces = self.pipeline.pieces_with_spans(segment, owners, as_text=True)
        else:
            done = 0
            pieces = []
            for piece in self.pretokenizer.pieces(segment):
                pieces.append((piece, owners[done : done + len(piece)]))
                done += len(piece)
        for piece, spans in pieces:
            yield (
                piece,
                [
                    span
                    for character, span in zip(piece, spans, strict=True)
                    for byte in character.encode("utf-8")
                    if self.model.unit == "character" or self._base_id_of_byte[byte] is not None
                ],
            )

    def explained_cuts(self, text: str) -> list[tuple[str | bytes, str]]:
        """The pieces of a text without added tokens, each with a few words on what cut it."""
        normal = text if self.normalizer is None else self.normalizer(text)
        if self._pieces_are_text and self.pipeline is None:
            return list(self.pretokenizer.explain(normal))
        by = str(self.pipeline) if self.pipeline is not None else "the whole text"
        if self.pipeline is not None and self.pipeline.needs_spans:
            owners = [(place, place + 1) for place in range(len(normal))]
            return [(piece, by) for piece, _ in self._cut_with_spans(normal, owners)]
        return [(piece, by) for pieces in self._cut_text(normal) for piece in pieces]

    @cached_property
    def _lengths(self) -> list[int]:
        """Bytes of every id."""
        return [len(token) if token is not None else 0 for token in self.model.tokens]

    def explain_piece(self, piece: str | bytes) -> tuple[list[int], list[Step]]:
        """The base ids of a piece, and the merges that follow, one by one (none where it is taken whole)."""
        if self.model.whole_piece and (whole := self.model.id_of.get(_as_bytes(piece))) is not None:
            return [whole], []
        try:
            base = self._base_ids(self._units(piece))
        except KeyError:
            raise self._complaint(str(piece)) from None
        ids = base
        steps: list[Step] = []
        while True:
            candidates = [
                (merge[0], place, merge[1])
                for place, (left, right) in enumerate(pairwise(ids))
                if (merge := self._merge_of(left, right)) is not None
            ]
            if not candidates:
                return base, steps
            rank, place, merged = min(candidates)
            step = [*ids[:place], merged, *ids[place + 2 :]]
            steps.append(Step(rank, ids[place], ids[place + 1], step))
            ids = step

    def _units(self, piece: str | bytes) -> str | bytes:
        return piece if self.model.unit == "character" else _as_bytes(piece)

    def _encode_piece(self, piece: str | bytes) -> list[int]:
        if self.model.whole_piece and (whole := self.model.id_of.get(_as_bytes(piece))) is not None:
            return [whole]
        units = self._units(piece)
        if len(units) <= LONG_PIECE:
            return self.merge(units)
        return list(chain.from_iterable(map(self._parts.__getitem__, self._joints.cut(units))))

    def merge(self, units: str | bytes) -> list[int]:
        """Ids of one piece by merging alone: a str for character tokenizers, bytes for byte-level ones."""
        return merge_by_rank(self._base_ids(units), self._merge_of)

    def _base_ids(self, units: str | bytes) -> list[int]:
        if isinstance(units, str):
            return [self._base_id_of_character[character] for character in units]
        # As in Hugging Face, a byte that the vocabulary lacks is dropped, and its neighbours come to be neighbours.
        return [id for byte in units if (id := self._base_id_of_byte[byte]) is not None]

    @cached_property
    def _base_id_of_byte(self) -> list[int | None]:
        return [self.model.base_ids.get(bytes([byte])) for byte in range(256)]

    @cached_property
    def _base_id_of_character(self) -> dict[str, int]:
        return {token.decode("utf-8"): id for token, id in self.model.base_ids.items()}

    @cached_property
    def _merge_of(self) -> Callable[[int, int], tuple[int, int] | None]:
        """(left id, right id) → (rank, merged id), by the model's rank rule."""
        if self.model.rank_rule == "pair":
            by_pair: dict[tuple[int, int], tuple[int, int]] = {}
            for rank, (pair, merged) in enumerate(zip(self.model.merges, self.model.merge_results, strict=True)):
                by_pair[pair] = (rank, merged)  # of a pair that stands twice the last rank counts, as in Hugging Face
            return lambda left, right: by_pair.get((left, right))
        tokens, id_of = self.model.tokens, self.model.id_of

        def by_bytes(left: int, right: int) -> tuple[int, int] | None:
            merged = id_of.get((tokens[left] or b"") + (tokens[right] or b""))
            return None if merged is None else (merged, merged)

        return by_bytes

    @cached_property
    def _joints(self) -> Joints:
        return Joints(self.model, [byte for byte in range(256) if self._base_id_of_byte[byte] is None])

    def _complaint(self, text: str, offset: int = 0) -> TokenizerError:
        """What is wrong with a text that could not be encoded; `offset` is where it begins."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return TokenizerError(
                f"the text has a lone surrogate, U+{ord(text[error.start]):04X}, at character {offset + error.start:,}: it is no "
                "text and has no UTF-8. Repair it where it was read, e.g. text.encode('utf-8', 'replace').decode()"
            )
        known = self._base_id_of_character
        unknown = sorted({character for character in text if character not in known})
        return TokenizerError(
            f"the text has {counted(len(unknown), 'character')} that this character tokenizer does not know: "
            f"{', '.join(map(repr, unknown[:50]))}{', …' if len(unknown) > 50 else ''}. "
            "Train it with these among base_characters, or use a byte-level tokenizer, which knows every text"
        )


def from_utf8(text: str | bytes | memoryview) -> str:
    """The text of UTF-8 in memory; a text is itself.

    Raises:
        TokenizerError: it is no UTF-8; with the place.
    """
    try:
        return text if isinstance(text, str) else str(text, "utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"the text is not UTF-8 at byte {error.start:,}") from None


def _numbered_text(number: int, text: str | bytes) -> str:
    """A text of several; what is no text is left to whoever encodes it."""
    if not isinstance(text, bytes):
        return text
    try:
        return from_utf8(text)
    except TokenizerError as error:
        raise TokenizerError(f"texts[{number}]: {error}") from None


def _as_bytes(piece: str | bytes) -> bytes:
    return piece.encode("utf-8") if isinstance(piece, str) else piece
