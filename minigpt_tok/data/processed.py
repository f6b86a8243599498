r"""Cleaned splits on disk: `data/processed/<corpus>/{train,validation,test}.txt`, written and read back.

Documents stand one after the other with a line `<|endoftext|>` between them: `\n<|endoftext|>\n`, of which nothing
belongs to either document. A document may itself have a line `<|endoftext|>`; on disk it has a backslash before it (and
such a line with backslashes has one more), so no document is ever cut by its own text. The manifest `corpus.json`
beside the files names the corpus, counts everything and says that this rule holds; without it the files read as any
text with `<|endoftext|>` lines, only with those rare backslashes left in.
"""

import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.count_documents import utf8_size
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data.cutting import cut_joined
from minigpt_tok.data.documents import ReadCounts
from minigpt_tok.data.splits import SPLITS
from minigpt_tok.data.text_files import END_OF_TEXT
from minigpt_tok.errors import CorpusError, FormatError
from minigpt_tok.files import StrPath, lacks_room, read_text, write_text, writing

if TYPE_CHECKING:
    from minigpt_tok.data.corpora import Corpus

log = logging.getLogger(__name__)

MANIFEST = "corpus.json"
_FORMAT = "minigpt-tok corpus"
_FORMAT_VERSION = 1
_SEPARATOR = f"\n{END_OF_TEXT}\n"
_LIMIT = 1 << 20  # bytes of a manifest

_PLAIN_LINE = re.compile(rf"^\\*{re.escape(END_OF_TEXT)}$", re.MULTILINE)
_ESCAPED_LINE = re.compile(rf"^\\(\\*{re.escape(END_OF_TEXT)})$".encode(), re.MULTILINE)


@dataclasses.dataclass
class SplitCounts:
    """One written split. `n_bytes` are UTF-8 bytes of the documents, separators not counted."""

    documents: int = 0
    n_bytes: int = 0
    escaped_documents: int = 0  # had a line that reads like the separator


@dataclasses.dataclass(frozen=True)
class ProcessedCorpus:
    """What `write_processed` wrote, and what reading and cleaning changed."""

    corpus: str
    folder: Path
    splits: Mapping[str, SplitCounts]
    cleaning: Mapping[str, int]  # as `ReadCounts`: separators, empty documents, undecodable places, …


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What `corpus.json` says of the files beside it."""

    corpus: str
    splits: tuple[str, ...]

    def files(self, folder: Path) -> dict[str, Path]:
        """Split → file.

        Raises:
            CorpusError: a file that the manifest names is gone.
        """
        files = {split: folder / f"{split}.txt" for split in self.splits}
        for path in files.values():
            if not path.is_file():
                raise CorpusError(f"{path}: no such file, though {folder / MANIFEST} names it; write the corpus again")
        return files


def write_processed(corpus: "Corpus", root: StrPath) -> ProcessedCorpus:
    """Write the splits of a corpus to `root/<corpus>/`, each file whole or not at all.

    Args:
        corpus: any; where its splits are by hash, it is read once for all of them.
        root: for example `data/processed`.

    Returns:
        counts of what was written and what was cleaned; `open_corpus(result.folder)` gives the same documents.

    Raises:
        CorpusError: the corpus has a name that is no folder's, or no documents; or that folder has files that were
            not written here, a corpus as it was published perhaps; or the disk is full.
    """
    try:
        return _write_processed(corpus, root)
    except OSError as error:
        if not lacks_room(error):
            raise
        raise CorpusError(
            f"{Path(root) / folder_name(corpus.name)}: could not be written ({error.strerror}); what is there is marked "
            "as unfinished. Free some space and write the corpus again, or choose another folder"
        ) from error


def _write_processed(corpus: "Corpus", root: StrPath) -> ProcessedCorpus:
    folder = Path(root) / folder_name(corpus.name)
    written = {split: SplitCounts() for split in corpus.splits}
    read = ReadCounts()
    _check_ours(folder)
    # Until all is written, the folder says that it is not: an older corpus must not be taken for half of this one.
    _write_manifest(folder, corpus.name, {}, {})
    with contextlib.ExitStack() as files:
        out = {split: files.enter_context(writing(folder / f"{split}.txt")) for split in corpus.splits}
        if corpus.assign is not None:
            for text in corpus.documents:
                split = corpus.assign(text)
                _write(out[split], text, written[split])
            _add(read, corpus.documents.counts)
        else:
            for split, documents in corpus.splits.items():
                for text in documents:
                    _write(out[split], text, written[split])
                _add(read, documents.counts)
        if not any(counts.documents for counts in written.values()):
            raise CorpusError(f"{corpus.name}: there are no documents to write")
    for stale in set(SPLITS) - set(written):
        (folder / f"{stale}.txt").unlink(missing_ok=True)
    cleaning = {key: value for key, value in vars(read).items() if key not in ("documents", "n_bytes")}
    _write_manifest(folder, corpus.name, written, cleaning)
    for split, counts in written.items():
        if counts.escaped_documents:
            log.warning(
                "%s, %s: %s with a line that reads %s; it was escaped with a backslash",
                corpus.name, split, counted(counts.escaped_documents, "document"), END_OF_TEXT,
            )  # fmt: skip
    return ProcessedCorpus(corpus.name, folder, written, cleaning)


def _check_ours(folder: Path) -> None:
    present = [f"{split}.txt" for split in SPLITS if (folder / f"{split}.txt").exists()]
    if present and _manifest_content(folder) is None:
        raise CorpusError(
            f"{folder} has {', '.join(present)} that were not written here (there is no {MANIFEST} of this package), and "
            "is left as it is; choose another folder, or give the corpus another name"
        )


def _write_manifest(folder: Path, corpus: str, splits: Mapping[str, SplitCounts], cleaning: Mapping[str, int]) -> None:
    content = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "corpus": corpus,
        "separator": _SEPARATOR,
        "splits": {split: vars(counts) for split, counts in splits.items()},
        "cleaning": dict(cleaning),
    }
    write_text(folder / MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _manifest_content(folder: Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        content = json.loads(read_text(path, limit=_LIMIT, what="a corpus manifest"))
    except (json.JSONDecodeError, RecursionError, FormatError):
        return None
    return content if isinstance(content, dict) and content.get("format") == _FORMAT else None


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder that `write_processed` wrote, or `None` for any other folder.

    Raises:
        FormatError: a manifest of a newer version, a damaged one, or one of a writing that was cut short.
    """
    path = folder / MANIFEST
    content = _manifest_content(folder)
    if content is None:
        return None
    if content.get("format_version") != _FORMAT_VERSION:
        raise FormatError(
            f"{path}: format version {content.get('format_version')!r}; this version reads {_FORMAT_VERSION}"
        )
    name, splits = content.get("corpus"), content.get("splits")
    if not isinstance(name, str) or not isinstance(splits, dict) or not splits or not set(splits) <= set(SPLITS):
        raise FormatError(f"{path}: damaged, or the writing was cut short; write the corpus again")
    return Manifest(name, tuple(split for split in SPLITS if split in splits))


