"""`Documents`: a stream of texts that can be read again and again, with an account of what the last reading met."""

import dataclasses
import hashlib
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.texts import Texts, grouped
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import MappedText


@dataclasses.dataclass
class ReadCounts:
    """What one complete reading met. Sizes are in UTF-8 bytes of the text that was read."""

    documents: int = 0  # given out
    n_bytes: int = 0  # of the documents given out
    empty_documents: int = 0  # left out: there is nothing in them
    separators: int = 0  # cut away between documents
    separator_bytes: int = 0  # of the separators, the newlines beside them included
    undecodable: int = 0  # places that are not UTF-8, replaced or ignored
    byte_order_marks: int = 0  # kept, as the first character of a document


# Starts a new reading, and counts what it removes as it goes. Gives texts, or texts as bytes, which are UTF-8. A reader may
# have a method `joined` too, which gives the same texts as `Texts`.
Reader = Callable[[ReadCounts], Iterator[str | bytes]]
JoinedReader = Callable[[ReadCounts], Iterator[Texts]]


def joined_reading(reader: Reader) -> JoinedReader | None:
    """How `reader` reads many documents at a time, if it can."""
    return getattr(reader, "joined", None)


class Documents:
    """The documents of one split: an iterable of `str` that starts afresh at each `iter()` and holds one at a time.

    Empty documents are left out and counted.
    """

    def __init__(
        self,
        read: Reader,
        *,
        corpus: str,
        split: str,
        size_bytes: int | None = None,
        keep: Callable[[int, bytes], bool] | None = None,
        max_documents: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """`read` starts a reading; the limits apply to what it gives, and of those, `keep` picks this split's.

        `keep` is given the text's number among those and its UTF-8.
        """
        for name, limit in (("max_documents", max_documents), ("max_bytes", max_bytes)):
            if limit is not None and limit < 1:
                raise CorpusError(f"{name} is {limit}; it must be at least 1, or None for no limit")
        self.corpus = corpus
        self.split = split
        self._read = read
        self._size_bytes = size_bytes
        self._keep = keep
        self._max_documents = max_documents
        self._max_bytes = max_bytes
        self._counts: ReadCounts | None = None

    @property
    def name(self) -> str:
        """The corpus and the split, for messages."""
        return f"{self.corpus}, {self.split}"

    @property
    def size_bytes(self) -> int | None:
        """About how many bytes a reading gives, where that is known beforehand (for progress and estimates)."""
        if self._size_bytes is None or self._max_bytes is None:
            return self._size_bytes
        return min(self._size_bytes, self._max_bytes)

    @property
    def counts(self) -> ReadCounts | None:
        """What the last complete reading met; `None` before there was one."""
        return self._counts

    def mapped(self) -> list[MappedText] | None:
        """The same documents as files that are one document each, where they are; else `None`."""
        files = getattr(self._read, "whole_files", None)
        if files is None or self._keep or self._max_documents or self._max_bytes:
            return None
        paths = files()
        return None if paths is None else [MappedText(path) for path in paths]

    def __iter__(self) -> Iterator[str]:
        return (raw.decode("utf-8") for raw in self.in_utf8())

    def in_utf8(self) -> Iterator[bytes]:
        """A reading that gives each text in UTF-8, for whoever hashes, measures or encodes it."""
        counts = ReadCounts()
        keep = self._keep
        for number, document in enumerate(self._limited(counts)):
            if keep is None or keep(number, document):
                counts.documents += 1
                counts.n_bytes += len(document)
                yield document
        self._counts = counts

    def joined(self, n_bytes: int = 1 << 20) -> Iterator[Texts]:
        """As `in_utf8`, many documents at a time: so many as make up `n_bytes`, or what a file's reader gives at once."""
        read = None if self._keep or self._max_documents or self._max_bytes else joined_reading(self._read)
        if read is None:
            yield from grouped(self.in_utf8(), n_bytes)
            return
        counts = ReadCounts()
        for given in read(counts):
            texts = given.chosen(given.sizes > 0)
            counts.empty_documents += len(given) - len(texts)
            counts.documents += len(texts)
            counts.n_bytes += texts.n_bytes
            if len(texts):
                yield texts
        self._counts = counts

    def _limited(self, counts: ReadCounts) -> Iterator[bytes]:
        n_documents = n_bytes = 0
        for number, given in enumerate(self._read(counts)):
            document = given if isinstance(given, bytes) else self._encoded(given, number)
            size = len(document)
            if size == 0:
                counts.empty_documents += 1
                continue
            if self._max_bytes is not None and n_bytes + size > self._max_bytes:
                if n_documents == 0:
                    raise CorpusError(
                        f"{self.name}: the first document alone has {counted(size, 'byte')}, more than max_bytes="
                        f"{self._max_bytes:,}, and documents are never cut. Raise the limit"
                        ", or give the separator at which the text divides into documents"
                    )
                return
            yield document
            n_documents += 1
            n_bytes += size
            if n_documents == self._max_documents:
                return

    def _encoded(self, text: str, number: int) -> bytes:
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{self.name}: document {number} has a lone surrogate (U+{ord(text[error.start]):04X}) at character "
                f"{error.start:,}, which is no text; decode its source with errors='replace' to read it nevertheless"
            ) from None

    def __repr__(self) -> str:
        return f"<Documents of {self.name}>"


