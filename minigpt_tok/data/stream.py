"""`TokenStream`: batches of text that is tokenized as it is read, without id files, in an order that resumes exactly.

For texts that are read once, or that change: nothing is written. What is trained on again and again is better encoded.

Documents are read in *chunks*: so many documents that follow one another. A chunk is tokenized and packed by itself, by
the same planners as an id file: its rows are made of its documents alone, and where the last one is not full it has
padding. So nothing of the text is lost to the packing (`bos_aligned` crops, as ever), whatever chunk a reader begins at.

Chunk n is of *lane* n modulo `lanes`. Lanes, not chunks, are shared out: over the ranks, and within a rank over its
workers; each reads the documents, skips the chunks of others unseen, and packs its own in their order. How far each
lane is (epoch, chunk, rows taken) is the whole state. It means the same whoever reads which lane, so a run goes on with
another number of ranks and workers, and no row is skipped or met twice. With the same numbers, the order is the same.

The state travels with the batches: what a worker has read ahead does not count before it is taken.
"""

import itertools
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from minigpt_tok.bpe.recipes import END_OF_TEXT
from minigpt_tok.data.blocks import Blocks
from minigpt_tok.data.loader import end_workers
from minigpt_tok.data.order import Permutation
from minigpt_tok.data.packed_chunk import PackedChunk
from minigpt_tok.data.packing import get_packing
from minigpt_tok.data.token_dataset import Block, BlockBatch
from minigpt_tok.errors import DataError, TokenizerError
from minigpt_tok.tokenizer import Tokenizer

Texts = Iterable[str] | Callable[[], Iterable[str]]
Place = list[int]  # of a lane: epoch, chunk, rows of it that are taken, and its CRC-32 if it is not done
_CHARACTERS = 1 << 23  # a chunk ends with the document that reaches so many


