"""Tables with a column of texts: `.jsonl`, `.parquet` and `.arrow`, streamed a few rows at a time, by pyarrow or line by line.

Each row is a document, except where the rows are the lines of WikiText (as in its published Parquet files): these are
joined to articles, across files where a split has several. A missing text is an empty document. Rows are never read
through the streaming iterator of `datasets`, which, left in the middle, can abort the interpreter at its end.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from minigpt_tok.data import wikitext
from minigpt_tok.data.documents import ReadCounts
from minigpt_tok.data.source_file import SourceFile
from minigpt_tok.errors import CorpusError

log = logging.getLogger(__name__)

TABLE_KINDS = (".jsonl", ".ndjson", ".parquet", ".arrow")
USUAL_TEXT_COLUMNS = ("text", "content", "story", "document", "article")
_ROWS_AT_ONCE = 256
_PEEKED = 8  # rows that show whether these are the lines of WikiText

Rows = Iterator[str | None]


def guess_text_column(columns: Sequence[str], strings: Sequence[str], wanted: str | None, where: object) -> str:
    """The column that holds the text: the one wanted, or the usual one, or the only one of strings; said in the log.

    Args:
        columns: all there are.
        strings: those that hold strings, where that is known.
        wanted: by the user.
        where: whose columns these are, for messages.

    Raises:
        CorpusError: there is no such column, or it cannot be guessed.
    """
    if wanted is not None:
        if wanted not in columns:
            raise CorpusError(f"{where}: there is no column {wanted!r}; the columns are {', '.join(columns) or 'none'}")
        return wanted
    guess = next((c for c in USUAL_TEXT_COLUMNS if c in columns), None) or (strings[0] if len(strings) == 1 else None)
    if guess is None:
        raise CorpusError(
            f"{where}: which column holds the text? Give text_column, one of: "
            f"{', '.join(strings or columns) or 'none, there are no columns'}"
        )
    log.info("%s: the text is taken from the column %r", where, guess)
    return guess


class TableReader:
    """Reads the files of one split, one after the other."""

    def __init__(self, sources: Sequence[SourceFile], text_column: str | None, errors: str) -> None:
        self._sources = sources
        self._text_column = text_column
        self._errors = errors

    def __call__(self, counts: ReadCounts) -> Iterator[str]:
        """A new reading."""
        rows = chain.from_iterable(self._rows(source, counts) for source in self._sources)
        return texts_of(rows)

    def _rows(self, source: SourceFile, counts: ReadCounts) -> Rows:
        if source.kind == ".parquet":
            return _parquet_rows(source, self._text_column, self._errors, counts)
        if source.kind == ".arrow":
            return _arrow_rows(source, self._text_column, self._errors, counts)
        return _json_rows(source, self._text_column, self._errors, counts)


def texts_of(rows: Rows) -> Iterator[str]:
    """The documents that rows hold: each its own, or WikiText's lines joined to articles."""
    first = list(islice(rows, _PEEKED))
    rows = chain(first, rows)
    head = next((row for row in first if row and row.strip()), "")
    if head.endswith("\n") and wikitext.is_heading(head.encode("utf-8", "replace")):
        return (article.decode("utf-8") for article in wikitext.cut_articles(wikitext_lines(rows)))
    return (row if row is not None else "" for row in rows)


def wikitext_lines(rows: Rows) -> Iterator[bytes]:
    """The published file's lines: tables have empty rows where the file has blank lines."""
    for row in rows:
        yield row.encode("utf-8") if row else wikitext.BLANK_LINE


# JSON, an object a line


def _json_rows(source: SourceFile, wanted: str | None, errors: str, counts: ReadCounts) -> Rows:
    column = wanted
    offset = 0
    with source.open() as file:
        for number, line in enumerate(file, start=1):
            start, offset = offset, offset + len(line)
            if not line.strip():
                continue
            where = f"{source.path}, line {number:,} (at byte {start:,})"
            row = _json_row(_decoded(line, start, errors, counts, where), where)
            if column is None:
                strings = [key for key, value in row.items() if isinstance(value, str)]
                column = guess_text_column(list(row), strings, None, source.path)
            if column not in row:
                raise CorpusError(
                    f"{where}: the object has no {column!r}; it has {', '.join(map(repr, row)) or 'nothing'}"
                )
            yield _checked(row[column], errors, counts, f"{where}: {column!r}")


def _json_row(line: str, where: str) -> dict[str, Any]:
    if line.startswith("\ufeff"):
        raise CorpusError(
            f"{where}: a byte order mark, which JSON does not have; save the file without it, as plain UTF-8"
        )
    try:
        row = json.loads(line.rstrip("\r\n"))
    except (ValueError, RecursionError) as error:
        what = f"{error.msg} at character {error.pos:,}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise CorpusError(f"{where}: no JSON ({what}). A .jsonl file has one object on each line") from None
    if not isinstance(row, dict):
        raise CorpusError(f'{where}: {type(row).__name__}, not an object such as {{"text": "…"}}')
    return row


