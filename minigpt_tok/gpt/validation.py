"""A quick look at a model in training: bits per byte over the beginning of the validation text, in blocks.

It is for curves. The score of a model is `minigpt_tok.measure.bits_per_byte`, which slides its windows, charges the
first token and covers the whole split. Blocks are contiguous whatever a model is trained on, but with documents apart
where it never saw several at once (packing `document`). What is the same: bits of the tokens over bytes of the text they stand for,
summed and divided once; special tokens count in neither. The text is bounded in bytes, not in tokens, so models with
other tokenizers look at the same text.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch

from minigpt_tok.data.token_dataset import BlockBatch
from minigpt_tok.gpt.loss import IGNORED
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.tokenizer import Tokenizer


class QuickValidation:
    """The blocks of the first `limit` bytes, kept in memory.

    Attributes:
        bytes: of the text that is predicted.
        tokens: predicted, specials left out.
    """

    def __init__(self, batches: Iterable[BlockBatch], tokenizer: Tokenizer, limit: int) -> None:
        """Take batches in the order of the text, up to `limit` bytes."""
        lengths = tokenizer.byte_lengths
        special = np.zeros(tokenizer.vocab_size, dtype=bool)
        special[list(tokenizer.special_tokens.values())] = True
        self._batches: list[tuple[BlockBatch, int]] = []
        self.bytes = self.tokens = 0
        for batch in batches:
            flat = batch.targets.reshape(-1).numpy().copy()
            flat[(flat >= 0) & special[np.maximum(flat, 0)]] = IGNORED
            cost = np.where(flat >= 0, lengths[np.maximum(flat, 0)], 0)
            flat[self.bytes + np.cumsum(cost) > limit] = IGNORED
            taken = int((flat >= 0).sum())
            if not taken:
                break
            within = torch.from_numpy(flat).view_as(batch.targets)
            self._batches.append((BlockBatch(batch.inputs, within, batch.documents, batch.positions), taken))
            self.bytes += int(cost[flat >= 0].sum())
            self.tokens += taken
            if self.bytes >= limit:
                break

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look at."""
        return self.bytes == 0

    def __call__(self, model: MiniGPT) -> float:
        """Bits per byte, without dropout and gradients; every module's mode is left as it was."""
        device = model.token_embedding.weight.device
        training = [module for module in model.modules() if module.training]
        nats = 0.0
        try:
            model.eval()
            with torch.no_grad():
                for batch, taken in self._batches:
                    batch = batch.to(device)
                    loss = model.loss(batch.inputs, batch.targets, documents=batch.documents, positions=batch.positions)
                    nats += float(loss) * taken
        finally:
            for module in training:
                module.training = True
        return nats / math.log(2) / self.bytes