class TokenStream:
    """An iterable of batches as `TokenDataset.collate` gives them; each iteration goes on where the last one ended.

    Give it to `Trainer.fit` as the train loader. Lightning saves and restores its state; each rank takes its own share.
    Lightning reads one batch ahead of loaders without a length, and would count it as trained on; so give it one that
    has `steps`.

    Attributes:
        tokenizer: that makes the ids.
    """

    def __init__(
        self,
        documents: Texts,
        tokenizer: Tokenizer,
        block_size: int,
        batch_size: int,
        *,
        packing: str = "contiguous",
        separator: str | None = "auto",
        chunk_documents: int = 1024,
        shuffle: bool = True,
        seed: int = 0,
        repeat: bool = True,
        steps: int | None = 1000,
        lanes: int = 64,
        rank: int | None = None,
        world_size: int | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        multiprocessing_context: str | None = None,
    ) -> None:
        """Nothing is read before the first iteration.

        Args:
            documents: texts that can be read again and again, always the same: a list, the split of a corpus, or a
                function that begins a reading.
            tokenizer: that makes the ids.
            block_size: in tokens.
            batch_size: rows per rank and step.
            packing: see `minigpt_tok.data.packing`.
            separator: the special token after each document; `auto`: `<|endoftext|>` if the tokenizer has it.
            chunk_documents: in a chunk; fewer where they are long. More of them pack better and shuffle wider.
            shuffle: the rows within a chunk, by (seed, epoch, chunk).
            seed: of that.
            repeat: begin again where the documents end, in another order of rows. Otherwise iterations end there.
            steps: batches in an iteration, and the length; `None`: as many as are asked for, and no length.
            lanes: at least as many as ranks × workers, of all runs that will go on from this one's state.
            rank, world_size: `None`: as the process group has them when iteration begins, or alone.
            num_workers: processes that read, tokenize and pack.
            pin_memory: for faster copies to a GPU.
            multiprocessing_context: how workers start.

        Raises:
            DataError: a number that makes no sense, or a packing that does not exist or needs a separator.
            TokenizerError: a separator that is no special token.
        """
        for name, number in {"block_size": block_size, "batch_size": batch_size, "chunk_documents": chunk_documents,
                             "lanes": lanes}.items():  # fmt: skip
            if number < 1:
                raise DataError(f"{name} is {number}; it must be at least 1")
        get_packing(packing)
        self.tokenizer = tokenizer
        self._separator = _separator_id(tokenizer, separator)
        if packing == "bos_aligned" and self._separator is None:
            raise DataError("packing 'bos_aligned' begins every block with the separator, and there is none")
        self._documents = documents
        self._block_size = block_size
        self._batch_size = batch_size
        self._packing = packing
        self._chunk_documents = chunk_documents
        self._shuffle = shuffle
        self._seed = seed
        self._repeat = repeat
        self._steps = steps
        self._n_lanes = lanes
        self._rank = rank
        self._world_size = world_size
        self._num_workers = num_workers
        self._pin_memory = pin_memory
        self._context = multiprocessing_context if num_workers else None
        self._lanes: list[Place] = [[0, lane, 0, 0] for lane in range(lanes)]
        self._turn = 0  # which of the workers' shares of the lanes gives the next batch
        self._running: Iterator[Any] | None = None
        self._ending: Callable[[], object] | None = None  # of the workers that run

    def _place(self) -> tuple[int, int]:
        """(rank, world size)"""
        if self._world_size is not None:
            return self._rank or 0, self._world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def __len__(self) -> int:
        """`steps`, where iterations are sure to have so many."""
        if self._steps is None or not self._repeat:
            raise TypeError("this stream has no length: it has as many batches as its documents give")
        return self._steps

    def __iter__(self) -> Iterator[Block]:
        numbers = itertools.count() if self._steps is None else range(self._steps)
        for _ in numbers:
            if self._running is None:
                self._running = self._start()
            try:
                batch, moved = next(self._running)
            except StopIteration:
                self._begin_next_epoch()
                return
            for lane, place in moved.items():
                self._lanes[lane] = place
            self._turn = (self._turn + 1) % max(self._num_workers, 1)
            yield batch

    def _start(self) -> Iterator[Any]:
        rank, world_size = self._place()
        if world_size * max(self._num_workers, 1) > self._n_lanes:
            raise DataError(
                f"{world_size} ranks with {self._num_workers} workers each, and {self._n_lanes} lanes to share out; use "
                "fewer, or begin a run with more lanes"
            )
        reader = _Reader(self, list(range(rank, self._n_lanes, world_size)))
        running = iter(
            DataLoader(
                reader,
                batch_size=None,
                num_workers=self._num_workers,
                collate_fn=_as_it_is,
                pin_memory=self._pin_memory,
                multiprocessing_context=self._context,
                generator=torch.Generator(),  # or PyTorch's own would be drawn from
            )
        )
        # Left to the garbage collector, which may close the workers' queues first, they are waited for five seconds each.
        # What a finalizer holds stays whole until it has run; so nothing in there may hold this stream.
        self._ending = weakref.finalize(self, end_workers, running, os.getpid())
        return running

    def _begin_next_epoch(self) -> None:
        self.close()
        rank, world_size = self._place()
        for lane in range(rank, self._n_lanes, world_size):
            self._lanes[lane] = [self._lanes[lane][0] + 1, lane, 0, 0]

    def close(self) -> None:
        """End the workers, if there are any; the next iteration goes on behind the batch that was taken last."""
        self._running = None
        if self._ending is not None:
            self._ending()  # once

    # The state

    def _settings(self) -> dict[str, Any]:
        """What rows depend on, beside the documents."""
        return {
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
            "separator_id": self._separator,
            "block_size": self._block_size,
            "packing": self._packing,
            "chunk_documents": self._chunk_documents,
            "shuffle": self._shuffle,
            "seed": self._seed,
        }

    def state_dict(self) -> dict[str, Any]:
        """The place of every lane, as plain values; the batch that was taken last counts as done.

        Where a process group of several ranks is running they tell each other their lanes: call it on all of them, as
        Lightning does.
        """
        rank, world_size = self._place()
        state = {
            "version": 1,
            **self._settings(),
            "turn": self._turn,
            "ranks": [rank, world_size],
            "lanes": [list(place) for place in self._lanes],
        }
        if world_size > 1 and torch.distributed.is_available() and torch.distributed.is_initialized():
            states: list[Any] = [None] * world_size
            torch.distributed.all_gather_object(states, state)
            return merge_states(states)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved place, with any number of ranks and workers and any batch size.

        Raises:
            DataError: the state is of another stream, or of one rank of several.
        """
        if state.get("version") != 1:
            raise DataError(f"the stream's state has version {state.get('version')!r}; this package reads 1")
        for key, value in self._settings().items():
            if state[key] != value:
                raise DataError(
                    f"the stream that was saved has {key} {state[key]!r}, and this one {value!r}: its rows are others. Go "
                    "on with the same, or begin anew with the weights alone"
                )
        if state["ranks"] is not None and state["ranks"][1] > 1:
            raise DataError(
                f"the state is of rank {state['ranks'][0]} of {state['ranks'][1]} alone, which does not know the others' "
                "lanes; join all of them with merge_states"
            )
        self.close()
        self._lanes = [list(place) for place in state["lanes"]]
        self._n_lanes = len(self._lanes)
        self._turn = state["turn"] % max(self._num_workers, 1)


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One state of the states of all ranks, in any order: of each lane the place that its own rank knows.

    Raises:
        DataError: a rank is missing, or they are of different streams.
    """
    by_rank = {state["ranks"][0]: state for state in states}
    world_size = states[0]["ranks"][1]
    if sorted(by_rank) != list(range(world_size)):
        raise DataError(f"there are states of the ranks {sorted(by_rank)}, and {world_size} ranks")
    lanes = [by_rank[lane % world_size]["lanes"][lane] for lane in range(len(states[0]["lanes"]))]
    return {**by_rank[0], "ranks": None, "lanes": lanes}


