"""Cross-entropy of a tied head, without laying out the logits of a whole batch where that is slow.

With 4,096 tokens and 8,192 ids the logits take 134 MB, and log-softmax, its gradient and the gradient of the gather
each take as much again: on a CPU half of a small model's step goes into moving them through memory. Here rows are
handled in chunks that stay in the processor's cache, and the gradient is worked out beside the loss, so nothing is
kept. One core of an AMD EPYC, forward and backward of head and loss alone, in ms:

| ids | `F.linear`, `F.cross_entropy` | with the product of `linear` | in chunks | in chunks with it |
| ---: | ---: | ---: | ---: | ---: |
| 1,000 | 38 | 21 | 40 | 29 |
| 8,192 | 538 | 410 | 348 | 236 |

So small vocabularies take the plain form; GPUs and lower precision do too.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from minigpt_tok.gpt.linear import IMAGES, linear

IGNORED = -100
"""The target of a position that has none (padding, or beyond a budget): PyTorch's usual `ignore_index`."""

_CHUNK = 1 << 21  # logits at a time: 8 MB, a share of the last-level cache
_PLAIN_UP_TO = 1 << 22  # logits in all: up to here the plain form is as fast


def head_loss(hidden: Tensor, embedding: Tensor, targets: Tensor, vocab_size: int) -> Tensor:
    """Mean cross-entropy in nats of `hidden @ embeddingᵀ` over the targets that are not `IGNORED`; a scalar.

    Args:
        hidden: float, `(tokens, width)`.
        embedding: float, `(rows, width)`; rows from `vocab_size` on are padding and take no probability.
        targets: int64, `(tokens,)`. All `IGNORED`: the loss is NaN, as in PyTorch.
        vocab_size: ids that can be predicted.
    """
    in_chunks = (
        hidden.device.type == "cpu"
        and hidden.dtype == embedding.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and hidden.shape[0] * vocab_size > _PLAIN_UP_TO
    )
    if not in_chunks:
        bias = None
        if embedding.shape[0] > vocab_size:
            # exp(-inf) is 0: the padded rows get neither probability nor gradient, without a pass over the logits.
            bias = hidden.new_zeros(embedding.shape[0])
            bias[vocab_size:] = -torch.inf
        return F.cross_entropy(linear(hidden, embedding, bias), targets, ignore_index=IGNORED)
    kept = targets != IGNORED
    if not bool(kept.all()):
        hidden, targets = hidden[kept], targets[kept]
    if not torch.is_grad_enabled():
        return _ChunkedLoss.forward(None, hidden, embedding[:vocab_size], targets)
    loss: Tensor = _ChunkedLoss.apply(hidden, embedding[:vocab_size], targets)  # type: ignore[no-untyped-call]
    return loss


class _ChunkedLoss(torch.autograd.Function):
    """Mean cross-entropy of `hidden @ weightᵀ` in chunks of rows; its gradients are computed with it."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        count = hidden.shape[0]
        rows = max(IMAGES, _CHUNK // weight.shape[0] // IMAGES * IMAGES)  # as many as the fast product can take
        with_gradients = ctx is not None
        hidden_gradient, weight_gradient = torch.empty_like(hidden), torch.zeros_like(weight)
        weight = weight.detach().requires_grad_(with_gradients)
        total = torch.zeros((), dtype=torch.float64)
        for start in range(0, count, rows):
            chunk = slice(start, start + rows)
            at = targets[chunk, None]
            inputs = hidden[chunk].detach().requires_grad_(with_gradients)
            with torch.set_grad_enabled(with_gradients):
                logits = linear(inputs, weight)
            log_probabilities = F.log_softmax(logits.detach(), dim=-1)
            total -= log_probabilities.gather(1, at).sum(dtype=torch.float64)
            if with_gradients:
                gradient = log_probabilities.exp_()  # of the logits: probabilities, less 1 at the target
                gradient.scatter_add_(1, at, gradient.new_full(at.shape, -1.0))
                hidden_gradient[chunk], of_weight = torch.autograd.grad(logits, (inputs, weight), gradient)
                weight_gradient += of_weight
        if with_gradients:
            ctx.count = count
            ctx.save_for_backward(hidden_gradient, weight_gradient)
        return (total / count).to(hidden.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        scale = gradient / ctx.count
        return hidden_gradient * scale, weight_gradient * scale, None
