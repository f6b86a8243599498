"""`encode_corpus`: every split of a corpus to an id file, in bounded memory, on all cores, the same bytes however many.

The corpus is read here, in order, once for all splits that are by hash, and cut between documents into batches (`lanes`);
batches are encoded by an `engines.Engine`, and their ids are written in the order of the batches, into the shards of
`shards.Shards`. So neither the number of
workers nor who finishes first shows in the result, and a run that was killed goes on from its last finished shard.
Memory holds a few batches and the longest document.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

from minigpt_tok.bpe.texts import Texts
from minigpt_tok.data import engines
from minigpt_tok.data.corpora import Source, open_corpus
from minigpt_tok.data.documents import Documents, TextHash
from minigpt_tok.data.engines import Engine
from minigpt_tok.data.id_file import IdFile, read_metadata
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.lanes import Lane, encode_lanes
from minigpt_tok.data.processed import folder_name
from minigpt_tok.data.shards import Shards, discard_unfinished, unfinished_tokenizer
from minigpt_tok.data.splits import SPLITS, HashSplit
from minigpt_tok.data.text_files import END_OF_TEXT
from minigpt_tok.errors import CorpusError, DataError, FormatError, TokenizerError, TokenizerMismatchError
from minigpt_tok.files import StrPath
from minigpt_tok.tokenizer import Tokenizer

log = logging.getLogger(__name__)

# Called after each batch with the split, the bytes of text done in all splits, and about how many there are if known.
Progress = Callable[[str, int, int | None], None]


def encode_corpus(
    corpus: Source,
    tokenizer: Tokenizer,
    out_dir: StrPath,
    *,
    separator: str | None = "auto",
    workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    command: str = "minigpt_tok.encode_corpus",
) -> dict[str, Path]:
    """Encode every split of a corpus to `out_dir/<split>.safetensors`.

    A split that `out_dir` has already, from the same text by the same tokenizer with the same separator, is verified
    and kept; of one that an earlier run began, so are the finished shards. Special tokens in the text are text.

    Args:
        corpus: a `Corpus`, or anything that `open_corpus` takes.
        tokenizer: one for all splits.
        out_dir: a folder for this corpus and this tokenizer, see `default_encoding_dir`.
        separator: what follows each document: `"auto"` the tokenizer's `<|endoftext|>` if it has one, else nothing
            (logged); a special token of the tokenizer; or `None` for nothing.
        workers: local processes, 1 for none beside this one. They start when some time of encoding here shows that
            there is enough to do. `None` for all cores: by threads of this process where the compiled encoder does the
            work (nothing has to be handed over then), else by as many processes. With an executor: how many it has.
        executor: encodes the batches instead: any of `concurrent.futures`' kind, on a cluster say.
        overwrite: replace what another tokenizer made in `out_dir`.
        progress: called after each batch with the split, the bytes of text done in all splits, and of about how many.
        command: what to name in the files as their maker.

    Returns:
        split → id file, for the splits that have documents.

    Raises:
        TokenizerMismatchError: `out_dir` has ids of another tokenizer, and `overwrite` is not set.
        CorpusError: the corpus has no documents, or cannot be read.
        TokenizerError: the separator is no special token, or the tokenizer cannot encode the text.
        DataError: `out_dir` has a file that is no id file; the disk is full; or workers could not run.
    """
    corpus = open_corpus(corpus)
    separator_id = find_separator(tokenizer, separator)
    if workers is not None and workers < 1:
        raise DataError(f"workers is {workers}; give at least 1, or None for all cores")
    out = Path(out_dir)
    _check_folder(out, tokenizer, overwrite)
    work = {
        split: _Work(
            out / f"{split}.safetensors",
            documents,
            IdFileMetadata(
                tokenizer_fingerprint=tokenizer.fingerprint,
                tokenizer_fingerprint_version=tokenizer.fingerprint_version,
                vocab_size=tokenizer.vocab_size,
                corpus=corpus.name,
                split=split,
                separator=_text_of(tokenizer, separator_id),
                separator_id=separator_id,
                command=command,
            ),
        )
        for split, documents in corpus.splits.items()
    }
    report = _Reporter(progress, corpus.size_bytes)
    done: dict[str, IdFileMetadata] = {}
    for split, one in work.items():
        if (finished := _finished(one)) is not None:
            discard_unfinished(one.path)
            done[split] = finished
            report(split, finished.n_bytes, ended=True)
    with Engine(tokenizer, separator_id, workers, executor, corpus.size_bytes) as engine:
        todo = {split: one for split, one in work.items() if split not in done}
        if corpus.assign is not None and len(todo) > 1:  # in one reading for all
            done |= _encode_splits(engine, todo, _assigned(corpus.documents, corpus.assign), report)
        else:
            for split, one in todo.items():
                stream = ((split, texts) for texts in one.documents.joined(engines.BATCH_BYTES))
                done |= _encode_splits(engine, {split: one}, stream, report)
    for split, one in work.items():
        if split not in done:
            log.warning("%s has no documents, and no id file", one.documents.name)
    result = {split: one.path for split, one in work.items() if split in done}
    if not result:
        raise CorpusError(f"{corpus.name}: there are no documents to encode")
    _clear_stale(out, result, tokenizer, corpus.name)
    return result


def default_encoding_dir(root: StrPath, corpus_name: str, tokenizer: Tokenizer, name: str | None = None) -> Path:
    """Where ids of a corpus belong: `root/encoded/<corpus>/char`, or `…/<tokenizer name>` for all but a character one.

    Args:
        root: for example `data`.
        corpus_name: as `Corpus.name`.
        tokenizer: a character tokenizer without merges is the character baseline, whatever its name.
        name: the tokenizer's, by default `bpe-<vocabulary size>-<beginning of the fingerprint>`.
    """
    is_baseline = tokenizer.unit == "character" and not tokenizer.merges
    default = f"bpe-{tokenizer.vocab_size}-{tokenizer.fingerprint[:8]}"
    return Path(root) / "encoded" / folder_name(corpus_name) / ("char" if is_baseline else folder_name(name or default))


class _Work(NamedTuple):
    """One split to encode."""

    path: Path
    documents: Documents
    metadata: IdFileMetadata


def _assigned(documents: Documents, assign: HashSplit) -> Iterator[tuple[str, Texts]]:
    for texts in documents.joined(engines.BATCH_BYTES):
        yield from assign.divided(texts)


def _encode_splits(
    engine: Engine, work: Mapping[str, _Work], documents: Iterable[tuple[str, Texts]], report: "_Reporter"
) -> dict[str, IdFileMetadata]:
    """Write id files from one stream of (split, documents) pairs; none for a split that has no documents."""
    result: dict[str, IdFileMetadata] = {}
    with contextlib.ExitStack() as folders:
        lanes = {
            split: Lane(split, one.documents.name, folders.enter_context(Shards(one.path, one.metadata)))
            for split, one in work.items()
        }
        for split, n_bytes in encode_lanes(engine, lanes, documents):
            report(split, n_bytes)
        for split, lane in lanes.items():
            if lane.shards.n_bytes:
                lane.shards.finish()
                result[split] = lane.shards.metadata
        report(next(iter(work)), sum(metadata.n_bytes for metadata in result.values()), ended=True)
    return result


# What was there before


def _check_folder(out: Path, tokenizer: Tokenizer, overwrite: bool) -> None:
    """Refuse to mix or overwrite, before anything is read."""
    if overwrite:
        return
    for split in SPLITS:
        path = out / f"{split}.safetensors"
        begun_with = unfinished_tokenizer(path)
        if begun_with is not None and begun_with != tokenizer.fingerprint:
            raise TokenizerMismatchError(
                f"{path} is being encoded, or was begun, with the tokenizer {begun_with}, and this one is "
                f"{tokenizer.fingerprint}. Finish that encoding, choose another folder for this tokenizer, or pass "
                "overwrite=True to give it up"
            )
        if not path.exists():
            continue
        try:
            found = read_metadata(path).tokenizer_fingerprint
        except FormatError as error:
            raise DataError(
                f"{path} is in the way: {error}. Choose another folder, or pass overwrite=True to replace it"
            ) from None
        if found != tokenizer.fingerprint:
            raise TokenizerMismatchError(
                f"{path} was encoded with the tokenizer {found}, and this one is {tokenizer.fingerprint}. Choose another "
                "folder for this tokenizer, or pass overwrite=True to replace the other's ids"
            )


def _finished(work: _Work) -> IdFileMetadata | None:
    """The metadata of a finished encoding of the same text, verified; `None` if there is none or it is damaged."""
    path, documents, wanted = work
    try:
        file = IdFile(path)
        have = file.metadata
        same = (
            "tokenizer_fingerprint",
            "tokenizer_fingerprint_version",
            "corpus",
            "split",
            "separator",
            "separator_id",
        )
        if any(getattr(have, key) != getattr(wanted, key) for key in same):
            return None
        file.verify()
    except FileNotFoundError:
        return None
    except FormatError as error:
        log.warning("%s; it is encoded again", error)
        return None
    text = TextHash()
    for texts in documents.joined():  # reading and hashing costs a small part of encoding
        text.update(texts)
    if text.hexdigest() != have.text_sha256:
        return None
    log.info("%s is whole and of the same text; it is kept", path)
    return have


def _clear_stale(out: Path, result: dict[str, Path], tokenizer: Tokenizer, corpus: str) -> None:
    """Splits that are there and were not encoded now: of another tokenizer they may not stay beside these."""
    for split in SPLITS:
        path = out / f"{split}.safetensors"
        if split in result or not path.exists():
            continue
        try:
            left = read_metadata(path)
        except FormatError:
            left = None
        if left is None or left.tokenizer_fingerprint != tokenizer.fingerprint:
            log.warning("%s was made with another tokenizer, and is removed", path)
            path.unlink()
        elif left.corpus != corpus:
            log.warning("%s is of another corpus, %s, and is left from an earlier encoding", path, left.corpus)


# Separators


def find_separator(tokenizer: Tokenizer, separator: str | None) -> int | None:
    """The id that follows each document, or `None`; `separator` as in `encode_corpus`."""
    specials = tokenizer.special_tokens
    if separator is None:
        return None
    if separator == "auto":
        if END_OF_TEXT in specials:
            log.info("each document is followed by %s (id %d)", END_OF_TEXT, specials[END_OF_TEXT])
        else:
            log.info("the tokenizer has no %s; documents follow one another without a separator", END_OF_TEXT)
        return specials.get(END_OF_TEXT)
    if separator not in specials:
        raise TokenizerError(
            f"the separator {separator!r} is no special token of this tokenizer ({', '.join(specials) or 'it has none'}); "
            "add it with tokenizer.with_special_tokens([...]), or pass separator=None"
        )
    return specials[separator]


def _text_of(tokenizer: Tokenizer, separator_id: int | None) -> str:
    return next((token for token, id in tokenizer.special_tokens.items() if id == separator_id), "")


class _Reporter:
    """Adds what has ended before."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress, self._total = progress, total
        self._before = 0

    def __call__(self, split: str, n_bytes: int, *, ended: bool = False) -> None:
        if self._progress is not None:
            self._progress(split, self._before + n_bytes, self._total)
        if ended:
            self._before += n_bytes