class _Reader(IterableDataset[Any]):
    """Gives (batch, lane → its place behind the batch) of one rank's lanes, or of one worker's share of them."""

    def __init__(self, stream: TokenStream, own: list[int]) -> None:
        super().__init__()
        # A copy: a stream must be free to go while its readers run, and workers that run cannot be sent to others.
        self._stream = TokenStream.__new__(TokenStream)
        places = [list(place) for place in stream._lanes]
        vars(self._stream).update({**vars(stream), "_lanes": places, "_running": None, "_ending": None})
        self._own = own

    def __iter__(self) -> Iterator[tuple[Block, dict[int, Place]]]:
        stream, worker = self._stream, get_worker_info()
        share = self._own
        if worker is not None:
            share = share[(worker.id + stream._turn) % worker.num_workers :: worker.num_workers]
        places = {lane: list(stream._lanes[lane]) for lane in share}
        parts: list[Blocks] = []
        moved: dict[int, Place] = {}
        count = 0
        for lane, place, chunk in self._chunks(places):
            epoch, number, row, crc = place
            order = np.arange(len(chunk))
            if stream._shuffle:
                order = Permutation(len(chunk), stream._seed, (epoch << 32) + number)(order)
            moved[lane] = [epoch, number + stream._n_lanes, 0, 0]
            while row < len(chunk):
                part = order[row : row + stream._batch_size - count]
                parts.append(chunk.gather(part))
                row += len(part)
                count += len(part)
                if row < len(chunk):
                    moved[lane] = [epoch, number, row, crc]
                else:
                    moved[lane] = [epoch, number + stream._n_lanes, 0, 0]
                if count == stream._batch_size:
                    yield _joined(parts), moved
                    parts, moved, count = [], {}, 0
        if count:
            yield _joined(parts), moved

    def _chunks(self, places: dict[int, Place]) -> Iterator[tuple[int, Place, PackedChunk]]:
        """(lane, its place with the chunk's CRC, the chunk) from the places on, reading after reading."""
        stream = self._stream
        while True:
            epoch = min(place[0] for place in places.values())
            n_own = n_documents = 0
            for number, texts in enumerate(self._texts()):
                lane = number % stream._n_lanes
                first, n_documents = n_documents, n_documents + len(texts)
                if lane not in places:
                    continue
                n_own += 1
                place = places[lane]
                if (place[0], place[1]) > (epoch, number):
                    continue  # done already
                crc = zlib.crc32("\0".join(texts).encode("utf-8"))
                if place[2] and place[3] != crc:
                    raise DataError(
                        f"documents {first:,} to {n_documents - 1:,} are not those that the saved place is one in: the "
                        "text has changed. Go on with the same text, or begin anew with the weights alone"
                    )
                chunk = PackedChunk(
                    texts, stream.tokenizer, stream._separator, stream._packing, stream._block_size, first
                )
                yield lane, [epoch, number, place[2], crc], chunk
                places[lane] = [epoch, number + stream._n_lanes, 0, 0]
            for lane, place in places.items():
                if place[0] == epoch:
                    places[lane] = [epoch + 1, lane, 0, 0]
            if not stream._repeat:
                return
            if not n_own:
                raise DataError(
                    f"{n_documents:,} documents make fewer chunks of {stream._chunk_documents:,} than there are ranks and "
                    "workers; use smaller chunks (chunk_documents)"
                )

    def _texts(self) -> Iterator[list[str]]:
        stream = self._stream
        texts: list[str] = []
        size = 0
        for text in stream._documents() if callable(stream._documents) else stream._documents:
            texts.append(text)
            size += len(text)
            if len(texts) == stream._chunk_documents or size >= _CHARACTERS:
                yield texts
                texts, size = [], 0
        if texts:
            yield texts


def _joined(parts: list[Blocks]) -> Block:
    columns = zip(*parts, strict=True)
    joined = (None if column[0] is None else torch.from_numpy(np.concatenate(column)) for column in columns)
    return BlockBatch(*joined).whole  # type: ignore[arg-type]


def _as_it_is(item: Any) -> Any:
    return item


def _separator_id(tokenizer: Tokenizer, separator: str | None) -> int | None:
    specials = tokenizer.special_tokens
    if separator is None or separator == "auto":
        return specials.get(END_OF_TEXT) if separator else None
    if separator not in specials:
        raise TokenizerError(
            f"the separator {separator!r} is no special token of this tokenizer ({', '.join(specials) or 'it has none'})"
        )
    return specials[separator]
