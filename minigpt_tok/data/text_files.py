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

from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data import wikitext
from minigpt_tok.data.cutting import CHUNK, Cut, alone, cut_joined
from minigpt_tok.data.documents import ReadCounts
from minigpt_tok.data.source_file import SourceFile
from minigpt_tok.data.tables import TABLE_KINDS
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import MappedText

log = logging.getLogger(__name__)

END_OF_TEXT = "<|endoftext|>"
ERRORS = ("strict", "replace", "ignore")

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
    """The documents of one file, empty ones included; the arguments are those of `read_joined`."""
    for texts in read_joined(path, counts, separator=separator, errors=errors):
        for text in texts:
            yield text.decode("utf-8")


def read_joined(
    path: Path | SourceFile, counts: ReadCounts, *, separator: str | None = "auto", errors: str = "strict"
) -> Iterator[Texts]:
    """The documents of one file, empty ones included, some at a time.

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
        for starts, texts in _cut(source.path, file, separator, counts):
            if starts[0] == 0 and texts[0].startswith(codecs.BOM_UTF8):
                counts.byte_order_marks += 1
                if not source.mark_said:
                    log.warning("%s begins with a byte order mark; it is kept, as the first character", source.path)
                source.mark_said = True
            if texts.are_utf8:
                yield texts
                continue
            for start, raw in zip(starts.tolist(), texts, strict=True):
                yield Texts.of([_in_utf8(source.path, start, raw, errors, counts)])


def is_one_document(path: Path, separator: str | None) -> bool:
    """Whether a file is one document as it stands, without having to read it as text. `False` where that is not sure."""
    text = MappedText(path)
    if text.size == 0 or SourceFile(path).compression:
        return False
    with text.view() as view:
        head = bytes(view[:CHUNK])
        token = (END_OF_TEXT if separator in ("auto", None) else separator).encode("utf-8")
        if head.startswith(codecs.BOM_UTF8) or (separator == "auto" and wikitext.looks_like_wikitext(head)):
            return False
        return separator is None or view.obj.find(token) < 0  # type: ignore[attr-defined]  # the mapped file


def _cut(path: Path, file: IO[bytes], separator: str | None, counts: ReadCounts) -> Iterator[Cut]:
    if separator is None:
        return iter([alone(0, file.read())])
    if separator != "auto":
        return cut_joined(file, separator.encode("utf-8"), counts)
    head = file.read(CHUNK)
    if file.seekable():
        file.seek(0)
    else:
        file = io.BufferedReader(_Rejoined(head, file), CHUNK)
    token = END_OF_TEXT.encode("utf-8")
    if wikitext.looks_like_wikitext(head) and not any(line.strip() == token for line in head.splitlines()):
        return _cut_articles(path, file, wikitext.has_blank_lines(head))
    return cut_joined(file, token, counts, whole_line=True)


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


def _cut_articles(path: Path, file: IO[bytes], blank_lines: bool) -> Iterator[Cut]:
    if not blank_lines:
        log.warning(
            "%s has lost the blank lines that stand around headings in WikiText; every line of the form ' = Title = ' "
            "begins an article, a few legends of tables among them",
            path,
        )
    start = 0
    for article in wikitext.cut_articles(file, blank_lines=blank_lines):
        yield alone(start, article)
        start += len(article)


def _in_utf8(path: Path, start: int, raw: bytes, errors: str, counts: ReadCounts) -> bytes:
    """What becomes of a document that may not be UTF-8."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if errors == "strict":
            raise CorpusError(
                f"{path}: not UTF-8 at byte {start + error.start:,} (0x{raw[error.start]:02x}); convert the file, or read "
                "it with errors='replace' or errors='ignore', which count such places"
            ) from None
    else:
        return raw
    text = raw.decode("utf-8", "replace")
    # Each undecodable place became one U+FFFD; those that the file has itself are not counted.
    counts.undecodable += text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
    return (text if errors == "replace" else raw.decode("utf-8", "ignore")).encode("utf-8")
