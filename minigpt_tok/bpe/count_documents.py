"""Counting the pieces of documents, a chunk at a time: some texts together, or a part of a mapped file.

Memory holds a chunk, not the text: a mapped file is cut where its pattern is certain to cut, and never decoded whole.
"""

import codecs
import re
from collections.abc import Iterable, Iterator

from minigpt_tok.bpe.added import Matcher
from minigpt_tok.bpe.counting import PieceCounter
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.pretokenize import PreTokenizer, get_pretokenizer
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import MappedText
from minigpt_tok.progress import Report

COUNTED_TOGETHER = 1 << 23  # characters; the texts that reach this are counted at once, by several threads
SHORT = 1 << 20  # bytes; so short a part of a mapped file is counted together with others, as a text
_LOOK = 1 << 12  # bytes before the end of a chunk in which a place to cut is looked for first


class CountedDocuments:
    """The documents that have been counted.

    Attributes:
        documents, bytes, chunks: how many; bytes are of UTF-8.
    """

    def __init__(
        self,
        counter: PieceCounter,
        documents: Iterable[str | MappedText],
        matcher: Matcher,
        progress: Report | None,
    ) -> None:
        """Count them. What `matcher` finds splits the text: each side is a segment of its own.

        Where the matcher has a normalizer, the segments are normalized; bytes are counted before.

        Raises:
            CorpusError: a document is no text, and which; or there is no text in any.
        """
        self.documents = self.bytes = self.chunks = 0
        self._counter = counter
        self._progress = progress
        self._held: list[str] = []
        self._held_characters = 0
        self._matcher = matcher
        try:
            self._count(documents)
        except BaseException:
            counter.give_up()
            raise
        if not self.bytes:
            what = "only empty documents" if self.documents else "no documents"
            raise CorpusError(f"there is nothing to train on: the corpus has {what}")

    def _count(self, documents: Iterable[str | MappedText]) -> None:
        for number, document in enumerate(documents):
            if isinstance(document, MappedText):
                self._count_mapped(document)
            else:
                self._count_text(document, number)
        self._count_held()

    def _count_text(self, text: str, number: int) -> None:
        if not isinstance(text, str):
            raise CorpusError(f"document {number:,} is {type(text).__name__}, not str")
        try:
            size = utf8_size(text)
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"document {number:,} has a lone surrogate at character {error.start:,}, which no UTF-8 text can hold: "
                "read the text with errors='replace', or leave the document out"
            ) from None
        self._hold_parts(text)
        self._document_done(size)

    def _count_mapped(self, document: MappedText) -> None:
        pretokenizer = get_pretokenizer(self._counter.recipe.pattern)
        added = self._matcher.plain_texts
        with document.view() as view:
            if added is None:  # what is looked for must be looked for in characters
                self._hold_parts(_decoded(document, view, 0))
            else:
                for start, end in segments(view, added):
                    for begin, stop in chunks(view, start, end, pretokenizer, self._counter.chunk_bytes):
                        with view[begin:stop] as chunk:
                            self._count_part(document, chunk, begin)
            size = len(view)
        self._document_done(size)

    def _count_part(self, document: MappedText, part: memoryview, offset: int) -> None:
        if len(part) <= SHORT:
            self._hold(_decoded(document, part, offset))
            return
        self._count_held()  # which comes before it
        if (invalid := self._counter.add_utf8(part)) is not None:
            raise document.not_utf8(offset + invalid)
        self._chunk_done(self.bytes + offset + len(part))

    def _hold_parts(self, text: str) -> None:
        for part in self._matcher.parts(text):
            if isinstance(part, str):
                self._hold(part)

    def _hold(self, text: str) -> None:
        self._held.append(text)
        self._held_characters += len(text)
        if self._held_characters >= COUNTED_TOGETHER:
            self._count_held()

    def _count_held(self) -> None:
        if not self._held:
            return
        self._counter.add(self._held)
        self._held, self._held_characters = [], 0
        self._chunk_done(self.bytes)

    def _document_done(self, size: int) -> None:
        self.documents += 1
        self.bytes += size

    def _chunk_done(self, n_bytes: int) -> None:
        self.chunks += 1
        if self._progress is not None:
            self._progress("chunks", self.chunks, None)
            self._progress("bytes", n_bytes, None)


def _decoded(document: MappedText, part: memoryview, offset: int) -> str:
    try:
        return str(part, "utf-8")
    except UnicodeDecodeError as error:
        raise document.not_utf8(offset + error.start) from None


def segments(text: memoryview, added: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """(start, end) of what lies between added tokens, leftmost-longest, in the UTF-8 of a text; none is empty."""
    # Python takes the first alternative that fits, so the longest stands first.
    longest_first = sorted((token.encode("utf-8") for token in added), key=len, reverse=True)
    expression = re.compile(b"|".join(map(re.escape, longest_first)))
    done = 0
    while added and (found := expression.search(text, done)):
        if found.start() > done:
            yield done, found.start()
        done = found.end()
    if done < len(text):
        yield done, len(text)


def chunks(text: memoryview, start: int, end: int, pretokenizer: PreTokenizer, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of parts, of about `size` bytes, of `text[start:end]` whose pieces side by side are those of the whole.

    Where the text is not UTF-8, it is not cut.
    """
    wanted = size
    while pretokenizer.name in PATTERNS and end - start > wanted:
        cut = _last_certain_cut(text, start, start + wanted, pretokenizer)
        if cut is None:
            wanted *= 2  # looks at twice as much: linear in all
            continue
        yield start, cut
        start, wanted = cut, size
    yield start, end


def _last_certain_cut(text: memoryview, start: int, end: int, pretokenizer: PreTokenizer) -> int | None:
    look = _LOOK
    while True:
        begin = max(start, end - look)
        while begin < end and text[begin] & 0xC0 == 0x80:  # in the midst of a character
            begin += 1
        try:
            window, _ = codecs.utf_8_decode(text[begin:end], "strict", False)  # up to the last whole character
        except UnicodeDecodeError:
            return None
        if cut := pretokenizer.last_certain_cut(window):
            return begin + utf8_size(window[:cut])
        if begin <= start:
            return None
        look *= 16


def utf8_size(text: str) -> int:
    """Bytes of a text in UTF-8.

    Raises:
        UnicodeEncodeError: it has a lone surrogate.
    """
    return len(text) if text.isascii() else len(text.encode("utf-8"))