class TextHash:
    """What identifies the text of documents, in order: the SHA-256 of two SHA-256 digests, that of all their bytes one after
    another and that of their sizes in bytes (int64, little-endian).

    Attributes:
        of_bytes, of_sizes: these two, so far.
    """

    def __init__(self) -> None:
        self.of_bytes, self.of_sizes = hashlib.sha256(), hashlib.sha256()

    def update(self, texts: Texts) -> None:
        """Add documents."""
        self.of_bytes.update(texts.joined)
        self.of_sizes.update(texts.little_endian_sizes.data)

    def copy(self) -> "TextHash":
        """Another that goes its own way from here."""
        other = TextHash()
        other.of_bytes, other.of_sizes = self.of_bytes.copy(), self.of_sizes.copy()
        return other

    def hexdigest(self) -> str:
        """64 hexadecimal digits."""
        return hashlib.sha256(self.of_bytes.digest() + self.of_sizes.digest()).hexdigest()


class Spool:
    """An iterator's documents, kept in an unnamed temporary file so that they can be read more than once.

    The iterator is drained at the first reading; memory holds one document at a time.
    """

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts: Iterator[str] | None = texts
        self._sizes = array("q")
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # readings come and go; closed when this object goes
        weakref.finalize(self, self._file.close)

    def __iter__(self) -> Iterator[str]:
        self._drain()
        at = 0
        for size in self._sizes:
            self._file.seek(at)
            yield self._file.read(size).decode("utf-8", "surrogatepass")
            at += size

    def _drain(self) -> None:
        if self._texts is None:
            return
        for text in only_texts(self._texts):
            raw = text.encode("utf-8", "surrogatepass")  # the reading reports surrogates, with the document's number
            self._file.write(raw)
            self._sizes.append(len(raw))
        self._texts = None


def from_texts(texts: Iterable[str]) -> Reader:
    """A reader of texts at hand: a collection is read where it is, an iterator through a `Spool`."""
    again: Iterable[str] = Spool(texts) if isinstance(texts, Iterator) else texts

    def read(counts: ReadCounts) -> Iterator[str]:
        return only_texts(again)

    return read


def only_texts(things: Iterable[object]) -> Iterator[str]:
    """Texts that somebody else gives.

    Raises:
        CorpusError: one is none; bytes are none either, since nobody knows what they hold.
    """
    for number, thing in enumerate(things):
        if not isinstance(thing, str):
            raise CorpusError(f"document {number} is {type(thing).__name__}, not str")
        yield thing
