"""`open_corpus`: from what a user names to a `Corpus`, named splits of documents.

Splits are the corpus's own, where it has them: a folder or list of files named like splits, a mapping, a data set with
splits. Otherwise each document of files falls into train, validation or test by a hash of its text
(`splits.HashSplit`), a single document into train. Texts that the caller has at hand (an iterable, one `Dataset`) are
all train, since choosing them was the caller's: they are divided only where `fractions` are given.
"""

import glob
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from minigpt_tok.data import hub, processed, pydocs, text_files
from minigpt_tok.data.documents import Documents, Raw, ReadCounts, Reader, from_texts
from minigpt_tok.data.splits import DEFAULT_FRACTIONS, DEFAULT_SALT, SPLITS, HashSplit, canonical_split
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import StrPath

log = logging.getLogger(__name__)

CORPUS_NAMES = ("pydocs", *hub.HUB_CORPORA)

# A path, a list of paths, a corpus name, a data set of the `datasets` library, texts, a mapping of splits to these.
Source: TypeAlias = "Corpus | StrPath | Iterable[Any] | Mapping[str, Any]"


class Corpus:
    """A named set of splits.

    Attributes:
        name: what it is called in id files and reports.
        splits: `train` and, where there are any, `validation` and `test`.
        documents: all documents, of every split.
        assign: text → split, where the splits are by hash; `None` where they came with the corpus.
    """

    def __init__(
        self, name: str, splits: Mapping[str, Documents], documents: Documents, assign: HashSplit | None = None
    ) -> None:
        self.name = name
        self.splits = dict(splits)
        self.documents = documents
        self.assign = assign

    @property
    def has_own_splits(self) -> bool:
        """Whether the splits came with the corpus; otherwise they are by hash."""
        return self.assign is None

    @property
    def size_bytes(self) -> int | None:
        """About how many bytes of text all splits have together, where that is known beforehand."""
        return self.documents.size_bytes

    def __repr__(self) -> str:
        return f"<Corpus {self.name}: {', '.join(self.splits)}>"


class _Inputs(tuple[str, ...]):
    """Paths, globs and corpus names."""

    __slots__ = ()


class _Options(NamedTuple):
    separator: str | None
    text_column: str | None
    errors: str


class _Part(NamedTuple):
    """Readers by split (`None`: not divided yet), with the sizes of what they read in bytes, where known."""

    name: str
    readers: dict[str | None, list[Reader]]
    sizes: dict[str | None, int | None]
    at_hand: bool = False  # chosen by the caller text by text, so not to be divided unasked