class SplitReader:
    """Reads one written split."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, counts: ReadCounts) -> Iterator[bytes]:
        """A new reading."""
        return chain.from_iterable(self.joined(counts))

    def joined(self, counts: ReadCounts) -> Iterator[Texts]:
        """As `Documents.joined`, the limits apart."""
        token = END_OF_TEXT.encode("utf-8")
        with open(self._path, "rb") as file:
            for starts, texts in cut_joined(file, token, counts, whole_line=True, carriage_returns=False):
                if not texts.are_utf8:
                    self._refuse(starts, texts)
                escaped = token in bytes(texts.joined)
                yield Texts.of([_ESCAPED_LINE.sub(rb"\1", text) for text in texts]) if escaped else texts

    def _refuse(self, starts: np.ndarray, texts: Texts) -> None:
        for start, raw in zip(starts.tolist(), texts, strict=True):
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{self._path}: not UTF-8 at byte {start + error.start:,}, so edited since it was written; "
                    "write the corpus again"
                ) from None


def folder_name(name: str) -> str:
    """A corpus's or tokenizer's name as the name of a folder.

    Raises:
        CorpusError: nothing usable is left of it.
    """
    usable = re.sub(r"[^\w.+@=-]+", "-", name).strip("-.")
    if not usable:
        raise CorpusError(f"{name!r} cannot name a folder; give a name with letters or digits")
    return usable


def _write(file: IO[bytes], text: str, counts: SplitCounts) -> None:
    escaped = _PLAIN_LINE.sub(r"\\\g<0>", text) if END_OF_TEXT in text else text
    counts.escaped_documents += escaped != text
    if counts.documents:
        file.write(_SEPARATOR.encode("utf-8"))
    file.write(escaped.encode("utf-8"))
    counts.documents += 1
    counts.n_bytes += utf8_size(text)


def _add(total: ReadCounts, counts: ReadCounts | None) -> None:
    for key, value in vars(counts or ReadCounts()).items():
        setattr(total, key, getattr(total, key) + value)
