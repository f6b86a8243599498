"""MiniGPT: GPT-2's architecture at any size.

Learned positions, layer norm before attention and MLP, GELU, and a head that is the token embedding itself (tied). As
in GPT-2, linear layers and layer norms have biases, so that weights can be laid out for `transformers`' GPT-2 without
loss (its `Conv1D` weights are these, transposed; `GPT2_NAMES` maps the names; GELU is the exact one, `"gelu"` in its
configuration, which is also twice as fast on a CPU as the tanh form). The head has no bias.

Initialisation is GPT-2's: normal with deviation 0.02, biases 0, and the two projections that write into the residual
stream divided by √(2 · layers), so that its variance does not grow with depth.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minigpt_tok.errors import ModelError
from minigpt_tok.gpt.attention import attention
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.dropout import dropout
from minigpt_tok.gpt.linear import Linear, linear
from minigpt_tok.gpt.loss import head_loss

GPT2_NAMES = {
    "token_embedding": "wte",
    "position_embedding": "wpe",
    "blocks": "h",
    "attention_norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.projection": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.expand": "mlp.c_fc",
    "mlp.project": "mlp.c_proj",
    "final_norm": "ln_f",
}
"""Our module names and GPT-2's. The four linear layers of a block are transposed there."""


class KeyValueCache:
    """Keys and values of the ids a model has read, so that each further id costs one position's work.

    Attributes:
        keys, values: `(layers, batch, heads, block_size, head_dim)`; the first `length` positions are filled.
        length: ids read so far, in tokens.
    """

    def __init__(self, config: MiniGPTConfig, batch_size: int, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.num_layers, batch_size, config.num_heads, config.block_size, config.head_dim)
        self.keys = torch.empty(shape, device=device, dtype=dtype)
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.length = 0

    def clear(self) -> None:
        """Forget everything; the memory is kept."""
        self.length = 0

    def extended(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values `(batch, heads, time, head_dim)` of one layer; give all of them up to now."""
        end = self.length + k.shape[2]
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class Attention(nn.Module):
    """Causal self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: MiniGPTConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout = config.dropout
        self.qkv = Linear(config.embedding_dim, 3 * config.embedding_dim)
        self.projection = Linear(config.embedding_dim, config.embedding_dim)

    def forward(self, x: Tensor, mask: Tensor | None, cache: KeyValueCache | None, layer: int) -> Tensor:
        """`(batch, time, width)` to the same shape; `mask` as in `minigpt_tok.gpt.attention.attention`."""
        batch, time, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(batch, time, self.num_heads, -1).transpose(1, 2) for part in parts)
        if cache is not None:
            k, v = cache.extended(layer, k, v)
        y = attention(q, k, v, mask=mask, dropout_p=self.dropout if self.training else 0.0)
        projected: Tensor = self.projection(y.transpose(1, 2).reshape(batch, time, width))
        return projected


