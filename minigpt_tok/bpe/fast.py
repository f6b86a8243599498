"""The C++ core behind the interfaces of the readable Python, or the readable Python itself where there is no core.

Both give the same results; `make_encoder`, `make_decoder` and `make_counter` are the only places that choose.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any

import numpy as np

from minigpt_tok.bpe.added import Matcher
from minigpt_tok.bpe.counting import MergesDone, PieceCounter, Units
from minigpt_tok.bpe.decoder import Decoder
from minigpt_tok.bpe.encoder import Around, Batch, Encode, Encoder, from_utf8
from minigpt_tok.bpe.model import AddedToken, BPEModel
from minigpt_tok.bpe.native import core
from minigpt_tok.bpe.patterns import NO_CUT
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import Recipe
from minigpt_tok.bpe.reference import Learned, Merge, Stop
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.errors import CorpusError, TokenizerError

MOST_SMALL_IDS = 1 << 16  # that 16 bits hold
MOST_PACKED_IDS = 1 << 28  # that the core's cache holds
MOST_THREADS = 1 << 10  # more would have nothing to do
LARGEST_NUMBER = 1 << 62  # for the core, which counts in 64 bits: as good as no limit


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_utf8(raw: bytes) -> bool:
    """Whether bytes are a text."""
    if core is not None:
        return core.first_invalid_utf8(raw) is None
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def make_encoder(model: BPEModel, around: Around = ((), ())) -> Encoder:
    """The encoder of a model: by the core where it is there, pieces included where it has a scanner for the pattern.

    Args:
        model: what decides ids.
        around: ids that go before and after those of a text, where special tokens are asked for.
    """
    if core is None or model.vocab_size > MOST_PACKED_IDS:
        return Encoder(model, around)
    printable = model.normalizer is not None and model.normalizer.gives_printable
    if model.pipeline is not None or printable or get_pretokenizer(model.pattern).name is None:
        return PieceEncoder(model, around)
    return FastEncoder(model, around) if model.normalizer is None else NormalizingEncoder(model, around)


def make_decoder(tokens: Sequence[bytes | None]) -> Any:
    """A decoder over the raw bytes of every id."""
    return Decoder(tokens) if core is None else core.Decoder(list(tokens))


def make_counter(recipe: Recipe, threads: int | None, memory_limit: int | None = None) -> PieceCounter:
    """A counter of pieces that can learn merges from what it has counted.

    Args:
        recipe: pattern, unit and the rest.
        threads: how many count; all cores unless given.
        memory_limit: bytes for the tables of counts; what does not fit goes to temporary files. Without the core there
            are none, and the limit is not kept.
    """
    if core is None or get_pretokenizer(recipe.pattern).name is None:
        return PieceCounter(recipe)
    return FastPieceCounter(recipe, cores() if threads is None else threads, memory_limit or 0)


class CoreEncoder(Encoder):
    """`Encoder` with the core, which cuts by a named pattern, at hand."""

    def __init__(self, model: BPEModel, pattern: str | None, around: Around = ((), ())) -> None:
        super().__init__(model, around)
        assert core is not None
        characters = []
        if model.unit == "character":
            characters = [(ord(token.decode("utf-8")), id) for token, id in model.base_ids.items()]
        kind = core.Encoder16 if model.vocab_size <= MOST_SMALL_IDS else core.Encoder32
        self._core = kind(
            list(model.tokens),
            [left for left, _ in model.merges],
            [right for _, right in model.merges],
            list(model.merge_results),
            model.rank_rule == "bytes",
            model.whole_piece,
            pattern,
            characters,
            model.unit == "character",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its model: what is on the other side may have no core, and no cache is worth the way."""
        return make_encoder, (self.model, (tuple(self.before), tuple(self.after)))


class PieceEncoder(CoreEncoder):
    """`Encoder` with the core for the merges alone; the pieces are cut in Python."""

    def __init__(self, model: BPEModel, around: Around = ((), ())) -> None:
        super().__init__(model, NO_CUT, around)

    def _encode_piece(self, piece: str | bytes) -> list[int]:
        if isinstance(piece, bytes):  # which may be part of a character
            return super()._encode_piece(piece)
        try:
            return self._core.encode(piece)  # type: ignore[no-any-return]
        except ValueError:
            raise KeyError(piece) from None  # as what the readable Python cannot encode


