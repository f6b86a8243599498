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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from minigpt_tok.data import hub, local_files, pydocs, text_files
from minigpt_tok.data.documents import Documents, JoinedReader, ReadCounts, Reader, from_texts, joined_reading
from minigpt_tok.data.mixture import MixedReader, Mixture
from minigpt_tok.data.parts import Options, Part, total
from minigpt_tok.data.splits import DEFAULT_FRACTIONS, DEFAULT_SALT, SPLITS, HashSplit, canonical_split
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import StrPath

log = logging.getLogger(__name__)

CORPUS_NAMES = ("pydocs", *hub.HUB_CORPORA)

# A path, a list of paths, a corpus name, a data set of the `datasets` library, texts, a mapping of splits to these.
Source: TypeAlias = "Corpus | Mixture | StrPath | Iterable[Any] | Mapping[str, Any]"

_WEIGHTED = re.compile(r"(.+):(\d+(?:\.\d*)?|\.\d+)", re.DOTALL)


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
    held_out: int | None = None,
) -> Corpus:
    """Open a corpus. Text is read when documents are asked for, one at a time.

    Args:
        source: one of
            a path (`str` or `Path`) of a UTF-8 text file, of a `.jsonl`, `.parquet` or `.arrow`, each also packed as
            `.gz` or `.zst`; of a folder of them; or a glob;
            a list of paths;
            a corpus name: `pydocs`, `wikitext-2`, `wikitext-103`, `tinystories` (an existing path goes before a name);
            a `Dataset`, `DatasetDict` or `IterableDataset` of the `datasets` library;
            an iterable of `str`, each a document (an iterator is kept in a temporary file, so that it can be re-read);
            `hf:NAME`, `hf:NAME/CONFIG`, each also with `:SPLIT`: a data set of the Hugging Face hub, streamed;
            a mapping of split names to any of these;
            a `Mixture` of any of these with weights;
            a `Corpus`, which is returned as it is.
        name: what to call it; by default the folder's, the file's or the data set's name.
        separator: between documents in text files, see `text_files`.
        text_column: of a data set or table; guessed, and logged, if not given.
        errors: what to do where a file is not UTF-8: `strict`, `replace` or `ignore`.
        max_documents: at most so many of each split, or of the whole where splits are by hash.
        max_bytes: as many whole documents as stay within so many bytes, likewise.
        salt: other salts give other divisions by hash.
        fractions: shares of the splits in a division by hash, by default `splits.DEFAULT_FRACTIONS` for files, and
            no division of texts at hand.
        held_out: every so many documents, one is validation and the others train, instead of a division by hash; for a
            corpus that has no validation split. Copies of a document may fall on both sides (`check_leakage`).

    Raises:
        CorpusError: nothing is there, it is not read, or an option makes no sense.

    In a list of `str`, are the elements paths or texts? They are paths if all of them exist and none is a bare word.
    A list of `pathlib.Path` is always paths, an iterator always texts.
    """
    if isinstance(source, Corpus):
        return source
    text_files.check_options(separator, errors)
    if held_out is not None and held_out < 2:
        raise CorpusError(f"held_out is {held_out}; give at least 2, or None to hold nothing out in this way")
    shares = DEFAULT_FRACTIONS if fractions is None else fractions
    assign = HashSplit(salt, shares)
    options = Options(separator, text_column, errors)
    if isinstance(source, Mixture):
        each = {**options._asdict(), "salt": salt, "fractions": fractions, "held_out": held_out}
        part = _from_mixture(source, each)
        held_out = None
    else:
        part = _open(source, options)
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

    if held_out is not None and fractions is None:
        return _with_held_out(part, corpus_name, held_out, documents)
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
                keep=_KeepByHash(assign, split) if len(assign.splits) > 1 else None,
            )
            for split in assign.splits
        }
        return Corpus(corpus_name, splits, everything, assign)
    own = {split: documents(split, part.readers[split], part.sizes[split]) for split in SPLITS if split in part.readers}
    everything = Documents(
        lambda counts: chain.from_iterable(split.in_utf8() for split in own.values()),
        corpus=corpus_name,
        split="all",
        size_bytes=total(split.size_bytes for split in own.values()),
    )
    return Corpus(corpus_name, own, everything)


