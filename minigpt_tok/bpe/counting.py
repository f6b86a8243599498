"""How often each distinct piece of a text occurs, and the merges that follow, in Python."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from minigpt_tok.bpe.encoder import Batch
from minigpt_tok.bpe.model import ALL_BYTES
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import Recipe
from minigpt_tok.bpe.reference import Learned, Stop, train_merges
from minigpt_tok.bpe.stretches import stretches

MergesDone = Callable[[int], object]  # told how many merges there are


class Units(NamedTuple):
    """What pieces are made of that are encoded already: raw bytes by id, lengths in base tokens, and what not to make."""

    tokens: list[bytes]
    lengths: list[int]
    passed_over: frozenset[bytes]


class PieceCounter:
    """Counts pieces, in the order in which they are first seen; then learns merges from them."""

    threads = 1
    chunk_bytes = 1 << 26  # of a mapped file that are best counted at once

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._pretokenizer = get_pretokenizer(recipe.pattern)
        self._pieces: Counter[str] = Counter()

    def add(self, texts: list[str]) -> None:
        """Count texts, each one of its own: no piece crosses from one into the next."""
        for text in texts:
            for stretch in stretches(text, self._pretokenizer):
                self._pieces.update(self._pretokenizer.pieces(stretch))

    def add_utf8(self, text: memoryview) -> int | None:
        """Count a text that lies in memory as UTF-8; where it is not, give the offset of the first such byte."""
        try:
            self.add([str(text, "utf-8")])
        except UnicodeDecodeError as error:
            return error.start
        return None

    def add_counted(self, pieces: list[str], counts: np.ndarray) -> None:
        """Add what another counter gives as `counted`, of text that follows."""
        self._pieces.update(dict(zip(pieces, counts.tolist(), strict=True)))

    def give_up(self) -> None:
        """Nothing will be asked of this counter any more: what goes on elsewhere may stop."""

    def distinct(self) -> int:
        """How many different pieces there are."""
        return len(self._pieces)

    def characters(self) -> dict[str, int]:
        """Character → how often it occurs."""
        counts: Counter[str] = Counter()
        for piece, count in self._pieces.items():
            for character, times in Counter(piece).items():
                counts[character] += times * count
        return counts

    def learn(self, base: list[bytes], stop: Stop, progress: MergesDone | None) -> Learned:
        """Learn merges over `base`, by the recipe's switches. Nothing can be counted afterwards."""
        return train_merges(
            self._as_base_ids(base),
            base,
            stop,
            tie=self.recipe.tie,
            max_token_length=self.recipe.max_token_length,
            progress=progress,
        )

    def counted(self) -> tuple[list[str], np.ndarray]:
        """The distinct pieces in the order in which they were first seen, and how often each occurs: int64 `(pieces,)`."""
        return list(self._pieces), np.fromiter(self._pieces.values(), dtype=np.int64, count=len(self._pieces))

    def learn_from(
        self,
        pieces: Batch,
        counts: np.ndarray,
        units: "Units",
        stop: Stop,
        progress: MergesDone | None,
    ) -> Learned:
        """Learn merges from pieces that are encoded already, in tokens of their own; counts are int64 `(pieces,)`."""
        ids, offsets = pieces
        encoded = (
            (ids[start:end].tolist(), count)
            for start, end, count in zip(offsets[:-1].tolist(), offsets[1:].tolist(), counts.tolist(), strict=True)
        )
        return train_merges(
            encoded,
            units.tokens,
            stop,
            tie=self.recipe.tie,
            max_token_length=self.recipe.max_token_length,
            lengths=units.lengths,
            passed_over=units.passed_over,
            progress=progress,
        )

    def _as_base_ids(self, base: list[bytes]) -> Iterator[tuple[list[int] | bytes, int]]:
        """(base ids, count) of every piece; characters that `limit_alphabet` left out cut it."""
        if self.recipe.unit == "byte":
            table = bytes(base.index(byte) for byte in ALL_BYTES)
            for piece, count in self._pieces.items():
                yield piece.encode("utf-8").translate(table), count
            return
        number_of = {token.decode("utf-8"): number for number, token in enumerate(base)}
        for piece, count in self._pieces.items():
            part: list[int] = []
            for character in piece:
                if (number := number_of.get(character)) is not None:
                    part.append(number)
                elif part:
                    yield part, count
                    part = []
            if part:
                yield part, count
