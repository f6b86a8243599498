"""`encode_corpus`: every split of a corpus to an id file, in bounded memory, on all cores, the same bytes however many.

The corpus is read here, in order, and cut between documents into batches; batches are encoded by an `engines.Engine`,
and their ids are written in the order of the batches, into the shards of `shards.Shards`. So neither the number of
workers nor who finishes first shows in the result, and a run that was killed goes on from its last finished shard.
Memory holds a few batches and the longest document.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np

from minigpt_tok.data.corpora import Source, open_corpus
from minigpt_tok.data.documents import Documents, Raw
from minigpt_tok.data.engines import Batch, Engine
from minigpt_tok.data.id_file import IdFile, IdFileMetadata, read_metadata
from minigpt_tok.data.processed import folder_name
from minigpt_tok.data.shards import Shards, discard_unfinished, unfinished_tokenizer
from minigpt_tok.data.splits import SPLITS
from minigpt_tok.data.text_files import END_OF_TEXT
from minigpt_tok.errors import CorpusError, DataError, FormatError, TokenizerError, TokenizerMismatchError
from minigpt_tok.files import StrPath
from minigpt_tok.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_WRITTEN_AT_ONCE = 2  # batches of ids that may wait to be written

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
    result: dict[str, Path] = {}
    done = 0
    with Engine(tokenizer, separator_id, workers, executor, corpus.size_bytes) as engine:
        for split, documents in corpus.splits.items():
            path = out / f"{split}.safetensors"
            metadata = IdFileMetadata(
                tokenizer_fingerprint=tokenizer.fingerprint,
                tokenizer_fingerprint_version=tokenizer.fingerprint_version,
                vocab_size=tokenizer.vocab_size,
                corpus=corpus.name,
                split=split,
                separator=_text_of(tokenizer, separator_id),
                separator_id=separator_id,
                command=command,
            )
            on_bytes = None if progress is None else _Reporter(progress, done, corpus.size_bytes, split)
            if (finished := _finished(path, metadata, documents)) is not None:
                discard_unfinished(path)
            else:
                finished = _encode_split(engine, path, metadata, documents, on_bytes)
            if finished is None:
                log.warning("%s has no documents, and no id file", documents.name)
                continue
            if on_bytes is not None:
                on_bytes(finished.n_bytes)
            done += finished.n_bytes
            result[split] = path
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


def _encode_split(
    engine: Engine,
    path: Path,
    metadata: IdFileMetadata,
    documents: Documents,
    on_bytes: Callable[[int], None] | None,
) -> IdFileMetadata | None:
    """Write one id file; `None`, and no file, where there are no documents."""
    with Shards(path, metadata) as shards:
        batches = _batches(documents, engine.batch_bytes, shards.shard_bytes)
        first = next(batches, None)
        if first is None:
            shards.drop_rest()
            return None
        todo = _without_finished(chain([first], batches), shards, on_bytes)
        # Hashing and writing ids need no Python, so they go on beside the reading of the next batches.
        with ThreadPoolExecutor(1, "minigpt-tok-write") as writer:
            writing: deque[Future[None]] = deque()
            for batch, (ids, lengths) in engine.encode(todo, documents.name):
                sizes = np.array([len(raw) for _, raw in batch.documents], dtype=np.int64)
                writing.append(writer.submit(shards.write, ids, lengths, sizes, _digests(batch)))
                while len(writing) > _WRITTEN_AT_ONCE:
                    writing.popleft().result()
                if on_bytes is not None:
                    on_bytes(shards.n_bytes)
            for written in writing:
                written.result()
        shards.finish()
        return shards.metadata


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
                "overwrite=True (--overwrite) to give it up"
            )
        if not path.exists():
            continue
        try:
            found = read_metadata(path).tokenizer_fingerprint
        except FormatError as error:
            raise DataError(
                f"{path} is in the way: {error}. Choose another folder, or pass overwrite=True (--overwrite) to replace it"
            ) from None
        if found != tokenizer.fingerprint:
            raise TokenizerMismatchError(
                f"{path} was encoded with the tokenizer {found}, and this one is {tokenizer.fingerprint}. Choose another "
                "folder for this tokenizer, or pass overwrite=True (--overwrite) to replace the other's ids"
            )


def _finished(path: Path, wanted: IdFileMetadata, documents: Documents) -> IdFileMetadata | None:
    """The metadata of a finished encoding of the same text, verified; `None` if there is none or it is damaged."""
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
    digest = hashlib.sha256()
    n_documents = 0
    for _, raw in documents.with_bytes():  # reading and hashing costs a small part of encoding
        digest.update(hashlib.sha256(raw).digest())
        n_documents += 1
    if (digest.hexdigest(), n_documents) != (have.text_sha256, have.n_documents):
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
    """Adds what earlier splits have done."""

    def __init__(self, progress: Progress, before: int, total: int | None, split: str) -> None:
        self._progress, self._before, self._total, self._split = progress, before, total, split

    def __call__(self, bytes_in_split: int) -> None:
        self._progress(self._split, self._before + bytes_in_split, self._total)


def _batches(documents: Documents, batch_bytes: int, shard_bytes: int) -> Iterator[Batch]:
    """Documents in batches; one ends wherever a shard does."""
    batch: list[Raw] = []
    number = size = in_shard = 0
    for document in documents.with_bytes():
        batch.append(document)
        size += len(document.raw)
        if size >= batch_bytes or in_shard + size >= shard_bytes:
            yield Batch(number, batch, size)
            in_shard += size
            if in_shard >= shard_bytes:
                in_shard = 0
            number += len(batch)
            batch, size = [], 0
    if batch:
        yield Batch(number, batch, size)


def _digests(batch: Batch) -> bytes:
    return b"".join([hashlib.sha256(raw).digest() for _, raw in batch.documents])


def _without_finished(
    batches: Iterator[Batch], shards: Shards, on_bytes: Callable[[int], None] | None
) -> Iterator[Batch]:
    """The batches of shards that are not finished. Those of a finished one are held until its text is seen to be its."""
    while shards.finished_left:
        held: list[Batch] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.n_bytes
            if size >= shards.shard_bytes:
                break
        if not held:
            break
        if not shards.keep(sum(len(b.documents) for b in held), size, b"".join(map(_digests, held))):
            yield from held
        elif on_bytes is not None:
            on_bytes(shards.n_bytes)
    shards.drop_rest()
    yield from batches
