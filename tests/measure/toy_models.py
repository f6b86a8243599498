"""Models whose bits can be told beforehand, and what bits are by definition."""

import math
from types import SimpleNamespace

import torch

END = "<|endoftext|>"
STORIES = [
    "Once upon a time there was a fox.",
    "日本語 and English — mixed 🦊, with emoji.",
    "x",
    "The fox ran, and ran, and ran; then it slept.\n\n",
    "naïve café",
] * 2


class Uniform:
    """Every id equally likely."""

    def __init__(self, vocab_size: int, padded: int | None = None):
        self.vocab_size, self.padded = vocab_size, padded or vocab_size

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        logits = torch.full((*ids.shape, self.padded), 3.25)
        logits[..., self.vocab_size :] = 1e4  # what padded rows say must not matter
        return logits


class Unigram:
    """The same probabilities whatever came before."""

    def __init__(self, vocab_size: int, seed: int = 0):
        self.logits = torch.randn(vocab_size, generator=torch.Generator().manual_seed(seed))

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*ids.shape, -1)


class WholeContext(torch.nn.Module):
    """Logits that depend on every id seen and on where it stands, so that any other window changes them."""

    def __init__(self, vocab_size: int, block_size: int):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.table = torch.nn.Parameter(torch.randn(vocab_size, vocab_size, generator=generator))
        self.config = SimpleNamespace(vocab_size=vocab_size, block_size=block_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        assert ids.shape[1] <= self.config.block_size
        places = torch.arange(1, ids.shape[1] + 1)
        weighted = self.table[ids] * torch.cos(places)[None, :, None]
        return (weighted.cumsum(dim=1) / places[None, :, None].sqrt()).double().float()


def by_definition(model, split, tokenizer, block: int, stride: int, *, own_context: bool, count_special: bool) -> float:
    """Bits, each token predicted alone, in a batch of one, from the context that the definition gives it."""
    ends = split.document_ends.tolist()
    begins = [0, *ends[:-1]] if own_context else [0]
    ends = ends if own_context else [ends[-1]]
    separator = split.metadata.separator_id
    total = 0.0
    for begin, end in zip(begins, ends, strict=True):
        text = [int(id) for id in split.ids[begin:end]]
        sequence = text if separator is None else [separator, *text]
        for at in range(0 if separator is None else 1, len(sequence)):
            if sequence[at] in tokenizer.special_tokens.values() and not count_special:
                continue
            if at == 0:
                total += math.log2(tokenizer.vocab_size)
                continue
            start = 0
            while at - start > block:  # the first window that reaches as far as this token
                start += stride
            logits = model(torch.tensor([sequence[start:at]]))[0, -1].double()[: tokenizer.vocab_size]
            total -= torch.log_softmax(logits, dim=-1)[sequence[at]].item() / math.log(2)
    return total
