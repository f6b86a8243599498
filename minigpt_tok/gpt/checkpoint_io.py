"""How Lightning's checkpoints get to the disk and back: whole or not at all, and past a guard.

Lightning 2.6 itself writes to the system's temporary folder and moves the file from there. Where that folder is on
another file system, moving is copying onto the final name, and a crash in the middle leaves half a checkpoint there.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch.plugins.io import TorchCheckpointIO

from minigpt_tok.checkpoint_files import write_torch

Checkpoint = dict[str, Any]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's own, except that local files are written beside their final name, flushed, and renamed."""

    def save_checkpoint(self, checkpoint: Checkpoint, path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint; an earlier file at `path` stays until the new one is whole.

        Raises:
            OSError: it could not be written.
        """
        if storage_options is not None or "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
        else:
            write_torch(path, checkpoint)


class GuardedCheckpointIO(CheckpointIO):
    """Another checkpoint IO, with a look at every checkpoint before it is written and after it is read.

    Unlike a callback's hooks, this sees checkpoints that hold weights alone, and it sees each one before anything of it
    reaches the model.
    """

    def __init__(
        self,
        inner: CheckpointIO,
        on_save: Callable[[Checkpoint], None],
        on_load: Callable[[Checkpoint, str | Path], None],
    ) -> None:
        """`on_save` may change the checkpoint; either may raise."""
        self.inner = inner
        self.on_save = on_save
        self.on_load = on_load

    def save_checkpoint(self, checkpoint: Checkpoint, path: str | Path, storage_options: Any = None) -> None:
        """Look, then write."""
        self.on_save(checkpoint)
        self.inner.save_checkpoint(checkpoint, path, storage_options=storage_options)

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> Checkpoint:
        """Read, then look."""
        checkpoint: Checkpoint = self.inner.load_checkpoint(path, *args, **kwargs)
        self.on_load(checkpoint, path)
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        """As the other does."""
        self.inner.remove_checkpoint(path)

    def teardown(self) -> None:
        """As the other does."""
        self.inner.teardown()
