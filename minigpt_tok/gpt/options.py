"""How a MiniGPT is trained: one frozen dataclass whose fields hold type, default and documentation."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from minigpt_tok.errors import ModelError


def _option(help: str, default: Any, least: float | None = None, most: float = math.inf) -> Any:
    return field(default=default, metadata={"help": help, "least": least, "most": most})


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Everything about a run but its data, its model's shape and its budget.

    Each field's `metadata["help"]` says what it is; the command line shows the same text.

    Raises:
        ModelError: a value out of its bounds.
    """

    batch_size: int = _option("blocks in a batch", 32, 1)
    accumulate: int = _option("batches whose gradients are added up for one step", 1, 1)
    learning_rate: float = _option("the highest learning rate", 1e-3, 0)
    final_learning_rate: float = _option("the learning rate at the end, as a share of the highest", 0.1, 0, 1)
    warmup: float = _option("share of the budget in which the learning rate rises", 0.02, 0, 1)
    weight_decay: float = _option(
        "AdamW's weight decay, on matrices alone (embeddings too, biases and norms not)", 0.1, 0
    )
    beta1: float = _option("AdamW's decay of the mean gradient", 0.9, 0, 1)
    beta2: float = _option("AdamW's decay of the mean squared gradient", 0.99, 0, 1)
    gradient_clip: float = _option("the largest norm of a step's gradient; 0 does not clip", 1.0, 0)
    precision: str = _option("as Lightning's Trainer has it: 32-true, bf16-mixed, 16-mixed, …", "32-true")
    seed: int = _option("of the weights, the order of the data and dropout", 0, 0, 2**32 - 1)
    packing: str = _option(
        "how blocks are made of the ids: contiguous, document, best_fit or bos_aligned", "contiguous"
    )
    num_workers: int = _option("processes that fetch batches; the order is the same for any number", 0, 0)
    accelerator: str = _option("as Lightning's Trainer has it: auto, cpu, cuda, mps", "auto")
    validations: int = _option("how often in a run to validate and to save, at equal shares of the budget", 10, 1)
    validation_bytes: int = _option("bytes of validation text for these quick looks; 0 for none of them", 65_536, 0)
    logs: int = _option("how often in a run to log, at equal shares of the budget", 100, 1)

    def __post_init__(self) -> None:
        for item in fields(self):
            value, least, most = getattr(self, item.name), item.metadata["least"], item.metadata["most"]
            if least is None:
                if not isinstance(value, str) or not value:
                    raise ModelError(f"{item.name} is {value!r}; give a name: {item.metadata['help']}")
                continue
            kinds, what = ((int,), "whole number") if item.type is int else ((int, float), "number")
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
                bounds = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
                raise ModelError(f"{item.name} is {value!r}; give a {what} {bounds}: {item.metadata['help']}")

    def to_plain(self) -> dict[str, Any]:
        """As plain types, for checkpoints and JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "TrainingOptions":
        """The options that `to_plain` gave.

        Raises:
            ModelError: an unknown name, or a value out of its bounds.
        """
        if unknown := sorted(set(plain) - {item.name for item in fields(cls)}):
            raise ModelError(f"there are no training options {', '.join(unknown)}")
        return cls(**plain)
