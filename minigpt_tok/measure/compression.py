"""How much text tokens hold, and what a vocabulary costs a model.

Text is a whole split's, special tokens apart. A word is what white space separates (Unicode's White_Space, as
everywhere in this package).

Costs are for a GPT of `body` parameters, all but the embedding and the head, and of width `width`:

* an embedding has vocabulary × width parameters, twice that if the head is not tied to it;
* training costs 6 FLOPs per parameter that a token meets and token (2 forward, 4 backward; Kaplan et al. 2020, section
  2.1): the body's and the head's, tied or not; looking up an embedding costs nothing;
* attention costs 12 × layers × width × block FLOPs per token more (Chowdhery et al. 2022, PaLM, appendix B: the two
  products of queries, keys and values over a whole block, forward and backward; a causal mask could save half).

All are divided by bytes per token, since a byte of text is what tokenizers have in common.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigpt_tok.measure.token_text import EncodedSplit, read_split_text
from minigpt_tok.tokenizer import Tokenizer

RENYI_ORDER = (
    2.5  # Zouhar et al. 2023, Tokenization and the Noiseless Channel: correlates best with translation quality
)
_WORD = re.compile("[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")  # White_Space, 25 code points


@dataclass(frozen=True, kw_only=True)
class Compression:
    """How one tokenizer cuts one text.

    Attributes:
        tokens: that stand for text; specials are not among them.
        bytes: of the text, in UTF-8.
        characters, words, documents: of the text.
        vocab_size: of the tokenizer, specials included.
        renyi_efficiency: of the distribution of tokens, see `renyi_efficiency`.
    """

    tokens: int
    bytes: int
    characters: int
    words: int
    documents: int
    vocab_size: int
    renyi_efficiency: float

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes that a token holds on average."""
        return self.bytes / self.tokens

    @property
    def characters_per_token(self) -> float:
        """Characters that a token holds on average."""
        return self.characters / self.tokens

    @property
    def tokens_per_word(self) -> float:
        """Tokens that a word takes on average, the white space between words included (fertility)."""
        return self.tokens / self.words if self.words else float("nan")

    @property
    def factor(self) -> float:
        """Compression factor: characters / tokens, how many times shorter than characters."""
        return self.characters_per_token

    @property
    def reduction_percent(self) -> float:
        """How many percent fewer tokens than characters."""
        return 100 * (1 - self.tokens / self.characters)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            **self.__dict__,
            "bytes_per_token": self.bytes_per_token,
            "characters_per_token": self.characters_per_token,
            "tokens_per_word": self.tokens_per_word,
            "factor": self.factor,
            "reduction_percent": self.reduction_percent,
        }


def measure_compression(split: EncodedSplit, tokenizer: Tokenizer) -> Compression:
    """Measure a split from its id file; documents are decoded to count words.

    Raises:
        TokenizerMismatchError: the ids were made with another tokenizer.
        DataError: a document's tokens have other bytes than its text.
    """
    text = read_split_text(split, tokenizer)
    words = 0
    start = 0
    for end in np.asarray(split.document_ends).tolist():
        words += count_words(tokenizer.decode(split.ids[start:end].tolist(), skip_special=True))
        start = end
    special = list(tokenizer.special_tokens.values())
    uses = text.uses.copy()
    uses[special] = 0
    return Compression(
        tokens=text.tokens,
        bytes=text.bytes,
        characters=text.characters,
        words=words,
        documents=len(text.document_bytes),
        vocab_size=tokenizer.vocab_size,
        renyi_efficiency=renyi_efficiency(uses, tokenizer.vocab_size),
    )


def count_words(text: str) -> int:
    """How many words: runs of anything but white space."""
    return sum(1 for _ in _WORD.finditer(text))


def renyi_efficiency(uses: np.ndarray, vocab_size: int, order: float = RENYI_ORDER) -> float:
    """How evenly a text uses a vocabulary: Rényi entropy of its tokens over log2 of the vocabulary's size, 0 to 1.

    Args:
        uses: how often each token occurs, `(tokens,)`.
        vocab_size: how many ids there are, used or not.
        order: not 1; above 1 frequent tokens weigh more.
    """
    used = uses[uses > 0]
    if vocab_size < 2 or not len(used):
        return float("nan")
    probabilities = used / used.sum()
    return float(np.log2((probabilities**order).sum()) / (1 - order) / np.log2(vocab_size))


def embedding_parameters(vocab_size: int, width: int, *, tied: bool = True) -> int:
    """Parameters of the embedding, and of the head where it is not tied to it."""
    return vocab_size * width * (1 if tied else 2)


def embedding_share(vocab_size: int, width: int, body: int, *, tied: bool = True) -> float:
    """Share of a model's parameters that are embedding and head rows, 0 to 1."""
    rows = embedding_parameters(vocab_size, width, tied=tied)
    return rows / (body + rows)


def training_flops_per_byte(vocab_size: int, width: int, body: int, bytes_per_token: float) -> float:
    """FLOPs of training on one byte of text, attention's products not counted."""
    return 6 * (body + vocab_size * width) / bytes_per_token


def attention_flops_per_byte(layers: int, width: int, block_size: int, bytes_per_token: float) -> float:
    """FLOPs of training that attention's products over a block cost for one byte of text."""
    return 12 * layers * width * block_size / bytes_per_token
