"""The shape of a MiniGPT: one frozen dataclass whose fields hold type, default, bounds and documentation."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from minigpt_tok.errors import ModelError


def _size(help: str, default: int, least: int = 1) -> Any:
    return field(default=default, metadata={"help": help, "least": least})


@dataclass(frozen=True, kw_only=True)
class MiniGPTConfig:
    """The shape of a `MiniGPT`. Each field's `metadata["help"]` says what it is; the command line shows the same text.

    `vocab_size` may be given by position, everything else by name alone.

    Raises:
        ModelError: a value is out of its bounds, or the heads do not divide the width.
    """

    vocab_size: int = field(
        kw_only=False, metadata={"help": "ids in all, specials included: the tokenizer's vocab_size", "least": 1}
    )
    block_size: int = _size("context window and number of learned positions, in tokens", 128)
    embedding_dim: int = _size("width of the residual stream, a multiple of the number of heads", 128)
    num_heads: int = _size("attention heads in each layer", 4)
    num_layers: int = _size("transformer blocks", 4)
    expansion_factor: int = _size("width of the MLP's hidden layer, in widths of the residual stream", 4)
    dropout: float = field(
        default=0.1,
        metadata={"help": "share of activations set to 0 in training: embeddings, attention weights, block outputs"},
    )
    pad_vocab_to: int = _size("pad the embedding's rows to a multiple of this (64 suits GPUs); never predicted", 1)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "dropout":
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
                    raise ModelError(f"dropout is {value!r}; give a number from 0 to below 1")
            elif isinstance(value, bool) or not isinstance(value, int) or value < item.metadata["least"]:
                raise ModelError(f"{item.name} is {value!r}; give a whole number of at least {item.metadata['least']}")
        if self.embedding_dim % self.num_heads:
            raise ModelError(
                f"embedding_dim is {self.embedding_dim}, not a multiple of num_heads, {self.num_heads}; "
                "every head takes an equal share of the width"
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.embedding_dim // self.num_heads

    @property
    def embedding_rows(self) -> int:
        """Rows of the embedding: `vocab_size`, padded up to a multiple of `pad_vocab_to`."""
        return -(-self.vocab_size // self.pad_vocab_to) * self.pad_vocab_to

    def to_plain(self) -> dict[str, Any]:
        """As plain types, for checkpoints and JSON; `from_plain` reads it."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "MiniGPTConfig":
        """The configuration that `to_plain` gave.

        Raises:
            ModelError: a name is missing or unknown, or a value out of its bounds.
        """
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(plain) - known):
            raise ModelError(
                f"a MiniGPT's configuration has no {', '.join(unknown)}; it has {', '.join(sorted(known))}"
            )
        if "vocab_size" not in plain:
            raise ModelError("a MiniGPT's configuration needs vocab_size")
        return cls(**plain)
