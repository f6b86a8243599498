"""Files and folders: which are read, by which reader, and which split each belongs to.

| what | is |
| --- | --- |
| `train.txt`, `wiki.valid.tokens`, `TinyStories-valid.txt.gz` | the split that the name ends with |
| `train-00000-of-00002.parquet`, `validation-00000-of-00001-5a….parquet` | a part of that split |
| `train/data-00000-of-00001.arrow` beside `validation/…` | a part of the split that its folder is named like |
| anything else | documents without a split |
"""

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path

from minigpt_tok.amounts import counted
from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data import processed, tables, text_files
from minigpt_tok.data.documents import ReadCounts, Reader
from minigpt_tok.data.parts import Options, Part, total
from minigpt_tok.data.source_file import SourceFile
from minigpt_tok.data.splits import canonical_split
from minigpt_tok.data.tables import TABLE_KINDS, TableReader
from minigpt_tok.errors import CorpusError

log = logging.getLogger(__name__)

TEXT_KINDS = (".txt", ".tokens", ".raw")
_FOUND_KINDS = (".txt", *TABLE_KINDS)  # in folders; the other two only where they are named like splits
_SPLIT_NAME = re.compile(
    r"(?:.*[-_.])?(train|test|validation|valid|val|dev)(?P<part>-\d+-of-\d+(?:-[0-9a-z]+)?)?", re.IGNORECASE
)


class TextFileReader:
    """Reads one file of text."""

    def __init__(self, source: SourceFile, options: Options) -> None:
        self._source = source
        self._options = options

    @property
    def path(self) -> Path:
        """The file."""
        return self._source.path

    def __call__(self, counts: ReadCounts) -> Iterator[bytes]:
        """A new reading."""
        return chain.from_iterable(self.joined(counts))

    def joined(self, counts: ReadCounts) -> Iterator[Texts]:
        """As `Documents.joined`, the limits apart."""
        options = self._options
        return text_files.read_joined(self._source, counts, separator=options.separator, errors=options.errors)

    def is_whole(self) -> bool:
        """Whether the file as it stands is one document."""
        return self._options.errors == "strict" and text_files.is_one_document(self.path, self._options.separator)


def from_folder(folder: Path, options: Options) -> Part:
    """The documents of a folder: of processed splits, of files named like splits, or of all files that can be read."""
    if manifest := processed.read_manifest(folder):
        files = manifest.files(folder)
        return Part(
            manifest.corpus,
            {split: [processed.SplitReader(path)] for split, path in files.items()},
            {split: path.stat().st_size for split, path in files.items()},
        )
    name = folder.resolve().name
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    named = [path for path in found if path.parent == folder and _split_of(SourceFile(path)) is not None]
    if "train" in {_split_of(SourceFile(path)) for path in named}:
        if others := [path.name for path in found if path not in named]:
            log.info("%s has splits of its own; left out: %s", folder, ", ".join(others[:10]))
        return from_files(named, name, options)
    texts = [path for path in found if SourceFile(path).kind in _FOUND_KINDS]
    if not texts:
        kinds = sorted({path.suffix or path.name for path in found})
        has = f"it has {', '.join(kinds[:8])}" if kinds else "it is empty"
        raise CorpusError(
            f"{folder}: no .txt files, no {', '.join(TABLE_KINDS)}, and no wiki.train.tokens or wiki.train.raw ({has})"
        )
    if len(texts) < len(found):
        left_out = counted(len(found) - len(texts), "file")
        log.info("%s: left out: %s of none of the kinds %s", folder, left_out, ", ".join(_FOUND_KINDS))
    return from_files(texts, name, options, folder)


def from_files(files: Sequence[Path], name: str, options: Options, folder: Path | None = None) -> Part:
    """Files as splits where every one is named like a split, or lies in a folder that is, and one is `train`; else as one.

    Args:
        files: in the order in which they are read.
        name: of the corpus.
        options: how to read them.
        folder: in which they were found; the names of folders below it may name splits.
    """
    for path in files:
        text_files.check_file(path)
    sources = [SourceFile(path) for path in files]
    splits = [_split_of(source, folder) for source in sources]
    if len(files) > 1 and "train" in splits and None not in splits:
        by_split: dict[str, list[SourceFile]] = {}
        for source, split in zip(sources, splits, strict=True):
            before = by_split.setdefault(str(split), [])
            if before and not (_is_part(source) and _is_part(before[0])):
                raise CorpusError(
                    f"{before[0].path} and {source.path} both look like the split {split}; pass a "
                    "mapping from splits to files to say which is which"
                )
            before.append(source)
        return Part(
            name,
            {split: _readers(group, options) for split, group in by_split.items()},
            {split: total(map(_size_of, group)) for split, group in by_split.items()},
        )
    if len(files) > 1 and "train" in splits and ("validation" in splits or "test" in splits):
        log.warning("%s: files named like splits are read as one corpus, since others beside them are not", name)
    return Part(name, {None: _readers(sources, options)}, {None: total(map(_size_of, sources))})


def _readers(sources: Sequence[SourceFile], options: Options) -> list[Reader]:
    """One for each text; one for each run of tables, whose rows may go on from one file to the next."""
    readers: list[Reader] = []
    for is_table, group in groupby(sources, lambda source: source.kind in TABLE_KINDS):
        if is_table:
            readers.append(TableReader(list(group), options.text_column, options.errors))
        else:
            readers += [TextFileReader(source, options) for source in group]
    return readers


def _size_of(source: SourceFile) -> int | None:
    return tables.size_bytes(source) if source.kind == ".parquet" else source.size_bytes


def _split_of(source: SourceFile, folder: Path | None = None) -> str | None:
    """The split that a file's name means, or that of the folder in which it lies below `folder`."""
    if source.kind not in (*TEXT_KINDS, *TABLE_KINDS):
        return None
    if match := _SPLIT_NAME.fullmatch(source.stem):
        return canonical_split(match[1])
    parent = source.path.parent
    return canonical_split(parent.name) if folder is not None and parent != folder else None


def _is_part(source: SourceFile) -> bool:
    """Whether a file is one of several that make up a split."""
    match = _SPLIT_NAME.fullmatch(source.stem)
    return match is None or match["part"] is not None
