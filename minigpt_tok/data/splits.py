"""Names of splits, and the split that a document falls into by its hash.

A document's place depends on its text and the salt alone, so each exact copy of it falls into the same split, on every
machine, in whatever order the corpus is read.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping

import numpy as np

from minigpt_tok.bpe.texts import Texts
from minigpt_tok.errors import CorpusError

SPLITS = ("train", "validation", "test")
DEFAULT_SALT = "minigpt-tok"
DEFAULT_FRACTIONS: Mapping[str, float] = {"train": 0.9, "validation": 0.05, "test": 0.05}

_CANONICAL = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val", "dev"), "validation")


def canonical_split(name: str) -> str | None:
    """`train`, `validation` or `test` for a name that means one of them (`val`, `valid`, `dev` too), else `None`."""
    return _CANONICAL.get(name.lower())


class HashSplit:
    """Assigns texts to splits by SHA-256 of salt and text, in the given proportions (of documents, in expectation)."""

    def __init__(self, salt: str = DEFAULT_SALT, fractions: Mapping[str, float] = DEFAULT_FRACTIONS) -> None:
        """`fractions`: split → share.

        Raises:
            CorpusError: a name that is no split, a share below 0, shares that do not sum to 1, or no `train`.
        """
        shares = list(fractions.values())
        if not all(share >= 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-9):
            raise CorpusError(f"fractions are {dict(fractions)}; they must be at least 0 and sum to 1")
        if unknown := [name for name in fractions if name not in SPLITS]:
            raise CorpusError(f"fractions name {', '.join(unknown)}; splits are {', '.join(SPLITS)}")
        if not fractions.get("train"):
            raise CorpusError("fractions leave nothing to train on; give 'train' a share above 0")
        self._salt = salt.encode("utf-8") + b"\0"
        self.splits = tuple(name for name in SPLITS if fractions.get(name))
        bounds = [math.fsum(fractions[name] for name in self.splits[: n + 1]) for n in range(len(self.splits))]
        # The last bound is the whole range, so that rounding leaves no text without a split.
        self._bounds = [round(bound * (1 << 64)) for bound in bounds[:-1]] + [1 << 64]

    def __call__(self, text: str) -> str:
        """The split of a text."""
        return self.of_bytes(text.encode("utf-8"))

    def of_bytes(self, raw: bytes) -> str:
        """The split of a text in UTF-8."""
        if len(self.splits) == 1:
            return self.splits[0]
        digest = hashlib.sha256(self._salt)
        digest.update(raw)
        place = int.from_bytes(digest.digest()[:8], "big")
        return next(name for name, bound in zip(self.splits, self._bounds, strict=True) if place < bound)

    def divided(self, texts: Texts) -> Iterator[tuple[str, Texts]]:
        """Each split that has some of the texts, with these, in order."""
        places = [self.of_bytes(text) for text in texts]
        for split in self.splits:
            mask = np.fromiter((place == split for place in places), bool, len(places))
            if mask.any():
                yield split, texts.chosen(mask)
