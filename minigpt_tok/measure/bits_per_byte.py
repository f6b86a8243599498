"""Bits per byte: how many bits a model needs for each byte of a text, whatever tokens it reads the text in.

    bits per byte = Σ bits of the predicted tokens / Σ UTF-8 bytes of the text

Both sums are over the whole split, in float64, and are divided once; a mean of per-batch ratios would weigh a byte by
the batch it falls into. Bits are negative log2 probabilities. The rules:

* Every byte is predicted exactly once, and none is free. A text's first token is predicted from the separator where the
  ids have one, as in training; where they have none, it costs log2(vocabulary size), what guessing costs.
* Special tokens are context, but count in neither sum, unless `count_special`: characters have none, and a model
  should not lose bits against them for saying where a document ends.
* The bytes of the tokens are those of the text, document by document, or there is an error.
* `sliding` windows (the default, by half a block) give every token at least half a block of context once there is that
  much, so that the score does not depend on where blocks begin. `blocks`, for a quick look, are half the work; the first
  tokens of each are predicted from next to nothing, and the less text a block holds, the more tokens are.
* The stream is scored as models are trained, documents running on. `own_context` scores each document by itself: then
  the score does not depend on the order of documents either.

Probabilities are normalized over the vocabulary alone: padded rows of the embedding take none. Logits are used in
float32, the normalizer summed in float64, only where a token is scored.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch

from minigpt_tok.errors import DataError, ModelError, TokenizerMismatchError
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.measure.scores import BitsPerByte, PairedDifference, Scores, paired_difference
from minigpt_tok.measure.token_text import (
    EncodedSplit,
    check_same_tokenizer,
    read_split_text,
    split_name,
    sums_by_document,
)
from minigpt_tok.measure.windows import Windows, choose_stride, plan_windows
from minigpt_tok.progress import Report
from minigpt_tok.tokenizer import Tokenizer

__all__ = ["BitsPerByte", "PairedDifference", "Scores", "bits_per_byte", "paired_difference"]

_CPU_ELEMENTS = 1 << 20  # logits normalized at a time: 4 MB, which stay in the cache (a fifth faster than 64 MB)
_GPU_ELEMENTS = 1 << 26  # there it only bounds the memory beside the model's own, to some 600 MB


def bits_per_byte(
    model: Callable[[torch.Tensor], torch.Tensor],
    data: Any,
    tokenizer: Tokenizer,
    *,
    context: str = "sliding",
    stride: int | None = None,
    batch_size: int = 8,
    own_context: bool = False,
    count_special: bool = False,
    block_size: int | None = None,
    device: torch.device | str | None = None,
    part: tuple[int, int] = (0, 1),
    progress: Report | None = None,
) -> BitsPerByte:
    """Score a causal model on a split.

    Args:
        model: a `MiniGPT`, or any callable that takes ids, int64 `(batch, time)`, and gives logits of each next id,
            `(batch, time, vocabulary or more)`. A module is put into evaluation mode and back.
        data: an id file, its path, or a `TokenDataset` (of which the file is used, not its blocks).
        tokenizer: the one that made the ids.
        context: `sliding`, or `blocks` for a quick look.
        stride: of `sliding`, in tokens: how far a window begins after the one before it; half a block by default.
        batch_size: windows at a time; it does not change the score.
        own_context: score each document by itself rather than in the stream of all.
        count_special: add the bits of special tokens too.
        block_size: the most tokens of context; by default the model's own (`model.config.block_size`).
        device: where ids are put; by default where the model's parameters are.
        part: (number, of how many): score this share alone, for several devices; see `BitsPerByte.joined`.
        progress: called with the stage, tokens done and tokens in all.

    Raises:
        TokenizerMismatchError: the ids were made with another tokenizer, or the model has another vocabulary.
        DataError: there is no text, a document's tokens have other bytes than its text, or an option makes no sense.
        ModelError: the model has no block size, gives too few logits, or gives no numbers.
    """
    split = _opened(data, tokenizer)
    text = read_split_text(split, tokenizer)
    if text.bytes == 0:
        raise DataError(f"{split_name(split)} has no text to score")
    config = getattr(model, "config", None)
    _check_vocabulary(config, tokenizer)
    block = _block_size(config, block_size)
    step = choose_stride(context, stride, block)
    if batch_size < 1:
        raise DataError(f"batch_size is {batch_size}; it must be at least 1")
    number, count = part
    if not 0 <= number < count:
        raise DataError(f"part is ({number}, {count}); give (number, of how many), numbers from 0")

    ends = np.asarray(split.document_ends, dtype=np.int64)
    sequence_ends = ends if own_context else ends[-1:]
    separator = split.metadata.separator_id
    windows = plan_windows(sequence_ends, block, step, preceded=separator is not None).part(number, count)
    special = np.zeros(tokenizer.vocab_size, dtype=bool)
    special[list(tokenizer.special_tokens.values())] = not count_special  # these are left out of the sum

    bits = np.zeros(len(ends))
    charged = windows.unpredicted[~special[np.asarray(split.ids[windows.unpredicted], dtype=np.int64)]]
    bits += sums_by_document(ends, charged, np.full(len(charged), math.log2(tokenizer.vocab_size)))
    scored, todo = len(charged), int((windows.lengths - windows.first_scored).sum())
    done = 0
    with _evaluating(model):
        for batch in _batches(windows.by_length(), split.ids, separator, batch_size):
            batch.wanted &= ~special[batch.targets]
            batch_bits = _batch_bits(model, batch, tokenizer.vocab_size, device or _device(model), split)
            places = batch.places[batch.wanted]
            bits += sums_by_document(ends, places, batch_bits)
            scored += len(places)
            done += batch.predicted
            if progress is not None:
                progress("bits per byte", done, todo)
    score = BitsPerByte(
        document_bits=bits,
        document_bytes=text.document_bytes,
        tokens=text.tokens,
        special_tokens=text.special_tokens,
        characters=text.characters,
        scored=scored,
        charged=len(charged),
        context=context,
        block_size=block,
        stride=step,
        own_context=own_context,
        separator=None if separator is None else split.metadata.separator,
        count_special=count_special,
        vocab_size=tokenizer.vocab_size,
        fingerprint=tokenizer.fingerprint,
        corpus=split.metadata.corpus,
        split=split.metadata.split,
        text_sha256=split.metadata.text_sha256,
    )
    if count == 1 and not score.is_complete:  # a fault of this function, which must not pass for a score
        raise DataError(f"{split_name(split)}: {scored:,} tokens were scored, but the text has {text.tokens:,}")
    return score


class _Batch:
    """Windows side by side, right-padded to the longest. All arrays are `(batch, time)`.

    Attributes:
        inputs, targets: ids, int64; in padding, whatever stands in the stream there, which no causal model looks at.
        places: of the targets in the stream, int64.
        wanted: bool; the targets whose bits are to be taken.
        predicted: how many targets these windows predict.
    """

    def __init__(self, windows: Windows, rows: slice, ids: Any, separator: int | None) -> None:
        starts, lengths = windows.starts[rows], windows.lengths[rows]
        columns = np.arange(int(lengths.max()))
        self.places = starts[:, None] + columns + 1
        # A place past the end is padding; so is one before the beginning, where the separator is put.
        self.targets = _taken(ids, np.minimum(self.places, len(ids) - 1))
        self.inputs = _taken(ids, np.maximum(self.places - 1, 0).clip(max=len(ids) - 1))
        if separator is not None:
            self.inputs[windows.preceded[rows], 0] = separator
        self.wanted = (columns >= windows.first_scored[rows][:, None]) & (columns < lengths[:, None])
        self.predicted = int(self.wanted.sum())


def _batches(windows: Windows, ids: Any, separator: int | None, batch_size: int) -> Iterator[_Batch]:
    for start in range(0, len(windows), batch_size):
        yield _Batch(windows, slice(start, start + batch_size), ids, separator)


def _taken(ids: Any, places: np.ndarray) -> np.ndarray:
    """The ids at places of a memory-mapped stream, as int64."""
    return np.asarray(ids[places], dtype=np.int64)


def _batch_bits(
    model: Callable[[torch.Tensor], torch.Tensor],
    batch: _Batch,
    vocab_size: int,
    device: torch.device | str,
    split: EncodedSplit,
) -> np.ndarray:
    """Bits of the wanted targets, in the order of `batch.wanted`: float64 `(wanted,)`."""
    if not batch.wanted.any():
        return np.zeros(0)
    inputs = torch.from_numpy(batch.inputs).to(device)
    wanted = torch.from_numpy(batch.wanted).to(device)
    targets = torch.from_numpy(batch.targets[batch.wanted]).to(device)
    if isinstance(model, MiniGPT) and type(model).forward is MiniGPT.forward:
        # The head is worked out where a token is scored, which with sliding windows is half of all places.
        hidden = model.hidden(inputs)[wanted]
        logits_of = model.head
    else:
        hidden = _checked_logits(model(inputs), batch, vocab_size)[wanted]
        logits_of = torch.nn.Identity()
    step = max(1, (_CPU_ELEMENTS if hidden.device.type == "cpu" else _GPU_ELEMENTS) // vocab_size)
    nats = [
        _nats(logits_of(hidden[at : at + step])[:, :vocab_size], targets[at : at + step])
        for at in range(0, len(targets), step)
    ]
    bits = torch.cat(nats).numpy() / math.log(2)
    if np.isnan(bits).any():
        place = int(batch.places[batch.wanted][np.isnan(bits)][0])
        raise ModelError(
            f"the model's logits are no numbers (NaN or infinite) where it predicts token {place:,} of "
            f"{split_name(split)}; its weights are broken, or its precision overflows (score it in float32)"
        )
    return cast(np.ndarray, bits)


def _checked_logits(logits: torch.Tensor, batch: _Batch, vocab_size: int) -> torch.Tensor:
    shape = batch.inputs.shape
    if logits.ndim != 3 or logits.shape[:2] != shape or logits.shape[2] < vocab_size:
        raise ModelError(
            f"the model gives logits of shape {tuple(logits.shape)} for ids of shape {shape}; expected "
            f"({shape[0]}, {shape[1]}, {vocab_size}), a logit for every id of the tokenizer"
        )
    return logits


def _nats(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Negative log probabilities of targets `(n,)` by logits `(n, vocab_size)`: float64 `(n,)` on the CPU."""
    largest = logits.amax(dim=-1, keepdim=True)
    # Less the largest, so that equal logits become exact zeros and a uniform model costs exactly log(V).
    below = logits.float() - largest.float()
    wide = torch.float32 if below.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    total = below.exp_().sum(dim=-1, dtype=wide)
    target = logits.gather(1, targets[:, None])[:, 0]
    return total.cpu().double().log() - (target.cpu().double() - largest[:, 0].cpu().double())


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """No dropout and no gradients inside; afterwards every module is in the mode in which it was."""
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    before = [module.training for module in modules]
    try:
        if modules:
            model.eval()
        with torch.inference_mode():
            yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


