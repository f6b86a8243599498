"""Linear layers that take the faster of PyTorch's two matrix products on a CPU.

For float32 `F.linear` calls MKL, which leaves half of an AMD processor unused (no AVX-512 there). A convolution with a
1×1 kernel is the same product, and PyTorch computes it with oneDNN, which generates code for the processor at hand.
Nothing but public operations, with their own gradients, so the choice can be made call by call. One core of an AMD EPYC
with AVX-512, torch 2.13, float32, in GFLOP/s, forward / forward and backward:

| 4,096 rows, in → out | `F.linear` | 1×1 convolution |
| --- | ---: | ---: |
| 128 → 384 | 102 / 91 | 233 / 193 |
| 128 → 512 | 100 / 90 | 229 / 169 |
| 512 → 128 | 94 / 96 | 221 / 191 |
| 128 → 128 | 102 / 87 | 228 / 187 |

Which of both is chosen depends on the machine and on shapes alone, never on timing, so runs can be repeated bit for bit.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

IMAGES = 16
"""Rows are laid out as so many images: below 16, PyTorch takes another, slow convolution with one thread."""

_LEAST_ROWS = 64  # below, the call itself costs more than the product


def has_fast_convolutions() -> bool:
    """Whether PyTorch was built with oneDNN and runs on an x86 processor with AVX2 or AVX-512."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    return torch.backends.mkldnn.is_available() and capability in ("AVX2", "AVX512")  # type: ignore[no-untyped-call]


_FAST_CONVOLUTIONS = has_fast_convolutions()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weightᵀ + bias`, as `F.linear`: `(…, in)`, `(out, in)` and `(out,)` to `(…, out)`; any float dtype."""
    rows = x.numel() // x.shape[-1]
    if (
        not _FAST_CONVOLUTIONS
        or rows % IMAGES
        or rows < _LEAST_ROWS
        or x.device.type != "cpu"
        or not x.dtype == weight.dtype == torch.float32
        or torch.is_autocast_enabled("cpu")
    ):
        return F.linear(x, weight, bias)
    # (images, channels, height, width), channels last in memory: what x is already, no copy.
    images = x.reshape(IMAGES, rows // IMAGES, 1, x.shape[-1]).permute(0, 3, 1, 2)
    y = F.conv2d(images, weight[:, :, None, None], bias)
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])


class Linear(nn.Linear):
    """`nn.Linear` by `linear`; the same parameters under the same names."""

    def forward(self, x: Tensor) -> Tensor:
        """`(…, in_features)` to `(…, out_features)`."""
        return linear(x, self.weight, self.bias)
