"""Text from a model: one id at a time, with a key-value cache, streamed as whole characters.

While prompt and text fit the window, each further id costs one position's work: keys and values of the others are kept.
Beyond the window it slides by one id at a time, and since positions are learned, every id then stands at another
position than when its keys were computed: the model reads the last `block_size` ids again for each further one. With
or without the cache the model sees the same ids at the same positions, so the text is the same.

Sampling is done on the CPU in float64 from a generator of its own: a seed gives one text on every device (as far as the
device computes the same logits), and nothing else's randomness is touched. Only ids that the tokenizer can decode are
drawn: padded rows of the embedding have no logits, holes in a vocabulary get none.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minigpt_tok.errors import ModelError, TokenizerMismatchError
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.tokenizer import Tokenizer

END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next id is drawn. The steps apply in this order: temperature, top-k, top-p.

    Attributes:
        temperature: logits are divided by it; 0 takes the likeliest id (the smallest of equals).
        top_k: only the k likeliest ids.
        top_p: only the fewest likeliest ids that together have at least this probability (after top-k).

    Raises:
        ModelError: a value out of its bounds.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ModelError(
                f"temperature is {self.temperature}; give 0 (the likeliest id always) or a number above it"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ModelError(f"top_k is {self.top_k}; give at least 1, or leave it out for all ids")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ModelError(f"top_p is {self.top_p}; give a probability above 0 and up to 1, or leave it out")

    def probabilities(self, logits: Tensor) -> Tensor:
        """What each id is drawn with: `(vocab_size,)` logits to float64 `(vocab_size,)` on the CPU, summing to 1."""
        logits = logits.detach().cpu().double()
        if bool(torch.isnan(logits).any()) or not bool((logits > -math.inf).any()):
            raise ModelError("the model's logits are no numbers (NaN); its weights are broken, or were never trained")
        if self.temperature == 0:
            return torch.nn.functional.one_hot(logits.argmax(), len(logits)).double()
        # Less the largest first, so that a tiny temperature cannot overflow.
        probabilities = ((logits - logits.max()) / self.temperature).softmax(dim=0)
        if self.top_k is None and self.top_p is None:
            return probabilities
        likeliest, ids = probabilities.sort(descending=True, stable=True)  # stable: of equals, the smallest id first
        kept = len(ids) if self.top_k is None else min(self.top_k, len(ids))
        likeliest = likeliest[:kept] / likeliest[:kept].sum()
        if self.top_p is not None:
            before = likeliest.cumsum(dim=0) - likeliest
            # An id is needed while those before it do not reach top_p; rounding must not add one where they just do.
            kept = max(1, int((before < self.top_p - 1e-12).sum()))
            likeliest = likeliest[:kept] / likeliest[:kept].sum()
        return torch.zeros_like(probabilities).scatter_(0, ids[:kept], likeliest)

    def draw(self, logits: Tensor, generator: torch.Generator) -> int:
        """One id, by its probability."""
        cumulative = self.probabilities(logits).cumsum(dim=0)
        point = torch.rand((), generator=generator, dtype=torch.float64) * cumulative[-1]
        # The first id whose share reaches past the point: never one of probability 0.
        return int(torch.searchsorted(cumulative, point, right=True).clamp(max=int(cumulative.argmax())))


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A finished text.

    Attributes:
        text: without the prompt, and without what ended it.
        ids: the ids drawn, in order, the end-of-text token left out.
        prompt_ids: what the model was given.
        finish_reason: "length" (as many ids as asked for), "stop" (a stop string) or "end_of_text".
    """

    text: str
    ids: list[int]
    prompt_ids: list[int]
    finish_reason: str


class TextStream(Iterator[str]):
    """Pieces of text as the model writes them, whole characters only; see `stream`.

    Attributes:
        prompt_ids: what the model was given.
        ids: the ids drawn so far, the end-of-text token left out.
        finish_reason: `None` while there is more to come; then as in `Generated`.
    """

    def __init__(self, prompt_ids: list[int], writer: "_Writer") -> None:
        self.prompt_ids = prompt_ids
        self._writer = writer
        self._pieces = writer.write()

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def ids(self) -> list[int]:
        """The ids drawn so far."""
        return self._writer.drawn

    @property
    def finish_reason(self) -> str | None:
        """Why the text ended, once it has."""
        return self._writer.finish_reason


