"""Causal attention: which of three forms runs where, and what each costs.

All forms compute softmax(q kᵀ / √head_dim + mask) v and agree within float tolerance; they differ in speed alone.

* `F.scaled_dot_product_attention` (*fused*): on every device but the CPU, and on the CPU for long windows without
  dropout. There PyTorch runs a flash kernel, which never lays out the matrix of weights: less memory, no less time.
* the *math* form below, two batched matrix products around a softmax: on the CPU for short windows, and for any window
  with dropout, where PyTorch itself has no kernel and falls back to the same products. Queries are taken in blocks that
  look only at the keys up to them, which spares nearly half of what a mask would throw away, and half of the random
  numbers of dropout.

Forward and backward, 4,096 tokens, 4 heads of 32, float32, one core of an AMD EPYC, torch 2.13, in ms:

| window | flash | math below | PyTorch, dropout 0.1 | math below, dropout 0.1 |
| ---: | ---: | ---: | ---: | ---: |
| 64 | 9.4 | 10.6 | 19 | 13 |
| 128 | 14.7 | 16.3 | 32 | 19 |
| 256 | 25 | 24 | 65 | 30 |
| 512 | 49 | 42 | 210 | 67 |
| 1024 | 73 | 69 | 341 | 91 |

With two cores the math form gains more than flash: at a window of 128, without the blocks of queries, it took 7.8 ms
where flash took 9.3.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from minigpt_tok.gpt.dropout import dropout

FUSED_FROM = 512
"""Windows of at least so many tokens take the fused form on the CPU, to save memory (see the table above)."""


_QUERIES = 64  # at a time in the math form


def attention(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, dropout_p: float = 0.0) -> Tensor:
    """Attend from the last `time` of `context` positions to all positions up to each.

    Args:
        q: queries, `(batch, heads, time, head_dim)`.
        k, v: keys and values, `(batch, heads, context, head_dim)`, `context >= time`.
        mask: bool, broadcastable to `(batch, heads, time, context)`, True where attention is allowed *besides* being
            causal; None allows everything causal.
        dropout_p: share of attention weights set to 0; 0 outside training.

    Returns:
        `(batch, heads, time, head_dim)`.
    """
    time, context = q.shape[2], k.shape[2]
    if q.device.type == "cpu" and (dropout_p > 0 or context < FUSED_FROM):
        return _math(q, k, v, mask, dropout_p)
    if mask is None and (time == context or time == 1):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=time > 1)
    allowed = _allowed(time, context, mask, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout_p)


def _math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float) -> Tensor:
    batch, heads, time, head_dim = q.shape
    context = k.shape[2]
    q, k, v = (part.reshape(batch * heads, -1, head_dim) for part in (q, k, v))
    scale = head_dim**-0.5
    looked: list[Tensor] = []
    for start in range(0, time, _QUERIES):
        end = min(start + _QUERIES, time)
        reach = context - time + end  # keys up to the last of these queries
        queries = q[:, start:end]
        allowed = _allowed(end - start, reach, None if mask is None else mask[..., start:end, :reach], q.device)
        if allowed is None:
            scores = torch.bmm(queries * scale, k[:, :reach].transpose(1, 2))
        else:
            # The mask is the addend of the matrix product: no pass of its own over the matrix of weights.
            addend = q.new_zeros(allowed.shape).masked_fill_(~allowed, -torch.inf)
            if allowed.dim() == 4:
                addend = addend.expand(batch, heads, end - start, reach).reshape(batch * heads, end - start, reach)
            scores = torch.baddbmm(addend, queries, k[:, :reach].transpose(1, 2), alpha=scale)
        looked.append(torch.bmm(dropout(scores.softmax(dim=-1), dropout_p), v[:, :reach]))
    return (looked[0] if len(looked) == 1 else torch.cat(looked, dim=1)).view(batch, heads, time, head_dim)


def _allowed(time: int, context: int, mask: Tensor | None, device: torch.device) -> Tensor | None:
    """Which keys each query may look at, bool: `(time, context)`, or 4-dimensional with a mask; None: all of them."""
    if time == 1:
        return mask
    causal = torch.ones(time, context, dtype=torch.bool, device=device).tril_(context - time)
    return causal if mask is None else causal & mask
