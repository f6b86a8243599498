"""The calls of a course's byte-level BPE, whose tokenizer reads GPT-2's and SmolLM2's files and trains as Hugging Face does.

Tokens are strings of GPT-2's printable characters here: the space is `Ġ`. Source of the calls: the course's contracts
`tinyllm/tok/bpe.pyi` and `tinyllm/tok/pretok.pyi`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from minigpt_tok import tokenizer as core
from minigpt_tok.bpe.classes import is_letter, is_number, is_space
from minigpt_tok.bpe.model import BYTE_TO_CHARACTER
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.files import StrPath
from minigpt_tok.formats import check_fingerprint, gpt2, hf_json
from minigpt_tok.formats.loaded import read_json

__all__ = ["BPETokenizer", "is_letter", "is_number", "is_space", "pretokenize_gpt2", "split_digits"]

FILE_NAME = "tokenizer.json"


def pretokenize_gpt2(text: str) -> list[str]:
    """The pieces that GPT-2's pattern cuts: `"don't 2024"` → `["don", "'t", " 2024"]`."""
    return get_pretokenizer("gpt2").pieces(text)


def split_digits(text: str, individual: bool = True) -> list[str]:
    """Cut out numbers, every one alone or each run of them: `"a 12"` → `["a ", "1", "2"]` or `["a ", "12"]`."""
    pieces: list[str] = []
    for number, characters in groupby(text, key=is_number):
        run = list(characters)
        pieces += run if number and individual else ["".join(run)]
    return pieces