def stream(
    model: MiniGPT,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int] = "",
    *,
    max_new_tokens: int = 200,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] = (),
    use_cache: bool = True,
) -> TextStream:
    """Write on from a prompt; an iterator over pieces of text.

    No piece ends within a character, and none shows any part of a stop string. What is left at the end, such as half a
    character, comes with the last piece (as U+FFFD). The model is evaluated without dropout and left in its mode.

    Args:
        model, tokenizer: that belong together.
        prompt: text, or ids. Empty: the model begins a new text, after `<|endoftext|>`.
        max_new_tokens: the most ids to draw.
        temperature, top_k, top_p: see `Sampling`.
        seed: of the drawing; `None` takes a new one each time.
        stop: strings that end the text; they are not part of it.
        use_cache: keep keys and values; the text is the same without, only slower.

    Raises:
        ModelError: an empty prompt and no `<|endoftext|>` in the vocabulary, or a value out of its bounds.
        TokenizerMismatchError: the model has another vocabulary size than the tokenizer.
        TokenizerError: the prompt has a character that the tokenizer cannot encode.
    """
    if model.config.vocab_size != tokenizer.vocab_size:
        raise TokenizerMismatchError(
            f"the model has a vocabulary of {model.config.vocab_size:,} ids, the tokenizer one of "
            f"{tokenizer.vocab_size:,}; they do not belong together. Give the tokenizer that the model was trained with"
        )
    if max_new_tokens < 0:
        raise ModelError(f"max_new_tokens is {max_new_tokens}; give 0 or more")
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stops:
        raise ModelError("a stop string is empty, and would end every text at once; leave it out")
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else [id.__index__() for id in prompt]
    if wrong := [id for id in ids if not 0 <= id < tokenizer.vocab_size]:
        raise ModelError(f"the prompt has the id {wrong[0]}, outside the vocabulary of {tokenizer.vocab_size:,} ids")
    if not ids:
        if end is None:
            raise ModelError(
                f"the prompt is empty, and the tokenizer has no {END_OF_TEXT} to begin a text with; give a prompt of at "
                f"least one character, or train with special_tokens=['{END_OF_TEXT}']"
            )
        ids = [end]
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    writer = _Writer(
        reader=_Reader(model, ids, use_cache=use_cache),
        tokenizer=tokenizer,
        sampling=sampling,
        generator=generator,
        end=end,
        stops=stops,
        max_new_tokens=max_new_tokens,
    )
    return TextStream(ids, writer)


def generate(
    model: MiniGPT,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int] = "",
    *,
    max_new_tokens: int = 200,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] = (),
    use_cache: bool = True,
) -> Generated:
    """The whole text at once. Arguments and errors as `stream` has them."""
    pieces = stream(
        model,
        tokenizer,
        prompt,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stop,
        use_cache=use_cache,
    )
    text = "".join(pieces)
    return Generated(
        text=text, ids=pieces.ids, prompt_ids=pieces.prompt_ids, finish_reason=pieces.finish_reason or "length"
    )


class _Reader:
    """What the model has read, and its logits for what comes next."""

    def __init__(self, model: MiniGPT, ids: Sequence[int], *, use_cache: bool) -> None:
        self._model = model
        self._ids = list(ids)
        with torch.inference_mode():
            self._cache = model.new_cache() if use_cache else None

    def append(self, id: int) -> None:
        self._ids.append(id)

    def logits(self) -> Tensor:
        """`(vocab_size,)`, of the id after all there are."""
        block_size = self._model.config.block_size
        device = self._model.token_embedding.weight.device
        with _evaluating(self._model), torch.inference_mode():
            if self._cache is not None and len(self._ids) <= block_size:
                unread = torch.tensor([self._ids[self._cache.length :]], device=device)
                hidden = self._model.hidden(unread, self._cache)
            else:
                hidden = self._model.hidden(torch.tensor([self._ids[-block_size:]], device=device))
            return self._model.head(hidden[0, -1])


@dataclass(kw_only=True)
class _Writer:
    """Draws ids and lets out their text."""

    reader: _Reader
    tokenizer: Tokenizer
    sampling: Sampling
    generator: torch.Generator
    end: int | None
    stops: tuple[str, ...]
    max_new_tokens: int

    def __post_init__(self) -> None:
        self.drawn: list[int] = []
        self.finish_reason: str | None = None
        self._holes = sorted(set(range(self.tokenizer.vocab_size)) - set(self.tokenizer.vocab))

    def write(self) -> Iterator[str]:
        decoder = self.tokenizer.stream_decoder()
        held = ""  # text that may turn out to begin a stop string
        reason = "length"
        for _ in range(self.max_new_tokens):
            logits = self.reader.logits().cpu().double()  # a new tensor, which may be written to
            logits[self._holes] = -math.inf
            id = self.sampling.draw(logits, self.generator)
            if id == self.end:
                reason = "end_of_text"
                break
            self.drawn.append(id)
            self.reader.append(id)
            shown, held, stopped = _released(held + decoder.feed(id), self.stops)
            if shown:
                yield shown
            if stopped:
                self.finish_reason = "stop"
                return
        held += decoder.finish()
        at = _first_stop(held, self.stops)
        self.finish_reason = reason if at is None else "stop"
        if held[:at]:
            yield held[:at]


def _first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the first stop string in `text` begins."""
    return min((at for at in map(text.find, stops) if at >= 0), default=None)


def _released(text: str, stops: tuple[str, ...]) -> tuple[str, str, bool]:
    """(what may be shown, what must wait, whether a stop string ended the text)."""
    at = _first_stop(text, stops)
    if at is not None:
        return text[:at], "", True
    waiting = max(
        (
            length
            for stop in stops
            for length in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:length])
        ),
        default=0,
    )
    return text[: len(text) - waiting], text[len(text) - waiting :], False


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout inside; afterwards every module is in the mode in which it was."""
    training = [module for module in model.modules() if module.training]
    try:
        if training:
            model.eval()
        yield
    finally:
        for module in training:
            module.training = True
