r"""Local text files: where one document ends and the next begins, and what is removed between them.

| `separator` | a document is |
| --- | --- |
| `"auto"` | an article, where the file begins as WikiText does; else what lies between lines `<|endoftext|>` |
| a string | what lies between its occurrences |
| `None` | the whole file (as with `"auto"`, where there is no such line) |

Of a separator such as `\n<|endoftext|>\n` the token and one newline (`\n` or `\r\n`) on each side are removed, and
counted; a separator that itself begins or ends with a newline says which newlines go. All other bytes are kept: no
newline translation, and a byte order mark stays where it is (and is said).

Files are read in pieces of a megabyte, unpacked on the way where they are `.gz` or `.zst`: memory holds the longest
document, not the file.
"""

import codecs
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from minigpt_tok.bpe.fast import is_utf8
from minigpt_tok.data import wikitext
from minigpt_tok.data.documents import ReadCounts
from minigpt_tok.data.source_file import SourceFile
from minigpt_tok.data.tables import TABLE_KINDS
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import MappedText

log = logging.getLogger(__name__)

END_OF_TEXT = "<|endoftext|>"
ERRORS = ("strict", "replace", "ignore")
_CHUNK = 1 << 20  # bytes
_LF, _CR = b"\n\r"

# Formats that look like files of text to a caller, and are not read.
UNREAD_KINDS = frozenset((".json", ".csv", ".tsv", ".pdf", ".npy", ".npz", ".bin", ".pt", ".safetensors")) | frozenset(
    (".bz2", ".xz", ".zip", ".tar", ".tgz", ".7z")
)


def check_options(separator: str | None, errors: str) -> None:
    """Refuse options that mean nothing, before a file is opened.

    Raises:
        CorpusError: an empty separator, or `errors` that is none of `ERRORS`.
    """
    if separator == "":
        raise CorpusError("the separator is empty; give the text between documents, None for whole files, or 'auto'")
    if errors not in ERRORS:
        raise CorpusError(f"errors is {errors!r}; it must be one of {', '.join(map(repr, ERRORS))}")


def check_file(path: Path) -> None:
    """Refuse what cannot be read as text, naming what can.

    Raises:
        CorpusError: there is no such file, or it is of another format by its name.
    """
    if not path.is_file():
        raise CorpusError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    if (kind := SourceFile(path).kind) in UNREAD_KINDS:
        raise CorpusError(
            f"{path}: {kind} files are not read; corpora are read from UTF-8 text (.txt, wiki.*.tokens, wiki.*.raw) and "
            f"from {', '.join(TABLE_KINDS)}, each also packed as .gz or .zst. Unpack or convert it, or open it with the "
            "datasets library and pass the Dataset"
        )


def read_file(
    path: Path | SourceFile, counts: ReadCounts, *, separator: str | None = "auto", errors: str = "strict"
) -> Iterator[str]:
    """The documents of one file, empty ones included; the arguments are those of `read_in_utf8`."""
    for document in read_in_utf8(path, counts, separator=separator, errors=errors):
        yield document if isinstance(document, str) else document.decode("utf-8")


def read_in_utf8(
    path: Path | SourceFile, counts: ReadCounts, *, separator: str | None = "auto", errors: str = "strict"
) -> Iterator[str | bytes]:
    """The documents of one file, empty ones included: as bytes where these are UTF-8, else what becomes of them.

    Args:
        path: a UTF-8 file.
        counts: gets the separators, undecodable places and byte order marks that are met.
        separator: see this module.
        errors: `strict` raises where the file is not UTF-8, `replace` puts U+FFFD there, `ignore` leaves it out.

    Raises:
        CorpusError: the file is not UTF-8 (with the byte offset), gone, or changed since it was first read.
    """
    source = path if isinstance(path, SourceFile) else SourceFile(path)
    with source.open() as file:
        for start, raw in _cut(source.path, file, separator, counts):
            if start == 0 and raw.startswith(codecs.BOM_UTF8):
                counts.byte_order_marks += 1
                if not source.mark_said:
                    log.warning("%s begins with a byte order mark; it is kept, as the first character", source.path)
                source.mark_said = True
            yield _text_of(source.path, start, raw, errors, counts)


