"""The calls of Stanford's CS336, assignment 1: training on a file, cutting a file into chunks, encoding.

Source of the calls: the assignment's hand-out and the adapters of its tests (github.com/stanford-cs336).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import BinaryIO

from minigpt_tok import tokenizer as core
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.errors import CorpusError, TokenizerError
from minigpt_tok.files import StrPath
from minigpt_tok.formats import cs336 as files

CHUNK = 1 << 26  # bytes of a training file that are held at a time, where it can be cut
BLOCK = 1 << 16  # bytes that are read at a time to look for a place to cut


def train_bpe(
    input_path: StrPath, vocab_size: int, special_tokens: Sequence[str]
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Train on a UTF-8 file: id → bytes (the 256 bytes, the specials, the merges), and the merges by rank.

    Raises:
        TokenizerError: a vocabulary smaller than bytes and specials, or specials that cannot be.
        CorpusError: the file is empty, or not UTF-8.
    """
    specials = tuple(special_tokens)
    model, _ = train_model(_chunks(input_path, specials), vocab_size, get_recipe("cs336"), specials)
    return core.Tokenizer(model).to_vocab_and_merges()


def find_chunk_boundaries(file: BinaryIO, desired_num_chunks: int, split_special_token: bytes) -> list[int]:
    """Byte offsets from 0 to the file's size, between which it can be counted chunk by chunk.

    Chunks begin with the separator; where it is rarer than chunks are wanted, there are fewer chunks. In a file
    without any, they begin where GPT-2's pattern is certain to cut.

    Raises:
        TokenizerError: no chunk wanted, or a separator that is not bytes.
    """
    if not isinstance(split_special_token, bytes):
        raise TokenizerError(f"split_special_token is {split_special_token!r}, not bytes; pass e.g. b'<|endoftext|>'")
    if desired_num_chunks < 1:
        raise TokenizerError(f"desired_num_chunks is {desired_num_chunks}; the least is 1")
    size = file.seek(0, os.SEEK_END)
    guesses = [number * (size // desired_num_chunks) for number in range(1, desired_num_chunks)]
    boundaries: set[int] = {size}
    if split_special_token:
        boundaries = _cuts(guesses, size, lambda start, stop: _find(file, split_special_token, start, stop))
    if boundaries == {size} and guesses and _find(file, split_special_token, 0, guesses[0]) is None:
        boundaries = _cuts(guesses, size, lambda start, stop: _find_certain_cut(file, start, stop))
    file.seek(0)
    return sorted({0, size, *boundaries})


def _cuts(guesses: list[int], size: int, find: Callable[[int, int], int | None]) -> set[int]:
    """The first place at or after each guess, found from the last guess to the first so that all is read once."""
    place = stop = size
    places = {size}
    for guess in reversed(guesses):
        found = find(guess, stop)
        place = place if found is None else found
        places.add(place)
        stop = guess
    return places


def _find(file: BinaryIO, separator: bytes, start: int, stop: int) -> int | None:
    """Where the separator begins first, at or after `start` and before `stop`, across blocks as well."""
    if not separator:
        return None
    overlap = len(separator) - 1
    for place in range(start, stop, BLOCK):
        file.seek(place)
        found = file.read(min(BLOCK, stop - place) + overlap).find(separator)
        if found >= 0:
            return place + found
    return None


def _find_certain_cut(file: BinaryIO, start: int, stop: int) -> int | None:
    """The first place after `start` and before `stop` where GPT-2's pattern is certain to cut."""
    pretokenizer = get_pretokenizer("gpt2")
    place = start
    while place < stop:
        file.seek(place)
        block = file.read(BLOCK)
        first = next((n for n, byte in enumerate(block[:4]) if byte & 0xC0 != 0x80), 0)
        # What is no UTF-8 becomes lone surrogates, which no cut is made beside: a character may lie across the end.
        text = block[first:].decode("utf-8", "surrogateescape")
        if pretokenizer.last_certain_cut(text):
            offset = place + first
            for before, after in pairwise(text):
                offset += len(before.encode("utf-8", "surrogateescape"))
                if offset >= stop:
                    return None
                if not _escaped(before) and not _escaped(after) and pretokenizer.is_certain_cut(before, after):
                    return offset
        place += max(1, len(block) - 4)  # the last character may be half, and the next cut stand before it
    return None


def _escaped(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _chunks(path: StrPath, special_tokens: tuple[str, ...]) -> Iterator[str]:
    """The text of a file, in chunks that can be counted apart if it is long and they can be found."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        boundaries = [0, size]
        if len(special_tokens) <= 1 and all(map(_begins_alone, special_tokens)):
            separator = special_tokens[0].encode("utf-8") if special_tokens else b""
            boundaries = find_chunk_boundaries(file, size // CHUNK + 1, separator)
        for start, end in pairwise(boundaries):
            file.seek(start)
            try:
                yield file.read(end - start).decode("utf-8")
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{path}: not UTF-8 at byte {start + error.start:,}; convert it, or read it with errors='replace' and "
                    "write it again"
                ) from None


def _begins_alone(token: str) -> bool:
    """Whether no occurrence of the token can begin inside another: else the first of two need not be the one matched."""
    return not any(token.startswith(token[place:]) for place in range(1, len(token)))


class Tokenizer:
    """Encodes as the course's tests want it: special tokens in a text are matched, overlapping ones longest first.

    Attributes:
        vocab: id → bytes; specials that were missing stand at the end.
        merges: (left, right) by rank.
        special_tokens: as given.
        tokenizer: the core's value.
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]],
        special_tokens: Sequence[str] | None = None,
    ) -> None:
        self.special_tokens = list(special_tokens or ())
        self.tokenizer = core.Tokenizer.from_vocab_and_merges(vocab, merges, self.special_tokens)

    @classmethod
    def from_files(
        cls, vocab_filepath: StrPath, merges_filepath: StrPath, special_tokens: Sequence[str] | None = None
    ) -> "Tokenizer":
        """From JSON and lines as in the course's fixtures, or from pickles of plain dict and list.

        Raises:
            FormatError: naming the file and what is wrong with it.
        """
        return cls(*files.load(vocab_filepath, merges_filepath, special_tokens or ()), special_tokens)

    @property
    def vocab(self) -> dict[int, bytes]:
        """Id → bytes, specials as their text."""
        return self.tokenizer.vocab

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """(left, right) by rank."""
        return self.tokenizer.merges

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return self.tokenizer.encode(text, allowed_special="all")

    def encode_iterable(self, iterable: Iterable[str]) -> Iterator[int]:
        """Ids of the joined strings, one by one, as they come: a file's lines never lie in memory together."""
        return self.tokenizer.encode_iter(iterable, allowed_special="all")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        return self.tokenizer.decode(ids)