class MLP(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, config: MiniGPTConfig) -> None:
        super().__init__()
        self.expand = Linear(config.embedding_dim, config.expansion_factor * config.embedding_dim)
        self.project = Linear(config.expansion_factor * config.embedding_dim, config.embedding_dim)

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, time, width)` to the same shape."""
        y: Tensor = self.project(F.gelu(self.expand(x)))
        return y


class Block(nn.Module):
    """One layer: attention, then the MLP, each added to the residual stream."""

    def __init__(self, config: MiniGPTConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.attention_norm = nn.LayerNorm(config.embedding_dim)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.embedding_dim)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, mask: Tensor | None, cache: KeyValueCache | None, layer: int) -> Tensor:
        """`(batch, time, width)` to the same shape."""
        p = self.dropout if self.training else 0.0
        x = x + dropout(self.attention(self.attention_norm(x), mask, cache, layer), p)
        return x + dropout(self.mlp(self.mlp_norm(x)), p)


class MiniGPT(nn.Module):
    """A GPT-2-style language model. `MiniGPT(config)` draws its weights from PyTorch's global generator."""

    def __init__(self, config: MiniGPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.embedding_rows, config.embedding_dim)
        self.position_embedding = nn.Embedding(config.block_size, config.embedding_dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(config.embedding_dim)
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith(("projection.weight", "project.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.num_layers))
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(
        self,
        ids: Tensor,
        cache: KeyValueCache | None = None,
        *,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits of the id after each position.

        Args:
            ids: int64, `(batch, time)`.
            cache: what the model has read before these ids; it then holds these too.
            positions: int64, `(batch, time)`, each below `block_size`, for packings in which positions restart; by
                default they count on from the cache's length, or from 0.
            documents: int64, `(batch, time)`, of which document each position is: it looks back within that alone. Each
                document's positions must be one run. Not with a cache.
            mask: bool, `(batch, time, context)`, True where a position may look (besides looking back only), with
                `context` the cache's length plus `time`.

        Returns:
            float, `(batch, time, vocab_size)`. Padded rows of the embedding have no logit.

        Raises:
            ModelError: the ids are not `(batch, time)`, or longer than the window leaves room for; or documents of
                another shape, or with a cache.
        """
        return self.head(self.hidden(ids, cache, positions=positions, documents=documents, mask=mask))

    def hidden(
        self,
        ids: Tensor,
        cache: KeyValueCache | None = None,
        *,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The normalised last hidden states, float `(batch, time, embedding_dim)`. Arguments as in `forward`."""
        if ids.dim() != 2:
            raise ModelError(f"ids have the shape {tuple(ids.shape)}; give (batch, time)")
        start = 0 if cache is None else cache.length
        time = ids.shape[1]
        if start + time > self.config.block_size:
            raise ModelError(
                f"{start + time:,} ids in a window of {self.config.block_size:,} (block_size); give the last "
                f"{self.config.block_size:,}, or train a model with a longer window"
            )
        placed = (
            self.position_embedding.weight[start : start + time]
            if positions is None
            else self.position_embedding(positions)
        )
        x = dropout(self.token_embedding(ids) + placed, self.config.dropout if self.training else 0.0)
        if documents is not None:
            if cache is not None or documents.shape != ids.shape:
                why = "there is a cache" if cache is not None else f"the ids are {tuple(ids.shape)}"
                raise ModelError(f"documents {tuple(documents.shape)} cannot be kept apart: {why}; give one per id")
            apart = documents[:, :, None] == documents[:, None, :]
            mask = apart if mask is None else mask & apart
        heads_mask = None if mask is None else mask[:, None]
        for layer, block in enumerate(self.blocks):
            x = block(x, heads_mask, cache, layer)
        if cache is not None:
            cache.length += time
        normalised: Tensor = self.final_norm(x)
        return normalised

    def head(self, hidden: Tensor) -> Tensor:
        """Logits `(…, vocab_size)` of hidden states `(…, embedding_dim)`."""
        return linear(hidden, self.token_embedding.weight)[..., : self.config.vocab_size]

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        *,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Mean cross-entropy in nats over the targets that are not -100; a scalar.

        Args:
            ids, targets: int64, `(batch, time)`; `targets` holds the id that follows each position, or -100.
            positions, documents, mask: as in `forward`.
        """
        hidden = self.hidden(ids, positions=positions, documents=documents, mask=mask)
        return head_loss(hidden.flatten(0, 1), self.token_embedding.weight, targets.flatten(), self.config.vocab_size)

    def new_cache(self, batch_size: int = 1) -> KeyValueCache:
        """An empty cache for this model's window, on its device and in its dtype."""
        weight = self.token_embedding.weight
        return KeyValueCache(self.config, batch_size, weight.device, weight.dtype)

    @property
    def body_parameters(self) -> int:
        """Parameters of the blocks and the last layer norm: all but the embeddings."""
        return sum(p.numel() for part in (self.blocks, self.final_norm) for p in part.parameters())

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding, padded rows included, counted once: the head is tied to it."""
        return self.token_embedding.weight.numel()

    @property
    def position_parameters(self) -> int:
        """Parameters of the learned positions."""
        return self.position_embedding.weight.numel()

    @property
    def flops_per_token(self) -> int:
        """Training FLOPs per token by the usual rule: 6 × (body + head parameters), attention's own products apart."""
        return 6 * (self.body_parameters + self.embedding_parameters)

    @property
    def attention_flops_per_token(self) -> int:
        """Training FLOPs per token of q kᵀ and weights · v over a full window: 12 × layers × width × block_size.

        The usual count (PaLM, appendix B), which does not halve it for looking back only.
        """
        return 12 * self.config.num_layers * self.config.embedding_dim * self.config.block_size