class FastEncoder(CoreEncoder):
    """`Encoder` with the core under every call that needs no added token found in the text."""

    def __init__(self, model: BPEModel, around: Around = ((), ())) -> None:
        super().__init__(model, get_pretokenizer(model.pattern).name, around)

    @property
    def is_parallel(self) -> bool:
        """Yes, where no added token is looked for by default, which Python does."""
        return not self.added.matcher()

    def shortcut(self) -> Encode | None:
        """A built-in function that encodes plain text at once, where no added token is looked for by default."""
        return None if self.added.matcher() else self._core.fast_encode(self.encode)

    def _encode(self, text: str, matcher: Matcher, *, offset: int = 0) -> list[int]:
        try:
            if not matcher:
                return self._core.encode(text)  # type: ignore[no-any-return]
            ids: list[int] = []
            for segment in matcher.parts(text):
                if isinstance(segment, AddedToken):
                    ids.append(segment.id)
                else:
                    ids += self._core.encode(segment)
        except (ValueError, OverflowError) as error:
            raise self._what_is_wrong(error, text, offset) from None
        return ids

    def _encode_to_numpy(self, text: str | memoryview, matcher: Matcher) -> np.ndarray:
        if matcher:
            return super()._encode_to_numpy(text, matcher)
        if not isinstance(text, str):
            assert core is not None
            if (invalid := core.first_invalid_utf8(text)) is not None:
                raise TokenizerError(f"the text is not UTF-8 at byte {invalid:,}")
        try:
            return self._core.encode_to_numpy(text)  # type: ignore[no-any-return]
        except (ValueError, OverflowError) as error:
            raise self._what_is_wrong(error, text) from None

    def _count(self, text: str, matcher: Matcher) -> int:
        if matcher:
            return super()._count(text, matcher)
        try:
            return self._core.count(text)  # type: ignore[no-any-return]
        except (ValueError, OverflowError) as error:
            raise self._what_is_wrong(error, text) from None

    def _encode_batch(self, texts: list[str], matcher: Matcher) -> list[list[int]]:
        if matcher:
            return super()._encode_batch(texts, matcher)
        try:
            return self._core.encode_batch(texts, cores())  # type: ignore[no-any-return]
        except (ValueError, OverflowError, TypeError):
            return super()._encode_batch(texts, matcher)  # says which text it is, and what is wrong with it

    def _encode_batch_to_numpy(self, texts: Sequence[str | bytes], matcher: Matcher, separator_id: int | None) -> Batch:
        if matcher:
            return super()._encode_batch_to_numpy(texts, matcher, separator_id)
        try:
            if isinstance(texts, Texts):
                given = texts.joined, texts.sizes, texts.are_utf8
                return self._core.encode_joined_to_numpy(*given, cores(), separator_id)  # type: ignore[no-any-return]
            return self._core.encode_batch_to_numpy(texts, cores(), separator_id)  # type: ignore[no-any-return]
        except (ValueError, OverflowError, TypeError):
            return super()._encode_batch_to_numpy(texts, matcher, separator_id)

    def _what_is_wrong(self, error: Exception, text: str | memoryview, offset: int = 0) -> TokenizerError:
        if isinstance(error, OverflowError):
            return TokenizerError(f"{error}. Encode the text in parts")
        return self._complaint(text if isinstance(text, str) else str(text, "utf-8"), offset)

    def _segment_spans(self, segment: str, start: int) -> tuple[list[int], list[tuple[int, int]]]:
        if any(id is None for id in self._base_id_of_byte) and self.model.unit == "byte":
            return super()._segment_spans(segment, start)  # some bytes are dropped: piece by piece
        ids = self._core.encode(segment)
        owner = np.repeat(np.arange(len(segment)), [len(c.encode("utf-8")) for c in segment]) + start
        ends = list(accumulate(self._lengths[id] for id in ids))
        starts = [0, *ends[:-1]]
        return ids, [(int(owner[a]), int(owner[b - 1]) + 1) for a, b in zip(starts, ends, strict=True)]