def _decoded(line: bytes, start: int, errors: str, counts: ReadCounts, where: str) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if errors == "strict":
            raise CorpusError(
                f"{where}: not UTF-8 at byte {start + error.start:,} (0x{line[error.start]:02x}); convert the file, or read it "
                "with errors='replace' or errors='ignore', which count such places"
            ) from None
    text = line.decode("utf-8", "replace")
    counts.undecodable += text.count("\ufffd") - line.count(b"\xef\xbf\xbd")
    return text if errors == "replace" else line.decode("utf-8", "ignore")


def _checked(value: Any, errors: str, counts: ReadCounts, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise CorpusError(f"{where} is {type(value).__name__}, not a string; name another column with text_column")
    if value.isascii():
        return value
    lone = sum("\ud800" <= character <= "\udfff" for character in value) if _has_surrogates(value) else 0
    if not lone:
        return value
    if errors == "strict":
        raise CorpusError(
            f"{where} has a lone surrogate, which is no text; repair the file, or read it with errors='replace' or "
            "errors='ignore', which count such places"
        )
    counts.undecodable += lone
    put = "\ufffd" if errors == "replace" else ""
    return "".join(put if "\ud800" <= character <= "\udfff" else character for character in value)


def _has_surrogates(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


# Parquet and Arrow


def _parquet_rows(source: SourceFile, wanted: str | None, errors: str, counts: ReadCounts) -> Rows:
    import pyarrow
    import pyarrow.parquet

    with source.open_to_jump() as file:
        try:
            opened = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
            yield from parquet_rows(opened, wanted, source.path, errors, counts)
        except (pyarrow.ArrowException, OSError) as error:
            raise _not_read(source, "Parquet", error) from None


def parquet_rows(file: Any, wanted: str | None, where: object, errors: str, counts: ReadCounts) -> Rows:
    """The text column of an open `pyarrow.parquet.ParquetFile`, a few hundred rows in memory at a time."""
    column = _column_of(file.schema_arrow, wanted, where)
    row = 0
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[column], use_threads=False):
        yield from _texts(batch.column(0), row, errors, counts, where)
        row += len(batch)


def _texts(column: Any, first: int, errors: str, counts: ReadCounts, where: object) -> list[str | None]:
    """Of a part of a column that begins with row `first`. Writers need not check that strings are UTF-8."""
    try:
        texts: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:
        import pyarrow

        texts = []
        for row, raw in enumerate(column.cast(pyarrow.large_binary()).to_pylist(), start=first):
            text = None if raw is None else _decoded(raw, 0, errors, counts, f"{where}, row {row:,} (of 0, 1, …)")
            texts.append(text)
    return texts


def size_bytes(source: SourceFile) -> int | None:
    """About how many bytes a `.parquet` unpacks to, by what it says itself; `None` where that cannot be told."""
    import pyarrow
    import pyarrow.parquet

    if source.compression:
        return None
    try:
        metadata = pyarrow.parquet.read_metadata(source.path)
    except (pyarrow.ArrowException, OSError):
        return None  # reading will say what is wrong
    return int(sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)))


def _arrow_rows(source: SourceFile, wanted: str | None, errors: str, counts: ReadCounts) -> Rows:
    """Both of Arrow's formats: the file that can be jumped in, and the stream that `datasets` writes."""
    import pyarrow

    with source.open_to_jump() as file:
        try:
            is_file = file.read(6) == b"ARROW1"
            file.seek(0)
            opened = pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file)
            column = _column_of(opened.schema, wanted, source.path)
            batches = (opened.get_batch(n) for n in range(opened.num_record_batches)) if is_file else opened
            row = 0
            for batch in batches:
                texts = batch.column(batch.schema.get_field_index(column))
                for start in range(0, len(texts), _ROWS_AT_ONCE):
                    part = texts.slice(start, _ROWS_AT_ONCE)
                    yield from _texts(part, row + start, errors, counts, source.path)
                row += len(texts)
        except (pyarrow.ArrowException, OSError) as error:
            raise _not_read(source, "Arrow", error) from None


def _column_of(schema: Any, wanted: str | None, where: object) -> str:
    import pyarrow

    def is_text(field: Any) -> bool:
        return any(test(field.type) for test in (pyarrow.types.is_string, pyarrow.types.is_large_string, _is_view))

    strings = [field.name for field in schema if is_text(field)]
    column = guess_text_column(schema.names, strings, wanted, where)
    if column not in strings:
        raise CorpusError(
            f"{where}: the column {column!r} holds {schema.field(column).type}, not strings; name another with "
            f"text_column{': ' if strings else ''}{', '.join(strings)}"
        )
    return column


def _is_view(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string_view(kind))


def _not_read(source: SourceFile, kind: str, error: Exception) -> CorpusError:
    reason = (str(error).splitlines() or [""])[0]
    return CorpusError(f"{source.path}: damaged, or no {kind} file ({reason}); fetch or write it again")