def open_corpus(
    source: Source,
    *,
    name: str | None = None,
    separator: str | None = "auto",
    text_column: str | None = None,
    errors: str = "strict",
    max_documents: int | None = None,
    max_bytes: int | None = None,
    salt: str = DEFAULT_SALT,
    fractions: Mapping[str, float] | None = None,
) -> Corpus:
    """Open a corpus. Text is read when documents are asked for, one at a time.

    Args:
        source: one of
            a path (`str` or `Path`) of a UTF-8 text file, a folder of them, or a glob;
            a list of paths;
            a corpus name: `pydocs`, `wikitext-2`, `wikitext-103`, `tinystories` (an existing path goes before a name);
            a `Dataset`, `DatasetDict` or `IterableDataset` of the `datasets` library;
            an iterable of `str`, each a document (an iterator is kept in a temporary file, so that it can be re-read);
            a mapping of split names to any of these;
            a `Corpus`, which is returned as it is.
        name: what to call it; by default the folder's, the file's or the data set's name.
        separator: between documents in text files, see `text_files`.
        text_column: of a data set; guessed, and logged, if not given.
        errors: what to do where a file is not UTF-8: `strict`, `replace` or `ignore`.
        max_documents: at most so many of each split, or of the whole where splits are by hash.
        max_bytes: as many whole documents as stay within so many bytes, likewise.
        salt: other salts give other divisions by hash.
        fractions: shares of the splits in a division by hash, by default `splits.DEFAULT_FRACTIONS` for files, and
            no division of texts at hand.

    Raises:
        CorpusError: nothing is there, it is not read, or an option makes no sense.

    In a list of `str`, are the elements paths or texts? They are paths if all of them exist and none is a bare word.
    A list of `pathlib.Path` is always paths, an iterator always texts.
    """
    if isinstance(source, Corpus):
        return source
    text_files.check_options(separator, errors)
    shares = DEFAULT_FRACTIONS if fractions is None else fractions
    assign = HashSplit(salt, shares)
    part = _open(source, _Options(separator, text_column, errors))
    corpus_name = name or part.name

    def documents(split: str, readers: Iterable[Reader], size: int | None, **options: Any) -> Documents:
        return Documents(
            _Chained(list(readers)),
            corpus=corpus_name,
            split=split,
            size_bytes=size,
            max_documents=max_documents,
            max_bytes=max_bytes,
            **options,
        )

    if set(part.readers) == {None}:
        everything = documents("all", part.readers[None], part.sizes[None])
        if (part.at_hand and fractions is None) or (not part.at_hand and _has_at_most_one(everything)):
            shares = {"train": 1.0}
            assign = HashSplit(salt, shares)
        size = part.sizes[None]
        splits = {
            split: documents(
                split,
                part.readers[None],
                None if size is None else round(size * shares[split]),
                keep=_Keep(assign, split) if len(assign.splits) > 1 else None,
            )
            for split in assign.splits
        }
        return Corpus(corpus_name, splits, everything, assign)
    own = {split: documents(split, part.readers[split], part.sizes[split]) for split in SPLITS if split in part.readers}
    everything = Documents(
        lambda counts: chain.from_iterable(own.values()),
        corpus=corpus_name,
        split="all",
        size_bytes=_total(split.size_bytes for split in own.values()),
    )
    return Corpus(corpus_name, own, everything)


def open_inputs(inputs: Sequence[str], **options: Any) -> Corpus:
    """`open_corpus` for words of a command line: each is a path, a glob or a corpus name, none is a text."""
    return open_corpus(inputs[0] if len(inputs) == 1 else _Inputs(inputs), **options)


class _Keep:
    """Whether a text, in UTF-8, belongs to a split."""

    def __init__(self, assign: HashSplit, split: str) -> None:
        self._assign, self._split = assign, split

    def __call__(self, raw: bytes) -> bool:
        return self._assign.of_bytes(raw) == self._split


def _has_at_most_one(documents: Documents) -> bool:
    """Reads as far as the second document, where that cannot be known otherwise."""
    if (files := documents.mapped()) is not None:
        return len(files) <= 1
    reading = iter(documents)
    return next(reading, None) is None or next(reading, None) is None