class NormalizingEncoder(FastEncoder):
    """`FastEncoder` on normalized text: the text itself, most of the time, and then as fast."""

    def shortcut(self) -> Encode | None:
        """None: the text is looked at before the core has it."""
        return None

    def _normal(self, text: str | bytes | memoryview) -> str:
        assert self.normalizer is not None
        return self.normalizer(from_utf8(text))

    def _encode(self, text: str, matcher: Matcher, *, offset: int = 0) -> list[int]:
        if matcher or not isinstance(text, str):
            return super()._encode(text, matcher, offset=offset)
        normal = self._normal(text)
        try:
            return self._core.encode(normal)  # type: ignore[no-any-return]
        except (ValueError, OverflowError) as error:
            raise self._what_is_wrong(error, text, offset) from None

    def _encode_to_numpy(self, text: str | memoryview, matcher: Matcher) -> np.ndarray:
        if matcher:
            return super()._encode_to_numpy(text, matcher)
        normal = self._normal(text)
        try:
            return self._core.encode_to_numpy(normal)  # type: ignore[no-any-return]
        except (ValueError, OverflowError) as error:
            raise self._what_is_wrong(error, text) from None

    def _count(self, text: str, matcher: Matcher) -> int:
        if matcher or not isinstance(text, str):
            return super()._count(text, matcher)
        normal = self._normal(text)
        try:
            return self._core.count(normal)  # type: ignore[no-any-return]
        except (ValueError, OverflowError) as error:
            raise self._what_is_wrong(error, text) from None

    def _encode_batch(self, texts: list[str], matcher: Matcher) -> list[list[int]]:
        if matcher or not all(isinstance(text, str) for text in texts):
            return super()._encode_batch(texts, matcher)
        try:
            return self._core.encode_batch([self._normal(text) for text in texts], cores())  # type: ignore[no-any-return]
        except (ValueError, OverflowError):
            return Encoder._encode_batch(self, texts, matcher)  # says which text it is, and what is wrong with it

    def _encode_batch_to_numpy(self, texts: Sequence[str | bytes], matcher: Matcher, separator_id: int | None) -> Batch:
        if not matcher and all(isinstance(text, (str, bytes)) for text in texts):
            with suppress(ValueError, OverflowError, TokenizerError):
                normal = [self._normal(text) for text in texts]
                return self._core.encode_batch_to_numpy(normal, cores(), separator_id)  # type: ignore[no-any-return]
        return Encoder._encode_batch_to_numpy(self, texts, matcher, separator_id)


class FastPieceCounter(PieceCounter):
    """`PieceCounter` by the core: in parallel, in 32 bytes or so for each distinct piece."""

    def __init__(self, recipe: Recipe, threads: int, memory_limit: int = 0) -> None:
        super().__init__(recipe)
        assert core is not None
        self.threads = threads
        self._core = core.Counter(
            self._pretokenizer.name, min(threads, MOST_THREADS), min(memory_limit, LARGEST_NUMBER)
        )

    def add(self, texts: list[str]) -> None:
        """As in `PieceCounter`."""
        with _sizes_that_fit():
            self._core.add(texts)

    def add_utf8(self, text: memoryview) -> int | None:
        """As in `PieceCounter`."""
        with _sizes_that_fit():
            return self._core.add_buffer(text)  # type: ignore[no-any-return]

    def add_counted(self, pieces: list[str], counts: np.ndarray) -> None:
        """As in `PieceCounter`."""
        self._core.add_counted(pieces, counts)

    def distinct(self) -> int:
        """As in `PieceCounter`."""
        return self._core.pieces  # type: ignore[no-any-return]

    def characters(self) -> dict[str, int]:
        """As in `PieceCounter`."""
        return {chr(code_point): count for code_point, count in self._core.characters().items()}

    def counted(self) -> tuple[list[str], np.ndarray]:
        """As in `PieceCounter`."""
        return self._core.counted()  # type: ignore[no-any-return]

    def learn_from(
        self, pieces: Batch, counts: np.ndarray, units: Units, stop: Stop, progress: MergesDone | None
    ) -> Learned:
        """As in `PieceCounter`."""
        assert core is not None
        with _sizes_that_fit():
            found = core.train_units(
                pieces.ids.astype(np.uint32, copy=False),
                pieces.offsets,
                counts,
                *units[:2],
                list(units.passed_over),
                min(stop.merges, LARGEST_NUMBER),
                min(stop.min_frequency, LARGEST_NUMBER),
                self.recipe.tie,
                min(self.recipe.max_token_length or 0, LARGEST_NUMBER),
                progress,
            )
        return self._learned(found, stop, progress)

    def learn(self, base: list[bytes], stop: Stop, progress: MergesDone | None) -> Learned:
        """As in `PieceCounter`."""
        recipe = self.recipe
        with _sizes_that_fit():
            found = self._core.train(
                base,
                recipe.unit == "character",
                min(stop.merges, LARGEST_NUMBER),
                min(stop.min_frequency, LARGEST_NUMBER),
                recipe.tie,
                min(recipe.max_token_length or 0, LARGEST_NUMBER),
                progress,
            )
        return self._learned(found, stop, progress)

    def _learned(self, found: dict[str, Any], stop: Stop, progress: MergesDone | None) -> Learned:
        if progress is not None:
            progress(len(found["left"]))  # the core says it now and then
        columns: Iterable[list[int]] = (found[name].tolist() for name in ("left", "right", "count", "tokens_after"))
        merges = [Merge(*row) for row in zip(*columns, strict=True)]
        return Learned(
            base_tokens=found["base_tokens"], merges=merges, stopped=stop.reason(len(merges), found["best_left"])
        )


@contextmanager
def _sizes_that_fit() -> Iterator[None]:
    try:
        yield
    except OverflowError as error:
        raise CorpusError(f"{error}. Cut the documents, or train by a pattern that cuts them") from None