def _with_held_out(part: Part, name: str, every: int, documents: Callable[..., Documents]) -> Corpus:
    """Every k-th document of all, or of the only split `train`, as validation."""
    if "validation" in part.readers:
        raise CorpusError(f"{name} has a validation split of its own; leave out held_out")
    undivided = None if None in part.readers else "train"
    size = part.sizes[undivided]
    held_out_size = None if size is None else size // every
    sizes = {"train": None if size is None else size - (held_out_size or 0), "validation": held_out_size}
    splits = {
        split: documents(split, part.readers[undivided], sizes[split], keep=_KeepByNumber(every, split == "validation"))
        for split in sizes
    }
    if "test" in part.readers:
        splits["test"] = documents("test", part.readers["test"], part.sizes["test"])
    return Corpus(
        name,
        splits,
        Documents(
            lambda counts: chain.from_iterable(split.in_utf8() for split in splits.values()),
            corpus=name,
            split="all",
            size_bytes=total(split.size_bytes for split in splits.values()),
        ),
    )


def _from_mixture(mixture: Mixture, options: dict[str, Any]) -> Part:
    parts = [(open_corpus(source, **options), weight) for source, weight in mixture.sources]
    name = "+".join(f"{corpus.name}-{weight:g}" for corpus, weight in parts)
    readers = {}
    for split in (split for split in SPLITS if any(split in corpus.splits for corpus, _ in parts)):
        of_split = [(corpus.splits[split], weight) for corpus, weight in parts if split in corpus.splits]
        if len(of_split) < len(parts):
            log.info("%s: %d of %d corpora have a split %s", name, len(of_split), len(parts), split)
        readers[split] = MixedReader(of_split)
    return Part(
        name,
        {split: [reader] for split, reader in readers.items()},
        {split: reader.size_bytes for split, reader in readers.items()},
    )


def open_inputs(inputs: Sequence[str], **options: Any) -> Corpus:
    """`open_corpus` for words of a command line: each is a path, a glob or a corpus name, none is a text.

    With a weight after each, as in `wikitext-2:0.7 stories/:0.3`, they are a `Mixture`.
    """
    if not all(word.strip() for word in inputs):
        raise CorpusError("an input is empty; give a path or the name of a corpus (is the shell's variable set?)")
    weighted = [None if os.path.exists(word) else _WEIGHTED.fullmatch(word) for word in inputs]
    if any(weighted):
        if not all(weighted):
            without = next(word for word, match in zip(inputs, weighted, strict=True) if match is None)
            raise CorpusError(f"{without} has no weight, and others have; give each one, as in {without}:0.5, or none")
        return open_corpus(Mixture([(match[1], float(match[2])) for match in weighted if match]), **options)
    return open_corpus(inputs[0] if len(inputs) == 1 else _Inputs(inputs), **options)


class _KeepByHash:
    """Whether a text belongs to a split by its hash."""

    def __init__(self, assign: HashSplit, split: str) -> None:
        self._assign, self._split = assign, split

    def __call__(self, number: int, raw: bytes) -> bool:
        return self._assign.of_bytes(raw) == self._split


class _KeepByNumber:
    """Whether a text belongs to a split where every k-th is held out."""

    def __init__(self, every: int, held_out: bool) -> None:
        self._every, self._held_out = every, held_out

    def __call__(self, number: int, raw: bytes) -> bool:
        return (number % self._every == self._every - 1) == self._held_out


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

    def __call__(self, counts: ReadCounts) -> Iterator[str | bytes]:
        return chain.from_iterable(reader(counts) for reader in self._readers)

    @property
    def joined(self) -> JoinedReader | None:
        """Where all can read many documents at a time, how to."""
        readings = [joined_reading(reader) for reader in self._readers]
        if None in readings:
            return None
        return lambda counts: chain.from_iterable(read(counts) for read in readings if read is not None)

    def whole_files(self) -> list[Path] | None:
        """The files read, if each is one document as it stands."""
        files = [reader for reader in self._readers if isinstance(reader, local_files.TextFileReader)]
        if len(files) < len(self._readers) or not all(file.is_whole() for file in files):
            return None
        return [file.path for file in files]


# What a source is


