"""`TokenLoader`: batches of a `TokenDataset` in a resumable order, with a state that is exact to the batch.

PyTorch's `DataLoader` does the fetching. This class is around it because workers fetch ahead of the training loop: the
place in the order is counted where batches are taken, not where they are asked for. It is no `DataLoader` itself, so
Lightning neither replaces its sampler nor shards it a second time; it saves and restores its state with a checkpoint.

Lightning counts its own epochs, and counts the one it stopped in as done; resumed, it would begin another, and the rest
of the data's epoch would never be seen. So its loader gives the same number of batches in each iteration and goes over
the end of the data's epoch where that falls between (`steps`): whatever Lightning counts, no block is skipped.
"""

import os
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from minigpt_tok.data.order import ResumableSampler
from minigpt_tok.data.token_dataset import Block, TokenDataset
from minigpt_tok.errors import DataError


class TokenLoader:
    """An iterable of batches as `TokenDataset.collate` gives them, in the sampler's order from its place on.

    Attributes:
        dataset: the blocks.
        batch_sampler: their order and the place in it.
        allow_other_data: of a saved state of other data take nothing, where otherwise it is refused.
    """

    def __init__(
        self,
        dataset: TokenDataset,
        batch_sampler: ResumableSampler,
        *,
        steps: int | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        multiprocessing_context: str | None = None,
    ) -> None:
        """Make the inner loader.

        Args:
            dataset: the blocks.
            batch_sampler: their order.
            steps: batches in an iteration, across the end of an epoch if need be; `None`: the rest of the epoch.
            num_workers: processes that fetch; they live as long as this loader. The order is the same for any number.
                Gathering a batch from a memory map is quicker than handing it over, so 0 is fastest where the training
                step leaves the processor to it.
            pin_memory: for faster copies to a GPU.
            multiprocessing_context: how workers start.
        """
        self.dataset = dataset
        self.batch_sampler = batch_sampler
        self.allow_other_data = False
        self._steps = steps
        self._loader: DataLoader[Block] = DataLoader(
            dataset,
            batch_sampler=_Upcoming(batch_sampler, steps),
            num_workers=num_workers,
            collate_fn=TokenDataset.collate,
            pin_memory=pin_memory,
            persistent_workers=num_workers > 0,
            multiprocessing_context=multiprocessing_context if num_workers else None,
            # Without this, iterating draws a seed from PyTorch's generator, and so changes what follows in the model.
            generator=torch.Generator(),
        )
        # What a finalizer holds stays whole until it has run, also where the garbage collector finds this loader.
        weakref.finalize(self, _end_workers_of, self._loader, os.getpid())

    def __len__(self) -> int:
        """Batches of an iteration: `steps`, or those of an epoch that begins at its beginning."""
        return len(self.batch_sampler) if self._steps is None else self._steps

    def __iter__(self) -> Iterator[Block]:
        self.batch_sampler.begin()
        for batch in self._loader:
            self.batch_sampler.advance()
            yield batch
        self.batch_sampler.begin()

    def close(self) -> None:
        """End the workers, if there are any; the next iteration starts others.

        They end as well when the loader is dropped.
        """
        _end_workers_of(self._loader, os.getpid())

    def state_dict(self) -> dict[str, Any]:
        """The place in the order, the batch that was taken last counted as done, and the data it is a place in."""
        return {**self.batch_sampler.state_dict(), "data_fingerprint": self.dataset.fingerprint}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved place, see `ResumableSampler.load_state_dict`.

        Raises:
            DataError: it is one in other data, or in other blocks of it.
        """
        saved = state.get("data_fingerprint", self.dataset.fingerprint)
        if saved != self.dataset.fingerprint:
            if self.allow_other_data:
                return
            raise DataError(
                f"the place that was saved is one in the blocks {saved}, and {self.dataset.id_file.path} with block_size "
                f"{self.dataset.block_size} and packing {self.dataset.packing!r} gives {self.dataset.fingerprint}: other "
                "text, tokenizer, packing, block size or stride. Go on with the same; or, to begin other data at its beginning "
                "on purpose, set this loader's allow_other_data"
            )
        self.batch_sampler.load_state_dict(state)


def _end_workers_of(loader: DataLoader[Any], process: int) -> None:
    iterator, loader._iterator = loader._iterator, None
    end_workers(iterator, process)


def end_workers(iterator: object, process: int) -> None:
    """End the workers of a `DataLoader`'s iterator, if it has any and this is the process that started them.

    Must come before the garbage collector finds the iterator. That may close the queues to the workers first; they are
    then never told to end, and each is waited for five seconds.
    """
    if os.getpid() == process and hasattr(iterator, "_shutdown_workers"):  # PyTorch has no public name for it
        iterator._shutdown_workers()


class _Upcoming:
    """What the inner loader iterates: the sampler's batches from its place on, without moving it."""

    def __init__(self, sampler: ResumableSampler, steps: int | None) -> None:
        self._sampler = sampler
        self._steps = steps

    def __iter__(self) -> Iterator[list[int]]:
        return self._sampler.upcoming(self._steps)

    def __len__(self) -> int:
        return self._sampler.steps_left() if self._steps is None else self._steps
