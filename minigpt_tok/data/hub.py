"""The `datasets` library: named corpora loaded through it, and data sets that a user already has.

The library is imported when it is needed and at no other time. Loading may need the network; reading does not.
"""

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from minigpt_tok.data import wikitext
from minigpt_tok.data.documents import ReadCounts, Reader, only_texts
from minigpt_tok.data.splits import canonical_split
from minigpt_tok.data.tables import guess_text_column, parquet_rows, texts_of, wikitext_lines
from minigpt_tok.errors import CorpusError, MissingDependencyError

log = logging.getLogger(__name__)

PREFIX = "hf:"
_ROWS_AT_ONCE = 1000


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


def stream(name: str, text_column: str | None = None, errors: str = "strict") -> tuple[str, dict[str | None, Reader]]:
    """A data set of the hub by `hf:NAME[/CONFIG][:SPLIT]`, read as it comes: (its name, split → reader).

    Where its files are Parquet, as most are, they are read by pyarrow, a few rows at a time; others by the library's own
    iterator.

    Args:
        name: `NAME` is `owner/data set`, or one word.
        text_column: guessed, and logged, if not given.
        errors: what is done in Parquet files where a text is not UTF-8, as `open_corpus` says.

    Raises:
        CorpusError: no such data set, configuration or split, or no network.
        MissingDependencyError: the `datasets` library is not installed.
    """
    path, config, wanted = parse(name)
    offline = "Without a network, give the path of the data set's files (.parquet, .jsonl, .txt) instead"
    try:
        import datasets
    except ImportError:
        raise MissingDependencyError(
            f"{name} is loaded through the datasets library, which is not installed: pip install datasets. {offline}"
        ) from None
    try:
        builder = datasets.load_dataset_builder(path, config)
        files = {str(split): list(urls) for split, urls in (builder.config.data_files or {}).items()}
        if files and all(str(url).endswith(".parquet") for urls in files.values() for url in urls):
            found: dict[str, Reader] = {
                split: _ParquetReader(urls, text_column, errors) for split, urls in files.items()
            }
        else:
            loaded = builder.as_streaming_dataset()
            found = {
                str(split): _rows(rows, text_column_of(rows, text_column, f"{name}, {split}"))
                for split, rows in loaded.items()
            }
    except CorpusError:
        raise
    except Exception as error:  # the library raises its own, the hub client's, the network's and the file system's
        reason = (str(error).splitlines() or [""])[0]
        raise CorpusError(
            f"{name}: the datasets library could not open {path} ({type(error).__name__}: {reason}). Is the name as on the hub, "
            f"hf:OWNER/NAME or hf:OWNER/NAME/CONFIG? {offline}"
        ) from error
    return path.rpartition("/")[2], _chosen(found, wanted, name)


def parse(name: str) -> tuple[str, str | None, str | None]:
    """`hf:OWNER/NAME/CONFIG:SPLIT` → path on the hub, configuration, split.

    Raises:
        CorpusError: it is not of this form.
    """
    path, _, split = name.removeprefix(PREFIX).partition(":")
    parts = path.split("/")
    if not all(parts) or len(parts) > 3:
        raise CorpusError(
            f"{name}: not of the form hf:NAME, hf:OWNER/NAME or hf:OWNER/NAME/CONFIG, each also with :SPLIT"
        )
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None, split or None


def _chosen(found: Mapping[str, Reader], wanted: str | None, name: str) -> dict[str | None, Reader]:
    """The split that is wanted, as train; or all that have a name of ours."""
    if wanted is not None:
        if wanted not in found:
            raise CorpusError(f"{name}: there is no split {wanted!r}; there are {', '.join(found)}")
        return {"train": found[wanted]}
    chosen: dict[str | None, Reader] = {}
    for key, reader in found.items():
        split = canonical_split(key)
        if split is None:
            log.info("%s: the split %s is none of train, validation and test, and is left out", name, key)
        else:
            chosen[split] = reader
    if "train" not in chosen:
        raise CorpusError(
            f"{name} has no split train; name one of its own: {', '.join(f'{name}:{key}' for key in found)}"
        )
    if "validation" not in chosen:
        log.info("%s has no validation split; held_out=K takes every K-th document for one", name)
    return chosen


class _ParquetReader:
    """Reads the Parquet files of a split, wherever `fsspec` reaches them."""

    def __init__(self, urls: list[str], text_column: str | None, errors: str) -> None:
        self._urls = urls
        self._text_column = text_column
        self._errors = errors

    def __call__(self, counts: ReadCounts) -> Iterator[str]:
        """A new reading."""
        return texts_of(chain.from_iterable(self._rows(url, counts) for url in self._urls))

    def _rows(self, url: str, counts: ReadCounts) -> Iterator[str | None]:
        import fsspec
        import pyarrow
        import pyarrow.parquet

        try:
            with fsspec.open(url, "rb") as file:
                opened = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
                yield from parquet_rows(opened, self._text_column, url, self._errors, counts)
        except (pyarrow.ArrowException, OSError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise CorpusError(
                f"{url}: could not be read ({type(error).__name__}: {reason}). Check the network and start again; what an "
                "encoding has finished is kept"
            ) from error


def is_dataset(source: object) -> bool:
    """Whether an object is the `datasets` library's, found out without importing it."""
    return any(base.__module__.partition(".")[0] == "datasets" for base in type(source).__mro__)


def from_dataset(source: Any, text_column: str | None, name: str) -> dict[str | None, Reader]:
    """The splits of a `DatasetDict`, or `None` → the rows of a single data set."""
    if isinstance(source, Mapping):
        return {split: _rows(rows, column) for split, rows, column in _splits(source, text_column, name)}
    return {None: _rows(source, text_column_of(source, text_column, name))}


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
        yield split, rows, text_column_of(rows, text_column, f"{name}, {key}")


def text_column_of(rows: Any, wanted: str | None, name: str) -> str:
    """The column of a data set that holds the text; see `tables.guess_text_column`."""
    columns: list[str] = list(rows.column_names or next(iter(rows), {}))
    features: Mapping[str, Any] = rows.features or {}
    strings = [c for c in columns if getattr(features.get(c), "dtype", None) in ("string", "large_string")]
    return guess_text_column(columns, strings, wanted, name)


def _column(rows: Any, column: str) -> Iterator[str | None]:
    batches = rows.select_columns([column]).iter(batch_size=_ROWS_AT_ONCE)
    done = 0
    while True:
        try:
            batch = next(batches, None)
        except UnicodeDecodeError as error:  # whoever made it need not have checked
            raise CorpusError(
                f"{column!r} is not UTF-8 somewhere in the {_ROWS_AT_ONCE} rows from {done:,} on "
                f"(0x{error.object[error.start]:02x}); make the data set from text that is, or write it as Parquet and read that "
                "with errors='replace'"
            ) from None
        if batch is None:
            return
        done += len(batch[column])
        yield from batch[column]


def _rows(rows: Any, column: str) -> Reader:
    def read(counts: ReadCounts) -> Iterator[str]:
        return only_texts("" if text is None else text for text in _column(rows, column))

    return read


def _articles(rows: Any, column: str) -> Reader:
    def read(counts: ReadCounts) -> Iterator[bytes]:
        return wikitext.cut_articles(wikitext_lines(_column(rows, column)))

    return read