class _Chained:
    """A reader that reads one after the other."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers

    def __call__(self, counts: ReadCounts) -> Iterator[str | Raw]:
        return chain.from_iterable(reader(counts) for reader in self._readers)

    def whole_files(self) -> list[Path] | None:
        """The files read, if each is one document as it stands."""
        files = [reader for reader in self._readers if isinstance(reader, _FileReader)]
        if len(files) < len(self._readers) or not all(file.is_whole() for file in files):
            return None
        return [file.path for file in files]


# What a source is


def _open(source: Source, options: _Options) -> _Part:
    if isinstance(source, Corpus):
        return _from_corpus(source)
    if isinstance(source, (str, os.PathLike)):
        return _open_named(source, options)
    if hub.is_dataset(source):
        name = hub.dataset_name(source)
        readers = hub.from_dataset(source, options.text_column, name)
        return _Part(name, {split: [reader] for split, reader in readers.items()}, dict.fromkeys(readers), at_hand=True)
    if isinstance(source, Mapping):
        return _from_mapping(source, options)
    if isinstance(source, _Inputs) or (isinstance(source, (list, tuple)) and _are_paths(source)):
        return _from_paths([os.fspath(path) for path in source], options)
    if isinstance(source, (bytes, bytearray)) or not isinstance(source, Iterable):
        raise CorpusError(
            f"a corpus cannot be made of {type(source).__name__}; give a path, a corpus name, a Dataset, or texts"
        )
    if isinstance(source, Documents):
        return _Part(source.corpus, {None: [from_texts(source)]}, {None: source.size_bytes}, at_hand=True)
    return _Part("texts", {None: [from_texts(source)]}, {None: None}, at_hand=True)


def _from_corpus(corpus: Corpus) -> _Part:
    if not corpus.has_own_splits:
        return _Part(corpus.name, {None: [from_texts(corpus.documents)]}, {None: corpus.size_bytes})
    return _Part(
        corpus.name,
        {split: [from_texts(documents)] for split, documents in corpus.splits.items()},
        {split: documents.size_bytes for split, documents in corpus.splits.items()},
    )


def _from_mapping(source: Mapping[str, Any], options: _Options) -> _Part:
    readers: dict[str | None, list[Reader]] = {}
    sizes: dict[str | None, int | None] = {}
    for key, value in source.items():
        split = canonical_split(str(key))
        if split is None or split in readers:
            why = "given twice" if split else "no split"
            raise CorpusError(f"{key!r} is {why}; the splits are {', '.join(SPLITS)}")
        part = _open(value, options)
        readers[split] = [reader for group in part.readers.values() for reader in group]
        sizes[split] = _total(part.sizes.values())
    if "train" not in readers:
        raise CorpusError(f"a mapping needs the split 'train'; this one has {', '.join(map(str, source)) or 'nothing'}")
    return _Part("texts", readers, sizes)


def _are_paths(source: Sequence[Any]) -> bool:
    """Whether a list holds paths rather than texts; see `open_corpus`.

    Raises:
        CorpusError: texts that are all but certainly meant as paths of files, which do not exist.
    """
    if any(isinstance(element, os.PathLike) for element in source):
        return True
    if not source or not all(isinstance(element, str) for element in source):
        return False
    if all(_is_path_like(element) and (os.path.exists(element) or _matches(element)) for element in source):
        return True
    if all(re.fullmatch(r"\S+\.(txt|text|md|raw|tokens|jsonl|json|parquet|arrow|csv|gz|zst)", e) for e in source):
        missing = next(element for element in source if not os.path.exists(element))
        raise CorpusError(
            f"{missing}: no such file. The list looks like paths; if these are the documents themselves, "
            "pass them as an iterator: iter([...])"
        )
    return False


def _is_path_like(text: str) -> bool:
    return 0 < len(text) < 4096 and "\n" not in text and "\0" not in text and bool(re.search(r"[./\\]", text))


def _matches(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []


# Names, files and folders


def _open_named(source: StrPath, options: _Options) -> _Part:
    text = os.fspath(source)
    path = Path(text)
    named = isinstance(source, str) and text in CORPUS_NAMES
    try:
        exists = path.exists()
    except (OSError, ValueError):  # too long, or with a NUL
        raise CorpusError(
            f"{text[:40]!r}… is no path; a str is a path or a corpus name. Pass texts in a list: [text]"
        ) from None
    if exists:
        if named:
            log.info("%s is read from the path of that name", text)
        return _from_folder(path, options) if path.is_dir() else _from_files([path], path.stem, options)
    if matches := _matches(text):
        return _from_paths(matches, options)
    if not named:
        if text.startswith("hf:"):
            raise CorpusError(
                f"{text}: data sets are not loaded by that name yet; load it with the datasets library and pass the "
                "Dataset, or give its name if it is one of: " + ", ".join(CORPUS_NAMES)
            )
        what = "no file matches it" if glob.has_magic(text) else "no such file or folder"
        raise CorpusError(f"{text}: {what}, and no corpus has that name (there are {', '.join(CORPUS_NAMES)})")
    if text == "pydocs":
        return _pydocs()
    readers = hub.load(text, options.text_column)
    return _Part(text, {split: [reader] for split, reader in readers.items()}, dict.fromkeys(readers))


def _pydocs() -> _Part:
    # Its division is part of what the corpus is, so it takes neither the caller's salt nor the caller's fractions.
    everything = pydocs.documents()
    assign = HashSplit()
    texts: dict[str, list[str]] = {split: [] for split in assign.splits}
    for document in everything:
        texts[assign(document)].append(document)
    return _Part(
        "pydocs",
        {split: [from_texts(documents)] for split, documents in texts.items()},
        {split: sum(len(text.encode("utf-8")) for text in documents) for split, documents in texts.items()},
    )


def _from_paths(paths: Sequence[str], options: _Options) -> _Part:
    files = [Path(path) for path in paths]
    if len(files) == 1:
        return _open_named(files[0], options)
    if all(path.is_file() for path in files):
        folders = {path.resolve().parent for path in files}
        return _from_files(files, folders.pop().name if len(folders) == 1 else "texts", options)
    parts = [_open_named(path, options) for path in paths]
    name = "+".join(dict.fromkeys(part.name for part in parts))
    if len({None in part.readers for part in parts}) > 1:
        divided = next(part.name for part in parts if None not in part.readers)
        raise CorpusError(
            f"{divided} has splits of its own and others of the list have none; open them one by one, or pass "
            "{'train': [...], 'validation': [...]}"
        )
    splits = dict.fromkeys(split for part in parts for split in part.readers)
    return _Part(
        name,
        {split: [reader for part in parts for reader in part.readers.get(split, [])] for split in splits},
        {split: _total(part.sizes[split] for part in parts if split in part.sizes) for split in splits},
    )


def _from_folder(folder: Path, options: _Options) -> _Part:
    if manifest := processed.read_manifest(folder):
        files = manifest.files(folder)
        return _Part(
            manifest.corpus,
            {split: [processed.reader(path)] for split, path in files.items()},
            {split: path.stat().st_size for split, path in files.items()},
        )
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    files_by_split = {path: split for path in found if path.parent == folder and (split := _split_of(path))}
    if "train" in files_by_split.values():
        if others := [path.name for path in found if path not in files_by_split]:
            log.info("%s has splits of its own; left out: %s", folder, ", ".join(others[:10]))
        return _from_files(list(files_by_split), folder.resolve().name, options)
    texts = [path for path in found if path.suffix.lower() == ".txt"]
    if not texts:
        kinds = sorted({path.suffix or path.name for path in found})
        has = f"it has {', '.join(kinds[:8])}" if kinds else "it is empty"
        raise CorpusError(f"{folder}: no .txt files, and no wiki.train.tokens or wiki.train.raw ({has})")
    if len(texts) < len(found):
        log.info("%s: %d files that are not .txt are left out", folder, len(found) - len(texts))
    return _from_files(texts, folder.resolve().name, options)


def _from_files(files: Sequence[Path], name: str, options: _Options) -> _Part:
    """Files as splits where every one is named like a different split and one is `train`, else as one stream."""
    for path in files:
        text_files.check_file(path)
    splits = [_split_of(path) for path in files]
    if len(files) > 1 and "train" in splits and None not in splits:
        by_split: dict[str, Path] = {}
        for path, split in zip(files, splits, strict=True):
            if split in by_split:
                raise CorpusError(
                    f"{by_split[split]} and {path} both look like the split {split}; pass "
                    f"{{'train': ..., '{split}': ...}} to say which is which"
                )
            by_split[str(split)] = path
        return _Part(
            name,
            {split: [_FileReader(path, options)] for split, path in by_split.items()},
            {split: path.stat().st_size for split, path in by_split.items()},
        )
    if len(files) > 1 and "train" in splits and ("validation" in splits or "test" in splits):
        log.warning("%s: files named like splits are read as one corpus, since others beside them are not", name)
    size = sum(path.stat().st_size for path in files)
    return _Part(name, {None: [_FileReader(path, options) for path in files]}, {None: size})


class _FileReader:
    """Reads one file."""

    def __init__(self, path: Path, options: _Options) -> None:
        self.path = path
        self._options = options

    def __call__(self, counts: ReadCounts) -> Iterator[str]:
        return text_files.read_file(self.path, counts, separator=self._options.separator, errors=self._options.errors)

    def is_whole(self) -> bool:
        return self._options.errors == "strict" and text_files.is_one_document(self.path, self._options.separator)


def _split_of(path: Path) -> str | None:
    """The split that a file's name means: `train.txt`, `wiki.valid.tokens`, `TinyStories-valid.txt`."""
    if path.suffix.lower() not in (".txt", ".tokens", ".raw"):
        return None
    return canonical_split(re.split(r"[-_.]", path.stem)[-1])


def _total(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return sum(size for size in known if size is not None) if None not in known else None
