"""`encode_dataset`: ids as a column of a data set of the `datasets` library, bound to the tokenizer by fingerprint."""

import re
from itertools import pairwise
from typing import Any

from minigpt_tok.data.encode import find_separator
from minigpt_tok.data.hub import is_dataset, text_column_of
from minigpt_tok.errors import CorpusError, DataError
from minigpt_tok.tokenizer import Tokenizer

IDS_COLUMN = "input_ids"
_NOTE = "minigpt_tok tokenizer fingerprint: "


def encode_dataset(
    dataset: Any,
    tokenizer: Tokenizer,
    *,
    text_column: str | None = None,
    separator: str | None = "auto",
    ids_column: str = IDS_COLUMN,
    batch_size: int = 1000,
    num_proc: int | None = None,
) -> Any:
    """Add the ids of each row's text, as an id file would have them, and the fingerprint to the data set's info.

    Args:
        dataset: a `Dataset`, `DatasetDict`, `IterableDataset` or `IterableDatasetDict`; its columns are kept.
        tokenizer: its fingerprint goes into `info.description`; `dataset_fingerprint` finds it there.
        text_column: guessed, and logged, if not given.
        separator: as in `encode_corpus`: what each row's ids end with.
        ids_column: the new column, of uint16 or uint32 as the vocabulary needs.
        batch_size: rows that are encoded at a time.
        num_proc: processes of `Dataset.map`; without it, the compiled encoder's threads use all cores.

    Returns:
        the same kind of data set with the column more. A missing text has no ids but the separator's.

    Raises:
        CorpusError: no data set of that library, or the text column cannot be told.
        DataError: there is a column of that name.
    """
    if not is_dataset(dataset):
        raise CorpusError(
            f"{type(dataset).__name__} is no data set of the datasets library; encode_corpus takes paths and texts"
        )
    if hasattr(dataset, "items"):  # splits
        encoded = {
            split: encode_dataset(
                rows, tokenizer, text_column=text_column, separator=separator, ids_column=ids_column,
                batch_size=batch_size, num_proc=num_proc,
            )
            for split, rows in dataset.items()
        }  # fmt: skip
        return type(dataset)(encoded)
    from datasets import Features, Sequence, Value

    column = text_column_of(dataset, text_column, "the data set")
    if ids_column in (dataset.column_names or ()):
        raise DataError(f"the data set has a column {ids_column!r} already; give another with ids_column, or remove it")
    options: dict[str, Any] = {"batched": True, "batch_size": batch_size}
    if hasattr(dataset, "num_rows"):
        options["num_proc"] = num_proc
        options["desc"] = "encoding"
    if dataset.features is not None:
        options["features"] = Features({**dataset.features, ids_column: Sequence(Value(tokenizer.dtype.name))})
    encoded = dataset.map(_Encode(tokenizer, find_separator(tokenizer, separator), column, ids_column), **options)
    kept = [line for line in (encoded.info.description or "").splitlines() if not line.startswith(_NOTE)]
    encoded.info.description = "\n".join([*kept, _NOTE + tokenizer.fingerprint])
    return encoded


def dataset_fingerprint(dataset: Any) -> str | None:
    """The fingerprint of the tokenizer that `encode_dataset` used, or `None`."""
    found = re.search(f"^{re.escape(_NOTE)}([0-9a-f]{{64}})$", dataset.info.description or "", re.MULTILINE)
    return found[1] if found else None


class _Encode:
    """What `map` calls; the library hashes it by its pickle, which is the tokenizer's value and these names."""

    def __init__(self, tokenizer: Tokenizer, separator_id: int | None, column: str, ids_column: str) -> None:
        self._tokenizer, self._separator_id = tokenizer, separator_id
        self._column, self._ids_column = column, ids_column

    def __call__(self, rows: Any) -> dict[str, list[Any]]:
        ids, offsets = self._tokenizer.encode_batch_to_numpy(
            [text or "" for text in rows[self._column]], separator_id=self._separator_id
        )
        return {self._ids_column: [ids[a:b].tolist() for a, b in pairwise(offsets)]}