class BPETokenizer:
    """A byte-level tokenizer in printable characters.

    Attributes:
        vocab: token → id, added tokens included.
        merges: (left, right) by rank.
        added: added token → id.
        special_ids: those of them that are special.
        pre_tokenizer: as `tokenizer.json` has it.
        unk_id: None, since every text can be encoded.
        tokenizer: the core's value.
    """

    unk_id: int | None = None

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        added_tokens: Sequence[tuple[str, int, bool]] = (),
        pre_tokenizer: Mapping[str, Any] | None = None,
    ) -> None:
        document = {
            "added_tokens": [
                {"content": content, "id": id, "special": special} for content, id, special in added_tokens
            ],
            "pre_tokenizer": hf_json.pre_tokenizer_of("gpt2") if pre_tokenizer is None else dict(pre_tokenizer),
            "decoder": {"type": "ByteLevel"},
            # In a file the vocabulary has the added tokens too.
            "model": {
                "vocab": {**vocab, **{content: id for content, id, _ in added_tokens}},
                "merges": [list(merge) for merge in merges],
            },
        }
        self.tokenizer = core.Tokenizer(hf_json.parse(document, "the arguments").model)

    @classmethod
    def from_tokenizer(cls, tokenizer: core.Tokenizer) -> "BPETokenizer":
        """A view of any byte-level tokenizer.

        Raises:
            TokenizerError: it is one of characters.
        """
        if tokenizer.unit != "byte":
            raise TokenizerError("this is a character tokenizer; its view is minigpt_tok.compat.character.BPETokenizer")
        made = cls.__new__(cls)
        made.tokenizer = tokenizer
        return made

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, specials: Sequence[str] = (), min_freq: int = 2
    ) -> "BPETokenizer":
        """As Hugging Face's `BpeTrainer`: specials, the 256 bytes, then merges, ties to the smallest ids.

        Raises:
            TokenizerError: a vocabulary smaller than bytes and specials, `min_freq` below 1, or specials that cannot be.
            CorpusError: no text.
        """
        if isinstance(texts, str):
            raise TokenizerError("texts is one str; pass a list of texts")
        recipe = get_recipe("hf", min_frequency=min_freq)
        return cls.from_tokenizer(core.Tokenizer(*train_model(texts, vocab_size, recipe, tuple(specials))))

    @classmethod
    def from_gpt2(cls, vocab_json: StrPath, merges_txt: StrPath) -> "BPETokenizer":
        """From GPT-2's two files; `<|endoftext|>` becomes special.

        Raises:
            FormatError: naming the file and what is wrong with it.
        """
        return cls.from_tokenizer(core.Tokenizer(gpt2.load(vocab_json, merges_txt)))

    @classmethod
    def from_hf_json(cls, path: StrPath) -> "BPETokenizer":
        """From a `tokenizer.json`. A template that would add special tokens is refused, as the course has it.

        Raises:
            FormatError: naming the field that is broken or not honoured.
        """
        document = read_json(path, "a tokenizer.json")
        loaded = hf_json.parse(document, str(path))
        if _has_template(document.get("post_processor")):
            raise FormatError(f"{path}: post_processor is 'TemplateProcessing', which this tokenizer has no use for")
        tokenizer = core.Tokenizer(loaded.model, loaded.training)
        if loaded.fingerprint is not None:
            check_fingerprint(loaded, tokenizer.fingerprint)
        return cls.from_tokenizer(tokenizer)

    @cached_property
    def vocab(self) -> dict[str, int]:
        """Token → id, added tokens included."""
        return {token: id for id, token in enumerate(self._tokens) if token is not None}

    @cached_property
    def _tokens(self) -> list[str | None]:
        tokens = [None if token is None else _printable(token) for token in self.tokenizer.model.tokens]
        for added in self.tokenizer.model.added_tokens:
            tokens[added.id] = added.content
        return tokens

    @cached_property
    def merges(self) -> list[tuple[str, str]]:
        """(left, right) by rank."""
        return [(_printable(left), _printable(right)) for left, right in self.tokenizer.merges]

    @property
    def added(self) -> dict[str, int]:
        """Added token → id."""
        return {token.content: token.id for token in self.tokenizer.model.added_tokens}

    @property
    def special_ids(self) -> dict[str, int]:
        """Special token → id."""
        return dict(self.tokenizer.special_tokens)

    @property
    def pre_tokenizer(self) -> dict[str, Any] | None:
        """As `tokenizer.json` has it."""
        model = self.tokenizer.model
        return hf_json.write_pre_tokenizer(model.pattern, model.pipeline, model.normalizer)

    @property
    def vocab_size(self) -> int:
        """The largest id plus one."""
        return self.tokenizer.vocab_size

    def token_to_id(self, token: str) -> int | None:
        """The id of a token in printable characters, or None."""
        return self.vocab.get(token)

    def id_to_token(self, id: int) -> str:
        """The token of an id, in printable characters.

        Raises:
            TokenizerError: there is no such id.
        """
        self.tokenizer.token_bytes(id)
        return self._tokens[id] or ""

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Ids of a text, added tokens matched; `add_special` changes nothing, there being no template."""
        return self.tokenizer.encode(text, allowed_special="all")

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of each text."""
        return self.tokenizer.encode_batch(texts, allowed_special="all")

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of ids, their bytes joined before they are decoded."""
        return self.tokenizer.decode(ids, skip_special=skip_special)

    def save(self, path: StrPath) -> None:
        """Write `tokenizer.json` into a folder, or to a path that ends in `.json`."""
        self.tokenizer.to_hf_json(_file(path))

    @classmethod
    def load(cls, path: StrPath) -> "BPETokenizer":
        """Back from `save`."""
        return cls.from_hf_json(_file(path))


def _file(path: StrPath) -> Path:
    return Path(path) if Path(path).suffix == ".json" else Path(path) / FILE_NAME


def _printable(token: bytes) -> str:
    return "".join(BYTE_TO_CHARACTER[byte] for byte in token)


def _has_template(processor: Any) -> bool:
    if not isinstance(processor, dict):
        return False
    parts = processor.get("processors") or []
    return processor.get("type") == "TemplateProcessing" or any(map(_has_template, parts))
