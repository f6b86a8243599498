"""The `datasets` library: named corpora loaded through it, and data sets that a user already has.

The library is imported when it is needed and at no other time. Loading may need the network; reading does not.
"""

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minigpt_tok.data import wikitext
from minigpt_tok.data.documents import ReadCounts, Reader
from minigpt_tok.data.splits import canonical_split
from minigpt_tok.errors import CorpusError, MissingDependencyError

log = logging.getLogger(__name__)

_ROWS_AT_ONCE = 1000
_USUAL_TEXT_COLUMNS = ("text", "content", "story", "document", "article")


@dataclasses.dataclass(frozen=True)
class HubCorpus:
    """A named corpus: where the `datasets` library has it, and how the user gets it without a network."""

    path: str
    config: str | None
    articles: bool  # rows are the lines of WikiText, to be joined to articles
    offline: str


HUB_CORPORA = {
    "wikitext-2": HubCorpus(
        "Salesforce/wikitext",
        "wikitext-2-raw-v1",
        articles=True,
        offline="a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (or .raw, or train.txt, …)",
    ),
    "wikitext-103": HubCorpus(
        "Salesforce/wikitext",
        "wikitext-103-raw-v1",
        articles=True,
        offline="a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (or .raw, or train.txt, …)",
    ),
    "tinystories": HubCorpus(
        "roneneldan/TinyStories",
        None,
        articles=False,
        offline="a folder with TinyStories-train.txt and TinyStories-valid.txt",
    ),
}


def load(name: str, text_column: str | None = None) -> dict[str, Reader]:
    """Load a named corpus through the `datasets` library: split → reader of its documents.

    Raises:
        CorpusError: it could not be loaded; the message says how to do without the network.
        MissingDependencyError: the library is not installed.
    """
    corpus = HUB_CORPORA[name]
    offline = f"Without a network, give the path of {corpus.offline}"
    try:
        import datasets
    except ImportError:
        raise MissingDependencyError(
            f"{name} is loaded through the datasets library, which is not installed: pip install datasets. {offline}"
        ) from None
    try:
        loaded = datasets.load_dataset(corpus.path, corpus.config)
    except Exception as error:  # the library raises its own, the hub client's, the network's and the file system's
        reason = (str(error).splitlines() or [""])[0]
        raise CorpusError(
            f"{name}: the datasets library could not load {corpus.path} ({type(error).__name__}: {reason}). {offline}"
        ) from error
    return {
        split: _articles(rows, column) if corpus.articles else _rows(rows, column)
        for split, rows, column in _splits(loaded, text_column, name)
    }


def is_dataset(source: object) -> bool:
    """Whether an object is the `datasets` library's, found out without importing it."""
    return any(base.__module__.partition(".")[0] == "datasets" for base in type(source).__mro__)


def from_dataset(source: Any, text_column: str | None, name: str) -> dict[str | None, Reader]:
    """The splits of a `DatasetDict`, or `None` → the rows of a single data set."""
    if isinstance(source, Mapping):
        return {split: _rows(rows, column) for split, rows, column in _splits(source, text_column, name)}
    return {None: _rows(source, _text_column(source, text_column, name))}


def dataset_name(source: Any) -> str:
    """What a data set calls itself, or `dataset`."""
    one = next(iter(source.values()), None) if isinstance(source, Mapping) else source
    info = getattr(one, "info", None)
    return getattr(info, "dataset_name", None) or "dataset"


def _splits(loaded: Mapping[str, Any], text_column: str | None, name: str) -> Iterator[tuple[str, Any, str]]:
    for key, rows in loaded.items():
        split = canonical_split(str(key))
        if split is None:
            log.info("%s: the split %s is none of train, validation and test, and is left out", name, key)
            continue
        yield split, rows, _text_column(rows, text_column, f"{name}, {key}")


def _text_column(rows: Any, wanted: str | None, name: str) -> str:
    columns: list[str] = list(rows.column_names or next(iter(rows), {}))
    if wanted is not None:
        if wanted not in columns:
            raise CorpusError(f"{name}: there is no column {wanted!r}; the columns are {', '.join(columns)}")
        return wanted
    features: Mapping[str, Any] = rows.features or {}
    strings = [c for c in columns if getattr(features.get(c), "dtype", None) in ("string", "large_string")]
    guess = next((c for c in _USUAL_TEXT_COLUMNS if c in columns), None) or (strings[0] if len(strings) == 1 else None)
    if guess is None:
        raise CorpusError(
            f"{name}: which column holds the text? Give text_column, one of: {', '.join(strings or columns)}"
        )
    log.info("%s: the text is taken from the column %r", name, guess)
    return guess


def _column(rows: Any, column: str) -> Iterator[str | None]:
    for batch in rows.select_columns([column]).iter(batch_size=_ROWS_AT_ONCE):
        yield from batch[column]


def _rows(rows: Any, column: str) -> Reader:
    def read(counts: ReadCounts) -> Iterator[str]:
        return (text if text is not None else "" for text in _column(rows, column))

    return read


def _articles(rows: Any, column: str) -> Reader:
    def read(counts: ReadCounts) -> Iterator[str]:
        for article in wikitext.cut_articles(_lines(_column(rows, column))):
            yield article.decode("utf-8")

    return read


def _lines(rows: Iterable[str | None]) -> Iterator[bytes]:
    """The published file's lines: the library's copy has empty rows where the file has blank lines."""
    for row in rows:
        yield row.encode("utf-8") if row else wikitext.BLANK_LINE