def _device(model: Any) -> torch.device:
    parameter = next(model.parameters(), None) if isinstance(model, torch.nn.Module) else None
    return torch.device("cpu") if parameter is None else parameter.device


def _opened(data: Any, tokenizer: Tokenizer) -> EncodedSplit:
    if isinstance(data, (str, os.PathLike)):
        from minigpt_tok.data.id_file import IdFile

        data = IdFile(data)
    split = cast(EncodedSplit, getattr(data, "id_file", data))
    check_same_tokenizer(split, tokenizer)
    return split


def _check_vocabulary(config: Any, tokenizer: Tokenizer) -> None:
    size = getattr(config, "vocab_size", tokenizer.vocab_size)
    if size != tokenizer.vocab_size:
        raise TokenizerMismatchError(
            f"the model has a vocabulary of {size:,} ids, the tokenizer one of {tokenizer.vocab_size:,}; they do not "
            "belong together. Give the tokenizer that the model was trained with"
        )


def _block_size(config: Any, block_size: int | None) -> int:
    own = getattr(config, "block_size", None)
    if block_size is None:
        if own is None:
            raise ModelError("the model does not say how many tokens of context it takes; give block_size")
        block_size = int(own)
    if block_size < 1 or (own is not None and block_size > own):
        raise ModelError(f"block_size is {block_size}; give 1 to {own if own is not None else 'what the model takes'}")
    return block_size
