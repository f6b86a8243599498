"""`TokenDataModule`: the id files of a folder as Lightning wants them, in an order that a checkpoint resumes exactly."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch.distributed
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from minigpt_tok.data.loader import TokenLoader
from minigpt_tok.data.order import ResumableSampler
from minigpt_tok.data.splits import SPLITS
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError
from minigpt_tok.files import StrPath
from minigpt_tok.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class TokenDataModule(L.LightningDataModule):
    """Train blocks in a shuffled order, validation and test blocks in the order of the text.

    Every split must be of the given tokenizer. Each rank takes its own share of every step; the loaders are no
    `DataLoader`s to Lightning, so it does not shard them again (`use_distributed_sampler` makes no difference). The
    place in the order is saved with every checkpoint, and `Trainer.fit(ckpt_path=…)` goes on at the next batch, on any
    number of ranks.

    Attributes:
        datasets: split → `TokenDataset`, after `setup`.
    """

    def __init__(
        self,
        data_dir: StrPath,
        block_size: int,
        batch_size: int,
        *,
        tokenizer: Tokenizer | StrPath,
        packing: str = "contiguous",
        evaluation_packing: str | None = None,
        stride: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        drop_last: bool = False,
        pin_memory: bool | None = None,
        multiprocessing_context: str | None = None,
    ) -> None:
        """Remember what to open.

        Args:
            data_dir: the folder that `encode_corpus` filled.
            block_size: in tokens.
            batch_size: blocks per rank and step.
            tokenizer: the one that the ids must be of, or its file.
            packing: how blocks are made of the ids, see `minigpt_tok.data.packing`.
            evaluation_packing: the same for validation and test; `packing` if `None`. `contiguous` and `document` see
                the whole text in its own order, but for the tail.
            stride: of the train split, from one block's beginning to the next; `block_size` if `None`.
            num_workers: processes that fetch batches; the order is the same for any number.
            seed: of the order.
            drop_last: leave out what is less than a full step at the end of an epoch, instead of a smaller batch.
            pin_memory: for faster copies to a GPU; `None`: where there is one.
            multiprocessing_context: how workers start (`fork`, `spawn`, `forkserver`); PyTorch's default if `None`.
        """
        super().__init__()
        self.data_dir = Path(data_dir)
        self.block_size = block_size
        self.batch_size = batch_size
        self.tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(tokenizer)
        self.packing = packing
        self.evaluation_packing = packing if evaluation_packing is None else evaluation_packing
        self.stride = stride
        self.num_workers = num_workers
        self.seed = seed
        self.drop_last = drop_last
        self.pin_memory = torch.cuda.is_available() if pin_memory is None else pin_memory
        self.multiprocessing_context = multiprocessing_context
        self.datasets: dict[str, TokenDataset] = {}
        self._train_loader: TokenLoader | None = None
        self._loaders: list[TokenLoader] = []  # whose workers may be running
        self._resume_from: dict[str, Any] | None = None

    def setup(self, stage: str | None = None) -> None:
        """Open the splits that the folder has.

        Raises:
            TokenizerMismatchError: a split was encoded with another tokenizer.
            DataError: there is no train split, or a split has not one block.
        """
        if self.datasets:
            return
        present = [split for split in SPLITS if (self.data_dir / f"{split}.safetensors").is_file()]
        for split in dict.fromkeys(["train", *present]):
            self.datasets[split] = TokenDataset(
                self.data_dir,
                self.block_size,
                tokenizer=self.tokenizer,
                packing=self.packing if split == "train" else self.evaluation_packing,
                stride=self.stride if split == "train" else None,
                seed=self.seed,
                split=split,
            )
        corpora = {dataset.id_file.metadata.corpus for dataset in self.datasets.values()}
        if len(corpora) > 1:
            log.warning("%s has splits of several corpora: %s", self.data_dir, ", ".join(sorted(corpora)))
        separators = {dataset.id_file.metadata.separator for dataset in self.datasets.values()}
        if len(separators) > 1:
            raise DataError(
                f"{self.data_dir}: its splits have different separators ({', '.join(map(repr, sorted(separators)))}); "
                "encode the corpus again"
            )

    def train_dataloader(self) -> TokenLoader | DataLoader[Any]:
        """The train split, shuffled; goes on where a loaded checkpoint stopped."""
        if getattr(self.trainer, "overfit_batches", 0):
            # The same few batches in every epoch, which Lightning arranges in a loader of PyTorch's.
            self.setup()
            return DataLoader(self.datasets["train"], self.batch_size, collate_fn=TokenDataset.collate)
        self._train_loader = self._loader("train", shuffle=True)
        self._train_loader.allow_other_data = self._allows_other_data()
        if self._resume_from is not None:
            self._train_loader.load_state_dict(self._resume_from)
            self._resume_from = None
        return self._train_loader

    def val_dataloader(self) -> TokenLoader | list[TokenLoader]:
        """The validation split in the order of the text; an empty list if there is none."""
        self.setup()
        return self._loader("validation", shuffle=False) if "validation" in self.datasets else []

    def test_dataloader(self) -> TokenLoader:
        """The test split in the order of the text.

        Raises:
            DataError: there is none.
        """
        return self._loader("test", shuffle=False)

    def teardown(self, stage: str | None = None) -> None:
        """End the loaders' workers."""
        for loader in self._loaders:
            loader.close()
        self._loaders.clear()

    def on_exception(self, exception: BaseException) -> None:
        """The same where a run fails; Lightning does not tear down then."""
        self.teardown()

    def _loader(self, split: str, *, shuffle: bool) -> TokenLoader:
        self.setup()
        if split not in self.datasets:
            raise DataError(f"{self.data_dir} has no {split} split; it has {', '.join(self.datasets)}")
        dataset = self.datasets[split]
        rank, world_size = self._place()
        sampler = ResumableSampler(
            len(dataset),
            self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            rank=rank,
            world_size=world_size,
            drop_last=shuffle and self.drop_last,
            # Ranks that only evaluate need not keep step, so there no block is left out.
            same_steps=shuffle,
        )
        loader = TokenLoader(
            dataset,
            sampler,
            steps=len(sampler) if shuffle else None,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            multiprocessing_context=self.multiprocessing_context,
        )
        self._loaders.append(loader)
        return loader

    def _place(self) -> tuple[int, int]:
        """(rank, world size): of the trainer if there is one, else of the process group if there is one."""
        if self.trainer is not None:
            return self.trainer.global_rank, self.trainer.world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def _allows_other_data(self) -> bool:
        """Whether a callback of the trainer says so (`TokenizerFingerprint` does); this module imports none."""
        callbacks = getattr(self.trainer, "callbacks", None) or ()
        return any(getattr(callback, "allow_other_data", False) is True for callback in callbacks)

    # What a checkpoint keeps

    def state_dict(self) -> dict[str, Any]:
        """The place in the order and the data it is a place in, as plain values. Lightning saves it in checkpoints."""
        if self._train_loader is None:
            return {}
        return {
            "data_fingerprint": self._train_loader.dataset.fingerprint,
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
            "order": self._train_loader.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved place; takes effect in the loader that there is, or in the next.

        Only training goes on: a checkpoint may be validated, tested and predicted with on any data of its tokenizer.

        Raises:
            DataError: the state is of other data, or of other blocks of it.
        """
        training = self.trainer is None or self.trainer.state.fn in (None, TrainerFn.FITTING)
        if not state_dict or not training:
            return
        self.setup()
        here = self.datasets["train"].fingerprint
        if state_dict["data_fingerprint"] != here:
            what = (
                f"the checkpoint was trained on the blocks {state_dict['data_fingerprint']}, and {self.data_dir} with "
                f"block_size {self.block_size} and packing {self.packing!r} gives {here}: other text, tokenizer, packing, "
                "block size or stride"
            )
            if not self._allows_other_data():
                raise DataError(
                    f"{what}. Resume with the same, or begin a new run from the checkpoint's weights; or, to go on with "
                    "other data on purpose, give the trainer TokenizerFingerprint(…, allow_other_data=True)"
                )
            warnings.warn(f"{what}: it is trained on from its beginning", stacklevel=2)
            return
        self._resume_from = state_dict["order"]
        if self._train_loader is not None:
            self._train_loader.load_state_dict(state_dict["order"])
