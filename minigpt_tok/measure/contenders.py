"""Which tokenizers a comparison compares, all from one corpus: characters, bytes, BPE at several sizes, published ones."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import number_tokens
from minigpt_tok.data.corpora import Corpus
from minigpt_tok.errors import CorpusError, DataError
from minigpt_tok.files import StrPath
from minigpt_tok.progress import Report, quiet
from minigpt_tok.tokenizer import Tokenizer
from minigpt_tok.train import train_tokenizer


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A tokenizer to compare.

    Attributes:
        name: unique among the contenders; also the name of its folder.
        kind: `characters`, `bytes`, `bpe` (trained on the corpus) or `given`.
        tokenizer: the tokenizer.
    """

    name: str
    kind: str
    tokenizer: Tokenizer


def contenders(
    corpus: Corpus,
    *,
    vocab_sizes: Sequence[int],
    with_tokenizers: Iterable[StrPath | Tokenizer] = (),
    byte_baseline: bool = False,
    recipe: str = "hf",
    special_tokens: Sequence[str] = (),
    switches: dict[str, Any] | None = None,
    progress: Report | None = None,
) -> list[Contender]:
    """The character baseline, then bytes if asked for, BPE by size from one training run, and the given ones.

    Args:
        corpus: merges are learned from its train split alone; characters are those of every split.
        vocab_sizes: of BPE, special tokens included. The largest is trained and the others are cut from it, which gives
            what training to each size would have given.
        with_tokenizers: files of any known format, or tokenizers.
        byte_baseline: the recipe's tokenizer without merges.
        recipe, special_tokens, switches: of the BPE, as `train_tokenizer` takes them.
        progress: of the training.

    Raises:
        DataError: the same size twice, or one that the text has too few pairs for.
        TokenizerError, CorpusError, FormatError: as training and loading raise them.
    """
    found = [Contender(name="characters", kind="characters", tokenizer=character_baseline(corpus))]
    sizes = sorted(vocab_sizes)
    if twice := {size for size in sizes if sizes.count(size) > 1}:
        raise DataError(f"vocab_sizes has {min(twice):,} twice; give each size once")
    settings = get_recipe(recipe, **(switches or {}))
    base = 256 + len(special_tokens)
    if sizes or byte_baseline:
        if settings.unit != "byte":
            raise DataError(
                f"vocabulary sizes are compared with a byte-level recipe; {recipe} has unit={settings.unit!r}. Give a "
                "trained character tokenizer as one of with_tokenizers to compare it"
            )
        largest = train_tokenizer(
            corpus, sizes[-1] if sizes else base, recipe, special_tokens, progress=progress or quiet, **(switches or {})
        )
        if sizes and largest.vocab_size < sizes[-1]:
            raise DataError(
                f"the train split of {corpus.name} gives {largest.vocab_size:,} ids and no more "
                f"({largest.training.stopped if largest.training else 'training stopped'}), fewer than {sizes[-1]:,}; "
                f"choose sizes up to {largest.vocab_size:,}, or a larger corpus"
            )
        if byte_baseline:
            found.append(Contender(name="bytes", kind="bytes", tokenizer=largest.truncated(base)))
        found += [
            Contender(
                name=f"bpe-{size}",
                kind="bpe",
                tokenizer=largest if size == largest.vocab_size else largest.truncated(size),
            )
            for size in sizes
        ]
    for source in with_tokenizers:
        tokenizer = source if isinstance(source, Tokenizer) else Tokenizer.load(source)
        same = next((one.name for one in found if one.tokenizer == tokenizer), None)
        if same is not None:
            raise DataError(
                f"{_name_of(source)} is the same tokenizer as {same} ({tokenizer.fingerprint}); give it once"
            )
        name = _unused(_name_of(source), [one.name for one in found])
        found.append(Contender(name=name, kind="given", tokenizer=tokenizer))
    return found


def character_baseline(corpus: Corpus) -> Tokenizer:
    """The character tokenizer without merges, whose characters are those of every split, so that it can encode each.

    Raises:
        CorpusError: there is no text.
    """
    characters: set[str] = set()
    for documents in corpus.splits.values():
        for text in documents:
            characters.update(text)
    if not characters:
        raise CorpusError(f"{corpus.name}: there is no text to take characters from")
    base = [character.encode("utf-8") for character in sorted(characters)]
    return Tokenizer(number_tokens(base, [], get_recipe("character"), ()))


def _name_of(source: StrPath | Tokenizer) -> str:
    """A name for a folder and a table: of the file, or of its folder where the file's says nothing."""
    if isinstance(source, Tokenizer):
        return f"given-{source.fingerprint[:8]}"
    path = Path(os.fspath(source)).absolute()
    stem = path.stem
    if stem.lower() in ("tokenizer", "vocab", "encoder", "merges") or not stem.strip("._-"):
        stem = path.parent.name
    return re.sub(r"[^\w.+-]+", "-", stem).strip(".-") or "given"


def _unused(name: str, used: Sequence[str]) -> str:
    if name not in used:
        return name
    return next(candidate for number in range(2, len(used) + 3) if (candidate := f"{name}-{number}") not in used)
