"""The `Tokenizer`: an immutable value that turns text into ids and back, and knows its fingerprint."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, SupportsIndex

import numpy as np

from minigpt_tok import formats
from minigpt_tok.arguments import Buffer, Ids, as_list_or_array, checked_batch, checked_list, checked_text
from minigpt_tok.bpe import renumber
from minigpt_tok.bpe.added import SpecialTokens, added_bytes, added_form
from minigpt_tok.bpe.encoder import Batch, Encoder
from minigpt_tok.bpe.explain import Explanation, explain
from minigpt_tok.bpe.fast import make_decoder, make_encoder
from minigpt_tok.bpe.model import BPEModel
from minigpt_tok.bpe.ranks import merge_list
from minigpt_tok.bpe.recipes import IdOrder
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.bpe.trainer import Training
from minigpt_tok.errors import TokenizerError
from minigpt_tok.files import StrPath
from minigpt_tok.fingerprint import FINGERPRINT_VERSION, fingerprint
from minigpt_tok.stream_decoder import StreamDecoder


class Tokenizer:
    """A BPE tokenizer, byte-level or of characters. Make one with `train_tokenizer`, or `Tokenizer.load`.

    Two tokenizers are equal if their fingerprints are. Instances are immutable, safe to share between threads, and
    can be pickled; `encode` is a function of text and tokenizer alone.
    """

    def __init__(
        self,
        model: BPEModel,
        training: Training | None = None,
        name: str | None = None,
        carried: formats.Carried | None = None,
    ) -> None:
        self._model = model
        self._training = training
        self._name = name
        self._carried = carried or formats.Carried()

    # What it is

    @property
    def model(self) -> BPEModel:
        """The value that decides ids."""
        return self._model

    @property
    def training(self) -> Training | None:
        """The record of the training run, or `None` for a tokenizer that was not trained here."""
        return self._training

    @property
    def name(self) -> str | None:
        """Where it is from, if that says more than a path: `hf:NAME@COMMIT` for one from the hub."""
        return self._name

    @property
    def unit(self) -> str:
        """`byte` or `character`: what a base token is."""
        return self._model.unit

    @property
    def pattern(self) -> str:
        """The pre-tokenizer: a named pattern, a regular expression, or the steps of a pipeline in words."""
        return self._model.pattern if self._model.pipeline is None else str(self._model.pipeline)

    @property
    def vocab_size(self) -> int:
        """The largest id plus one, special tokens included."""
        return self._model.vocab_size

    @property
    def dtype(self) -> np.dtype[Any]:
        """What ids are kept in: `uint16` for up to 65,536 ids, else `uint32`."""
        return self._encoder.dtype

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all that decides ids, 64 lower-case hex digits; see `minigpt_tok.fingerprint`."""
        return fingerprint(self._model)

    @property
    def fingerprint_version(self) -> int:
        """The version of the fingerprint's definition."""
        return FINGERPRINT_VERSION

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """Special token → id, by id."""
        return {token.content: token.id for token in self._model.added_tokens if token.special}

    @cached_property
    def vocab(self) -> dict[int, Any]:
        """Id → raw bytes (`bytes`); of a character tokenizer, id → `str`. Added tokens included, holes left out."""
        raw = {id: token for id, token in enumerate(self._raw) if token is not None}
        return {id: token.decode("utf-8") for id, token in raw.items()} if self.unit == "character" else raw

    @cached_property
    def merges(self) -> list[tuple[Any, Any]]:
        """(left, right) by rank, as raw bytes (`bytes`); of a character tokenizer, as `str`.

        Where the rank rule is by bytes, the merges that the order of the tokens implies.
        """
        return [(self.vocab[left], self.vocab[right]) for left, right, _ in merge_list(self._model)]

    @cached_property
    def learned_tokens(self) -> list[Any]:
        """The tokens that merges made, in rank order: `bytes`, or `str` for characters."""
        return [self.vocab[id] for id in dict.fromkeys(merged for _, _, merged in merge_list(self._model))]

    @cached_property
    def _raw(self) -> tuple[bytes | None, ...]:
        raw = list(self._model.tokens)
        for token in self._model.added_tokens:
            if raw[token.id] is None:  # else it is a token of plain text, too
                raw[token.id] = added_bytes(token, self._model.normalizer)
        return tuple(raw)

    def token_bytes(self, id: SupportsIndex) -> bytes:
        """The raw bytes of one id; of an added token, its text in UTF-8.

        Raises:
            TokenizerError: there is no such id.
        """
        return self._raw_of(id)

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Bytes of text that each id stands for: int64 `(vocab_size,)`. Special tokens and holes: 0.

        Summed over the ids of a text, this is the text's own size in UTF-8 (where no byte is dropped).
        """
        lengths = np.array([len(token) if token is not None else 0 for token in self._raw], dtype=np.int64)
        lengths[list(self.special_tokens.values())] = 0
        return lengths

    @cached_property
    def character_lengths(self) -> np.ndarray:
        """Characters that begin in each id's bytes: int64 `(vocab_size,)`. Special tokens and holes: 0.

        UTF-8's continuation bytes (10xxxxxx) begin none, so over the ids of a text these add up to its characters.
        """
        lengths = np.array([sum(byte & 0xC0 != 0x80 for byte in token or b"") for token in self._raw], dtype=np.int64)
        lengths[list(self.special_tokens.values())] = 0
        return lengths

    def __len__(self) -> int:
        return self.vocab_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and (self._model == other._model or self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        name = f"{self._name!r}, " if self._name else ""
        return (
            f"<Tokenizer {name}{self.vocab_size:,} ids, {self.unit}, pattern {self.pattern}, {self.fingerprint[:12]}…>"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"_model": self._model, "_training": self._training, "_name": self._name, "_carried": self._carried}

    # Text to ids

    @cached_property
    def _encoder(self) -> Encoder:
        encoder = make_encoder(self._model, (self._carried.before, self._carried.after))
        # A subclass may have an `encode` of its own, which must not be hidden.
        if type(self).encode is Tokenizer.encode and (shortcut := encoder.shortcut()) is not None:
            # From the second call on, `encode` is this built-in function itself: for a short text, the two calls of Python
            # that it saves take as long as the encoding.
            self.encode = shortcut  # type: ignore[method-assign]
        return encoder

    @property
    def encodes_in_threads(self) -> bool:
        """Whether `encode_batch_to_numpy` uses all cores by itself, and leaves Python to others meanwhile."""
        return self._encoder.is_parallel

    @cached_property
    def _decoder(self) -> Any:
        return make_decoder(self._raw)

    def encode(
        self,
        text: str,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> list[int]:
        """The ids of a text.

        Args:
            text: any text; the empty one has no ids.
            allowed_special: special tokens (a set, or `"all"`) that become their id where they stand in the text.
            disallowed_special: of the others, those (a set, or `"all"`) that raise; the rest are plain text. So a
                page that mentions `<|endoftext|>` never becomes a boundary unless that is asked for.
            add_special_tokens: put the ids around those of the text that the tokenizer's file asks for (its
                post-processor): a begin and an end of sequence, say. Most tokenizers have none.

        Raises:
            TokenizerError: a disallowed special, a lone surrogate, or characters that a character tokenizer lacks.
        """
        return self._encoder.encode(
            text,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )

    def encode_to_numpy(
        self,
        text: str | Buffer,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> np.ndarray:
        """As `encode`, into an array `(n_tokens,)` of `dtype`. Takes UTF-8 in memory too: `bytes`, a mapped file."""
        return self._encoder.encode_to_numpy(
            text if isinstance(text, str) else memoryview(text),
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )

    def encode_batch(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> list[list[int]]:
        """The ids of each text, as `encode` gives them one by one; by all cores where it is worth it."""
        return self._encoder.encode_batch(
            checked_list(texts),
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )

    def encode_batch_to_numpy(
        self,
        texts: Iterable[str | bytes],
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
        separator_id: int | None = None,
    ) -> Batch:
        """As `encode_batch`, flat: ids `(n_tokens,)` of `dtype`, offsets int64 `(n_texts + 1,)`, from 0.

        Args:
            texts: each a `str`, or `bytes` of UTF-8, which need no decoding.
            allowed_special, disallowed_special, add_special_tokens: see `encode`.
            separator_id: an id that follows each text, and counts as its: that of `<|endoftext|>`, say.
        """
        if separator_id is not None:
            self._check_separator(separator_id)
        return self._encoder.encode_batch_to_numpy(
            texts if isinstance(texts, Texts) else checked_list(texts),
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
            separator_id=separator_id,
        )

    def _check_separator(self, id: int) -> None:
        if not hasattr(id, "__index__"):
            raise TokenizerError(f"separator_id is {id!r}; it must be an integer, or None for no separator")
        if not 0 <= id < self.vocab_size:
            raise TokenizerError(f"separator_id is {id}; the ids of this tokenizer are below {self.vocab_size}")
        if self._raw[id] is None:
            raise TokenizerError(f"separator_id is {id}, which is a hole in the vocabulary: no token has that id")

    def encode_iter(
        self,
        texts: Iterable[str],
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> Iterator[int]:
        """The ids of the joined texts, one by one: lines of a file, say, give the ids of the whole file.

        Memory is bounded by the longest stretch of text without a place where the pattern is certain to cut.
        """
        return self._encoder.encode_iter(
            checked_batch(texts),
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids and, for each, (start, end) in characters of the text; part of a character counts as the whole."""
        return self._encoder.encode_with_offsets(
            checked_text(text),
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )

    def count(
        self,
        text: str,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> int:
        """How many ids `encode` gives."""
        return self._encoder.count(
            text,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )

    def tokens(
        self,
        text: str,
        *,
        allowed_special: SpecialTokens = (),
        disallowed_special: SpecialTokens = (),
        add_special_tokens: bool = False,
    ) -> list[str]:
        """The tokens of a text as a person would read them; bytes that are no character alone show as `\\xe6`."""
        ids = self.encode(
            text,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )
        return [self._raw_of(id).decode("utf-8", "backslashreplace") for id in ids]

    def explain(self, text: str) -> Explanation:
        """Which alternative of the pattern cut each piece, and the merges inside it, one by one with their ranks."""
        return explain(self._encoder, checked_text(text))

    # Ids to text

    def _raw_of(self, id: SupportsIndex) -> bytes:
        if not hasattr(id, "__index__"):
            raise TokenizerError(f"ids are not all integers: {id!r} is among them")
        number = id.__index__()
        raw = self._raw[number] if 0 <= number < len(self._raw) else None
        if raw is None:
            what = "is a hole in" if 0 <= number < len(self._raw) else "is outside"
            raise TokenizerError(f"id {number} {what} the vocabulary of {self.vocab_size:,} ids")
        return raw

    def decode_bytes(self, ids: Ids, *, skip_special: bool = False) -> bytes:
        """The raw bytes of all ids, joined: nothing is lost.

        Raises:
            TokenizerError: an id outside the vocabulary, or in a hole of it.
        """
        plain = self._plain_ids(ids, skip_special)
        raw = self._decoder.decode_bytes(plain)
        if isinstance(raw, int):
            self._raw_of(plain[raw])  # says what is wrong with this id
        return raw  # type: ignore[no-any-return]

    def _plain_ids(self, ids: Ids, skip_special: bool) -> list[int] | np.ndarray:
        plain = as_list_or_array(ids)
        if not skip_special or not self.special_tokens:
            return plain
        special = frozenset(self.special_tokens.values())
        return [id for id in plain if id not in special]

    def decode(self, ids: Ids, *, skip_special: bool = False, errors: str = "replace") -> str:
        """The text of ids: their bytes joined, then decoded as UTF-8 once. `errors` as in `bytes.decode`.

        A tokenizer from a file that asks for more (the steps of its decoder) does that, too.
        """
        plain = self._plain_ids(ids, skip_special)
        if self._carried.decode is not None:
            return self._carried.decode([self._spelled(id) for id in plain], errors)
        text = self._decoder.decode(plain, errors)
        if isinstance(text, int):
            self._raw_of(plain[text])
        return text  # type: ignore[no-any-return]

    def _spelled(self, id: SupportsIndex) -> str:
        """A token as a `tokenizer.json` spells it, which a decoder's steps look at."""
        self._raw_of(id)
        token = self._model.tokens[id.__index__()]
        if token is not None:
            return formats.hf_json.printable(token)
        added = next(token for token in self._model.added_tokens if token.id == id.__index__())
        return added_form(added, self._model.normalizer)

    def stream_decoder(self, *, skip_special: bool = False, errors: str = "replace") -> StreamDecoder:
        """Decodes ids as they come, never showing part of a character."""
        return StreamDecoder(self, skip_special=skip_special, errors=errors)

    # Other tokenizers from this one

    def truncated(self, vocab_size: int) -> "Tokenizer":
        """The tokenizer with fewer merges that training directly to `vocab_size` (specials counted) would have given.

        Raises:
            TokenizerError: the size is below the base tokens and specials, or above this one's.
        """
        model = renumber.truncated(self._model, vocab_size)
        training = self._training
        if training is not None:
            training = training.truncated(len(model.merges), vocab_size)
        return Tokenizer(model, training, carried=self._carried.renumbered(self._model, model))

    def with_id_order(self, order: IdOrder) -> "Tokenizer":
        """The same pieces under other ids: `specials_first`, `bytes_first` or `specials_last`. A new fingerprint."""
        model = renumber.with_id_order(self._model, order)
        return Tokenizer(model, self._training, carried=self._carried.renumbered(self._model, model))

    def with_special_tokens(self, special_tokens: Sequence[str]) -> "Tokenizer":
        """The same with more special tokens, at the end of the vocabulary. A new fingerprint.

        Raises:
            TokenizerError: a token that cannot be a special, or is one already.
        """
        model = renumber.with_special_tokens(self._model, tuple(special_tokens))
        return Tokenizer(model, self._training, carried=self._carried)

    # Files

    def save(self, path: StrPath) -> None:
        """Write the own format, whole or not at all: a `tokenizer.json`, or `character_bpe` for characters.

        Carries the fingerprint (checked when it is loaded) and the training record.
        """
        formats.save(path, self._model, self._training, self.fingerprint, self._carried)

    def to_json(self) -> str:
        """The text that `save` writes."""
        return formats.to_json(self._model, self._training, self.fingerprint, self._carried)

    @classmethod
    def load(
        cls,
        path: StrPath,
        *,
        pattern: str | None = None,
        special_tokens: Mapping[str, int | None] | None = None,
    ) -> "Tokenizer":
        """Read a tokenizer of any known format, recognised by what is in it: a file, or a folder that holds one.

        Args:
            path: the file or folder; of a format of two files either of them. `hf:NAME` or `hf:NAME@REVISION` is a
                repository on the Hugging Face hub, of which the tokenizer's files are fetched; `name` has the commit.
            pattern: the pre-tokenizer, for formats that do not name theirs: ranks, and vocabulary with merges (`gpt2`
                unless given). Ranks of a published file need none: they are known.
            special_tokens: likewise special token → id, or `None` for its id where the file has the token.

        Raises:
            FormatError: it is of no known format, damaged, or edited since it was saved.
            TokenizerError: pattern or special tokens for a format that names its own.
            FileNotFoundError: there is no such file.
        """
        return cls._from_loaded(formats.load(path, pattern=pattern, special_tokens=special_tokens))

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Back from `to_json`."""
        return cls._from_loaded(formats.from_json(text, "the text"))

    @classmethod
    def _from_loaded(cls, loaded: formats.Loaded) -> "Tokenizer":
        tokenizer = cls(loaded.model, loaded.training, loaded.name, loaded.carried)
        if loaded.fingerprint is not None:  # else a second or two for the largest files, spent when it is asked for
            formats.check_fingerprint(loaded, tokenizer.fingerprint)
        return tokenizer

    @classmethod
    def from_vocab_and_merges(
        cls,
        vocab: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]],
        special_tokens: Sequence[str] = (),
        pattern: str = "gpt2",
    ) -> "Tokenizer":
        """From the CS336 form. Specials that `vocab` lacks are added at its end.

        Raises:
            FormatError: ids with a gap, a token twice, or a merge that the vocabulary lacks.
        """
        return cls(formats.cs336.to_model(vocab, merges, special_tokens, pattern))

    def to_vocab_and_merges(self) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
        """The CS336 form: id → raw bytes (specials as their text), and the merges by rank."""
        return formats.cs336.from_model(self._model)

    @classmethod
    def from_gpt2(cls, vocab_json: StrPath, merges_txt: StrPath, special_tokens: Iterable[str] = ()) -> "Tokenizer":
        """From GPT-2's two files, `vocab.json` or `encoder.json`, and `merges.txt` or `vocab.bpe`.

        `<|endoftext|>` in the vocabulary becomes a special token, as do the entries that are named.
        """
        return cls(formats.gpt2.load(vocab_json, merges_txt, special_tokens))

    def to_gpt2(self, folder: StrPath) -> None:
        """Write `vocab.json` and `merges.txt` into a folder."""
        formats.gpt2.save(folder, self._model)

    @classmethod
    def from_hf_json(cls, path: StrPath) -> "Tokenizer":
        """From a Hugging Face `tokenizer.json` with a byte-level BPE model."""
        return cls._from_loaded(formats.hf_json.load(path))

    def to_hf_json(self, path: StrPath) -> None:
        """Write a `tokenizer.json` that Hugging Face's `tokenizers` loads, with the same ids."""
        formats.hf_json.save(path, self._model, self._training, self.fingerprint, self._carried)

    @classmethod
    def from_tiktoken(
        cls, path: StrPath, *, pattern: str, special_tokens: Mapping[str, int] | None = None
    ) -> "Tokenizer":
        """From a `.tiktoken` file of ranks, which names neither its pattern nor its specials."""
        return cls(formats.tiktoken.load(path, pattern, special_tokens or {}))

    def to_tiktoken(self, path: StrPath) -> None:
        """Write a `.tiktoken` file of ranks (without pattern and specials, which the form cannot hold)."""
        formats.tiktoken.save(path, self._model)

    def to_transformers(self) -> Any:
        """A `PreTrainedTokenizerFast` of the transformers library, with the same ids.

        `<|endoftext|>` (or whatever a published tokenizer has in its place) is its `bos_token`, `eos_token` and, where
        there is no `<|pad|>`, its `pad_token`. It matches special tokens in text, as `allowed_special="all"` does here;
        pass it `split_special_tokens=True` for the default here. Characters that a character tokenizer lacks are dropped.

        Raises:
            MissingDependencyError: transformers is not installed.
            FormatError: `tokenizer.json` cannot hold this tokenizer.
        """
        return formats.transformers.fast_tokenizer(self._model, self._training, self.fingerprint, self._carried)
