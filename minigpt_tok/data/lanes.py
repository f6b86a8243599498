"""The way of documents into id files: one lane a split, all filled in one reading of the corpus.

Splits by hash stand in one stream, which would otherwise have to be read and hashed once for each of them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data import engines
from minigpt_tok.data.engines import Batch, Engine
from minigpt_tok.data.shards import Shards

_WRITTEN_AT_ONCE = 4  # batches of ids that may wait to be written


class Lane:
    """Makes batches of one split's documents; holds those of a finished shard until its text is seen to be its."""

    def __init__(self, split: str, name: str, shards: Shards) -> None:
        """`name` says in errors whose documents these are."""
        self.split = split
        self.name = name
        self.shards = shards
        self._batch_bytes = engines.BATCH_BYTES
        self._parts: list[Texts] = []  # of the next batch
        self._first = 0  # the number of its first document
        self._size = 0  # in bytes
        self._in_shard = 0  # bytes of earlier batches in the same shard
        self._held: list[Batch] = []

    def add(self, texts: Texts) -> Iterator[Batch]:
        """What is now to be encoded: mostly nothing. A batch ends wherever a shard does."""
        while len(texts):
            left_in_shard = self.shards.shard_bytes - self._in_shard - self._size
            left = min(left_in_shard, self._batch_bytes - self._size)  # both end with the document that reaches this
            part = texts if texts.n_bytes < left else texts[: int(np.searchsorted(texts.ends, left)) + 1]
            texts = texts[len(part) :]
            self._parts.append(part)
            self._size += part.n_bytes
            ends_shard = part.n_bytes >= left_in_shard
            # A batch nearly full is not filled up with a few documents of the next part: all would have to be copied.
            if self._size >= self._batch_bytes * 7 // 8 or ends_shard:
                yield from self._end_batch(ends_shard)

    def finish(self) -> Iterable[Batch]:
        """What is left, when there are no more documents."""
        left = list(self._end_batch(ends_shard=True)) if self._parts else list(self._settle())
        self.shards.drop_rest()
        return left

    def _end_batch(self, ends_shard: bool) -> Iterable[Batch]:
        batch = Batch(self.split, self.name, self._first, Texts.together(self._parts))
        self._first += len(batch.texts)
        self._in_shard = 0 if ends_shard else self._in_shard + self._size
        self._parts, self._size = [], 0
        if not self.shards.finished_left:
            return (batch,)
        self._held.append(batch)
        return self._settle() if ends_shard else ()

    def _settle(self) -> Iterable[Batch]:
        """Keep the finished shard whose text is held, or give it to be encoded again."""
        held, self._held = self._held, []
        if not held:
            return ()
        return () if self.shards.keep([batch.texts for batch in held]) else held


def encode_lanes(
    engine: Engine, lanes: Mapping[str, Lane], documents: Iterable[tuple[str, Texts]]
) -> Iterator[tuple[str, int]]:
    """Encode (split, documents) pairs into their lanes; splits without a lane are passed over.

    Gives the split in which something was done and the bytes kept or written in all lanes, now and then.
    """
    # Hashing and writing ids need no Python, so they go on beside the reading of the next batches.
    with ThreadPoolExecutor(1, "minigpt-tok-write") as writer:
        writing: deque[Future[None]] = deque()
        for batch, (ids, lengths) in engine.encode(_batches(lanes, documents)):
            writing.append(writer.submit(lanes[batch.split].shards.write, ids, lengths, batch.texts))
            while len(writing) > _WRITTEN_AT_ONCE:
                writing.popleft().result()
            yield batch.split, sum(lane.shards.n_bytes for lane in lanes.values())
        for written in writing:
            written.result()


def _batches(lanes: Mapping[str, Lane], documents: Iterable[tuple[str, Texts]]) -> Iterator[Batch]:
    for split, texts in documents:
        lane = lanes.get(split)
        if lane is not None:
            yield from lane.add(texts)
    for lane in lanes.values():
        yield from lane.finish()