def _open(source: Source, options: Options) -> Part:
    if isinstance(source, Corpus):
        return _from_corpus(source)
    if isinstance(source, (str, os.PathLike)):
        return _open_named(source, options)
    if hub.is_dataset(source):
        name = hub.dataset_name(source)
        readers = hub.from_dataset(source, options.text_column, name)
        return Part(name, {split: [reader] for split, reader in readers.items()}, dict.fromkeys(readers), at_hand=True)
    if isinstance(source, Mapping):
        return _from_mapping(source, options)
    if isinstance(source, _Inputs) or (isinstance(source, (list, tuple)) and _are_paths(source)):
        return _from_paths([os.fspath(path) for path in source], options)
    if isinstance(source, (bytes, bytearray)) or not isinstance(source, Iterable):
        raise CorpusError(
            f"a corpus cannot be made of {type(source).__name__}; give a path, a corpus name, a Dataset, or texts"
        )
    if isinstance(source, Documents):
        return Part(source.corpus, {None: [from_texts(source)]}, {None: source.size_bytes}, at_hand=True)
    return Part("texts", {None: [from_texts(source)]}, {None: None}, at_hand=True)


def _from_corpus(corpus: Corpus) -> Part:
    if not corpus.has_own_splits:
        return Part(corpus.name, {None: [from_texts(corpus.documents)]}, {None: corpus.size_bytes})
    return Part(
        corpus.name,
        {split: [from_texts(documents)] for split, documents in corpus.splits.items()},
        {split: documents.size_bytes for split, documents in corpus.splits.items()},
    )


def _from_mapping(source: Mapping[str, Any], options: Options) -> Part:
    readers: dict[str | None, list[Reader]] = {}
    sizes: dict[str | None, int | None] = {}
    for key, value in source.items():
        split = canonical_split(str(key))
        if split is None or split in readers:
            why = "given twice" if split else "no split"
            raise CorpusError(f"{key!r} is {why}; the splits are {', '.join(SPLITS)}")
        part = _open(value, options)
        readers[split] = [reader for group in part.readers.values() for reader in group]
        sizes[split] = total(part.sizes.values())
    if "train" not in readers:
        raise CorpusError(f"a mapping needs the split 'train'; this one has {', '.join(map(str, source)) or 'nothing'}")
    return Part("texts", readers, sizes)


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


def _open_named(source: StrPath, options: Options) -> Part:
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
        return (
            local_files.from_folder(path, options)
            if path.is_dir()
            else local_files.from_files([path], path.stem, options)
        )
    if matches := _matches(text):
        return _from_paths(matches, options)
    if not named:
        if text.startswith(hub.PREFIX):
            name, streamed = hub.stream(text, options.text_column, options.errors)
            return Part(name, {split: [reader] for split, reader in streamed.items()}, dict.fromkeys(streamed))
        what = "no file matches it" if glob.has_magic(text) else "no such file or folder"
        raise CorpusError(
            f"{text}: {what}, and no corpus has that name (there are {', '.join(CORPUS_NAMES)}, and hf:NAME)"
        )
    if text == "pydocs":
        return _pydocs()
    readers = hub.load(text, options.text_column)
    return Part(text, {split: [reader] for split, reader in readers.items()}, dict.fromkeys(readers))


def _pydocs() -> Part:
    # Its division is part of what the corpus is, so it takes neither the caller's salt nor the caller's fractions.
    everything = pydocs.documents()
    assign = HashSplit()
    texts: dict[str, list[str]] = {split: [] for split in assign.splits}
    for document in everything:
        texts[assign(document)].append(document)
    return Part(
        "pydocs",
        {split: [from_texts(documents)] for split, documents in texts.items()},
        {split: sum(len(text.encode("utf-8")) for text in documents) for split, documents in texts.items()},
    )


def _from_paths(paths: Sequence[str], options: Options) -> Part:
    files = [Path(path) for path in paths]
    if len(files) == 1:
        return _open_named(files[0], options)
    if all(path.is_file() for path in files):
        folders = {path.resolve().parent for path in files}
        return local_files.from_files(files, folders.pop().name if len(folders) == 1 else "texts", options)
    parts = [_open_named(path, options) for path in paths]
    name = "+".join(dict.fromkeys(part.name for part in parts))
    if len({None in part.readers for part in parts}) > 1:
        divided = next(part.name for part in parts if None not in part.readers)
        raise CorpusError(
            f"{divided} has splits of its own and others of the list have none; open them one by one, or pass "
            "{'train': [...], 'validation': [...]}"
        )
    splits = dict.fromkeys(split for part in parts for split in part.readers)
    return Part(
        name,
        {split: [reader for part in parts for reader in part.readers.get(split, [])] for split in splits},
        {split: total(part.sizes[split] for part in parts if split in part.sizes) for split in splits},
    )
