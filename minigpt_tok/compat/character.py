"""The calls of a character-level tutorial: merges over whole texts, across spaces, and a fingerprint over the two lists.

>>> made = BPETokenizer.train("low lower lowest", 20, verbose=False)
>>> made.merges, made.encode_tokens("lowest low")
([('l', 'o'), ('lo', 'w'), (' ', 'low'), (' low', 'e')], ['low', 'e', 's', 't', ' low'])
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

from minigpt_tok import tokenizer as core
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.compat.readable import merge
from minigpt_tok.errors import FormatError
from minigpt_tok.files import StrPath
from minigpt_tok.formats.character import to_model


def count_pairs(tokens: Sequence[str]) -> Counter[tuple[str, str]]:
    """How often each pair of neighbours occurs, in the order in which they are first seen."""
    return Counter(pairwise(tokens))


def merge_pair(tokens: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join a pair, left to right without overlap: `merge_pair(["a", "a", "a"], ("a", "a"))` → `["aa", "a"]`."""
    return merge(tokens, pair, pair[0] + pair[1])


def tokenizer_fingerprint(base_tokens: Sequence[str], merges: Iterable[Sequence[str]]) -> str:
    """SHA-256 over `{"base_tokens":[…],"merges":[[left,right],…]}` in compact UTF-8 JSON, in lower-case hex.

    Raises:
        FormatError: lists that are no tokenizer, such as a merge of a token not yet made.
    """
    return BPETokenizer(base_tokens, merges).fingerprint()


class BPETokenizer:
    """Base characters and merges in the order in which they were learned, which is the order in which they apply.

    Attributes:
        base_tokens: the characters, by id.
        merges: (left, right) by rank.
        tokens: all tokens, by id: base tokens, then one for each merge.
        stoi, itos: token → id, id → token.
        vocab_size: how many there are.
        tokenizer: the core's value, with the record of the training if there was one here.
    """

    def __init__(self, base_tokens: Sequence[str], merges: Iterable[Sequence[str]]) -> None:
        pairs = [tuple(pair) for pair in merges]
        self.tokenizer = core.Tokenizer(to_model(list(base_tokens), pairs, "the arguments"))  # type: ignore[arg-type]

    @classmethod
    def from_tokenizer(cls, tokenizer: core.Tokenizer) -> "BPETokenizer":
        """A view of a character tokenizer.

        Raises:
            FormatError: it is of bytes, or cuts its texts into pieces.
        """
        if tokenizer.unit != "character" or tokenizer.pattern != "none":
            raise FormatError(
                f"{tokenizer!r}: not a character tokenizer without a pattern, so not one of this tutorial's"
            )
        made = cls.__new__(cls)
        made.tokenizer = tokenizer
        return made

    @classmethod
    def train(
        cls,
        text: str,
        target_vocab_size: int,
        minimum_pair_frequency: int = 2,
        base_tokens: Iterable[str] | None = None,
        verbose: bool = True,
    ) -> "BPETokenizer":
        """Learn from one text until there are `target_vocab_size` tokens, or no pair occurs often enough.

        Args:
            text: is learned from.
            target_vocab_size: base characters and merges.
            minimum_pair_frequency: a pair that occurs less often is not merged.
            base_tokens: the characters, which may be more than the text has, in the order of their ids; those of the
                text by code point unless given.
            verbose: print the first 20 merges and every hundredth, and why it stopped.

        Raises:
            TokenizerError: a size below the base characters, or base characters that lack some of the text.
            CorpusError: the text is empty.
        """
        given = None if base_tokens is None else list(base_tokens)
        switches = {} if given is None else {"base_characters": given}
        recipe = get_recipe("character", min_frequency=minimum_pair_frequency, **switches)
        tokenizer = core.Tokenizer(*train_model([text], target_vocab_size, recipe))
        if given is not None and given != sorted(given):
            model = to_model(given, tokenizer.merges, "base_tokens")
            tokenizer = core.Tokenizer(model, tokenizer.training)
        made = cls.from_tokenizer(tokenizer)
        if verbose:
            for line in made.training_report():
                print(line)  # noqa: T201  # the tutorial's habit
        return made

    def training_report(self) -> list[str]:
        """Lines on the first 20 merges and every hundredth, and on why training stopped; none if it was not here."""
        record = self.tokenizer.training
        if record is None:
            return []
        lines = []
        bases = len(self.base_tokens)
        for number, ((left, right), count, length) in enumerate(
            zip(self.merges, record.counts, record.curve, strict=True), start=1
        ):
            if number <= 20 or number % 100 == 0:
                lines.append(
                    f"Merge {number:>4}: {left!r} + {right!r} -> {left + right!r} | count {count:,} | "
                    f"sequence length {length:,} | vocabulary {bases + number:,}"
                )
        final = record.curve[-1] if record.curve else record.base_tokens
        lines.append(f"Stopped: {record.stopped}")
        lines.append(f"Final vocabulary: {self.vocab_size:,}")
        lines.append(f"Final sequence length: {final:,}")
        return lines

    @cached_property
    def tokens(self) -> list[str]:
        """All tokens, by id."""
        return list(self.tokenizer.vocab.values())

    @cached_property
    def base_tokens(self) -> list[str]:
        """The characters, by id."""
        return self.tokens[: self.vocab_size - len(self.merges)]

    @cached_property
    def merges(self) -> list[tuple[str, str]]:
        """(left, right) by rank."""
        return self.tokenizer.merges

    @cached_property
    def stoi(self) -> dict[str, int]:
        """Token → id."""
        return {token: id for id, token in enumerate(self.tokens)}

    @cached_property
    def itos(self) -> dict[int, str]:
        """Id → token."""
        return dict(enumerate(self.tokens))

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self.tokenizer.vocab_size

    def encode_tokens(self, text: str) -> list[str]:
        """The tokens of a text.

        Raises:
            TokenizerError: unknown characters, listed.
        """
        return [self.tokens[id] for id in self.encode(text)]

    def encode(self, text: str) -> list[int]:
        """The ids of a text.

        Raises:
            TokenizerError: unknown characters, listed.
        """
        return self.tokenizer.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids.

        Raises:
            TokenizerError: an id that there is not.
        """
        return self.tokenizer.decode(ids)

    def fingerprint(self) -> str:
        """SHA-256 over base tokens and merges; see `tokenizer_fingerprint`."""
        return self.tokenizer.fingerprint

    def save(self, path: StrPath) -> None:
        """Write the tutorial's JSON, whole or not at all."""
        self.tokenizer.save(path)

    @classmethod
    def from_file(cls, path: StrPath) -> "BPETokenizer":
        """Back from `save`; the fingerprint in the file, if it has one, is checked.

        Raises:
            FormatError: damaged, edited, or no file of this kind.
        """
        return cls.from_tokenizer(core.Tokenizer.load(path))