def is_one_document(path: Path, separator: str | None) -> bool:
    """Whether a file is one document as it stands, without having to read it as text. `False` where that is not sure."""
    text = MappedText(path)
    if text.size == 0 or SourceFile(path).compression:
        return False
    with text.view() as view:
        head = bytes(view[:_CHUNK])
        token = (END_OF_TEXT if separator in ("auto", None) else separator).encode("utf-8")
        if head.startswith(codecs.BOM_UTF8) or (separator == "auto" and wikitext.looks_like_wikitext(head)):
            return False
        return separator is None or view.obj.find(token) < 0  # type: ignore[attr-defined]  # the mapped file


def _cut(path: Path, file: IO[bytes], separator: str | None, counts: ReadCounts) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of each document in the file."""
    if separator is None:
        return iter([(0, file.read())])
    if separator != "auto":
        return cut_at(file, separator.encode("utf-8"), counts)
    head = file.read(_CHUNK)
    if file.seekable():
        file.seek(0)
    else:
        file = io.BufferedReader(_Rejoined(head, file), _CHUNK)
    token = END_OF_TEXT.encode("utf-8")
    if wikitext.looks_like_wikitext(head) and not any(line.strip() == token for line in head.splitlines()):
        return _cut_articles(path, file, wikitext.has_blank_lines(head))
    return cut_at(file, token, counts, whole_line=True)


class _Rejoined(io.RawIOBase):
    """A file that cannot go back, after its head was read, as if it had gone back."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(part) :]
        buffer[: len(part)] = part
        return len(part)


def _cut_articles(path: Path, file: IO[bytes], blank_lines: bool) -> Iterator[tuple[int, bytes]]:
    if not blank_lines:
        log.warning(
            "%s has lost the blank lines that stand around headings in WikiText; every line of the form ' = Title = ' "
            "begins an article, a few legends of tables among them",
            path,
        )
    start = 0
    for article in wikitext.cut_articles(file, blank_lines=blank_lines):
        yield start, article
        start += len(article)


def cut_at(
    file: IO[bytes], token: bytes, counts: ReadCounts, *, whole_line: bool = False, carriage_returns: bool = True
) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of what lies between the occurrences of `token`; nothing after one that ends the file.

    Args:
        file: opened for binary reading, at its beginning.
        token: what separates; one newline on each side goes with it, unless it has its own there.
        counts: gets the number of separators and their bytes.
        whole_line: only an occurrence that is a line of its own separates.
        carriage_returns: `\\r\\n` is a newline too.
    """
    before = not token.startswith(b"\n")
    after = not token.endswith(b"\n")
    buffer = bytearray()
    offset = 0  # of the buffer, in the file
    start = 0  # of the document, in the buffer
    search = 0  # up to here no further occurrence begins
    ended = False
    while True:
        found = buffer.find(token, search)
        # What follows an occurrence decides about it, so two bytes must be there, or the end of the file.
        if not ended and (found < 0 or found + len(token) + 2 > len(buffer)):
            search = max(start, found if found >= 0 else len(buffer) - len(token) + 1)
            del buffer[:start]
            offset += start
            search -= start
            start = 0
            chunk = file.read(_CHUNK)
            ended = not chunk
            buffer += chunk
            continue
        if found < 0:
            break
        first, last = found, found + len(token)
        if before and first > start and buffer[first - 1] == _LF:
            first -= 1
            if carriage_returns and first > start and buffer[first - 1] == _CR:
                first -= 1
        if after and last < len(buffer):
            if buffer[last] == _LF:
                last += 1
            elif carriage_returns and buffer[last : last + 2] == b"\r\n":
                last += 2
        begins_line = first < found or found == start
        ends_line = last > found + len(token) or last == len(buffer)
        search = found + len(token)
        if whole_line and not (begins_line and ends_line):
            continue
        yield offset + start, bytes(buffer[start:first])
        counts.separators += 1
        counts.separator_bytes += last - first
        start = search = last
    if start < len(buffer):
        yield offset + start, bytes(buffer[start:])


def _text_of(path: Path, start: int, raw: bytes, errors: str, counts: ReadCounts) -> str | bytes:
    if is_utf8(raw):
        return raw
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if errors == "strict":
            raise CorpusError(
                f"{path}: not UTF-8 at byte {start + error.start:,} (0x{raw[error.start]:02x}); convert the file, or read "
                "it with errors='replace' or errors='ignore', which count such places"
            ) from None
    text = raw.decode("utf-8", "replace")
    # Each undecodable place became one U+FFFD; those that the file has itself are not counted.
    counts.undecodable += text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
    return text if errors == "replace" else raw.decode("utf-8", "ignore")
