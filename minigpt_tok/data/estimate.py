"""What an encoding will take: tokens, time, disk and memory, from a sample, before a long run is begun."""

import dataclasses
import shutil
import time
from pathlib import Path

from minigpt_tok.bpe.texts import Texts, grouped
from minigpt_tok.data.corpora import Source, open_corpus
from minigpt_tok.data.engines import encode_texts
from minigpt_tok.data.id_format import id_dtype
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import StrPath
from minigpt_tok.tokenizer import Tokenizer

SAMPLE_BYTES = 8 << 20
_INDEX_BYTES = 16  # for each document
_BATCHES_IN_MEMORY = 32 << 20  # bytes; and the longest document several times


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Of all splits together. What depends on the corpus's size is `None` where that cannot be known beforehand.

    Attributes:
        sample_bytes, sample_documents: what was encoded for it, from the beginning of the corpus.
        bytes_per_token, documents_per_megabyte, megabytes_per_second: of the sample; separators are not counted.
        n_bytes: of text, in all.
        tokens: in all, a separator for each document not included.
        seconds: with all cores, by the sample's pace (reading, hashing and writing included).
        disk_bytes: of the id files.
        most_disk_bytes: while they are completed, when their document indexes stand there twice.
        free_disk_bytes: where the id files will be; `None` without a folder.
        memory_bytes: about, beyond what the program itself takes.
    """

    sample_bytes: int
    sample_documents: int
    bytes_per_token: float
    documents_per_megabyte: float
    megabytes_per_second: float
    n_bytes: int | None
    tokens: int | None
    seconds: float | None
    disk_bytes: int | None
    most_disk_bytes: int | None
    free_disk_bytes: int | None
    memory_bytes: int

    @property
    def fits(self) -> bool:
        """Whether there is room for it on the disk, as far as can be told."""
        if self.most_disk_bytes is None or self.free_disk_bytes is None:
            return True
        return self.most_disk_bytes <= self.free_disk_bytes


def estimate_encoding(corpus: Source, tokenizer: Tokenizer, out_dir: StrPath | None = None) -> Estimate:
    """Encode the first `SAMPLE_BYTES` of a corpus and reckon what all of it will take.

    Raises:
        CorpusError: there are no documents, or they cannot be read.
        TokenizerError: the tokenizer cannot encode them.
    """
    opened = open_corpus(corpus)
    started = time.perf_counter()
    sample = next(grouped(opened.documents.in_utf8(), SAMPLE_BYTES), None)
    if sample is None:
        raise CorpusError(f"{opened.name}: there are no documents to encode")
    size = sample.n_bytes
    beginning = sample[0].decode("utf-8")[:1000].encode("utf-8")
    encode_texts(tokenizer, None, Texts.of([beginning]))  # makes its tables; not what takes long in a long run
    reading = time.perf_counter() - started
    started = time.perf_counter()
    ids, _ = encode_texts(tokenizer, None, sample)
    seconds_per_byte = (max(reading, 0) + time.perf_counter() - started) / size
    n_bytes = opened.size_bytes
    if size < SAMPLE_BYTES:  # that was all
        n_bytes = size
    free = None if out_dir is None else _free(Path(out_dir).absolute())
    per_byte = len(ids) / size
    itemsize = id_dtype(tokenizer.vocab_size).itemsize
    index = (n_bytes or 0) * len(sample) / size * _INDEX_BYTES
    disk = None if n_bytes is None else round(n_bytes * per_byte * itemsize + index)
    longest = int(sample.sizes.max())
    return Estimate(
        sample_bytes=size,
        sample_documents=len(sample),
        bytes_per_token=size / max(len(ids), 1),
        documents_per_megabyte=len(sample) / size * 1e6,
        megabytes_per_second=1e-6 / seconds_per_byte,
        n_bytes=n_bytes,
        tokens=None if n_bytes is None else round(n_bytes * per_byte),
        seconds=None if n_bytes is None else n_bytes * seconds_per_byte,
        disk_bytes=disk,
        most_disk_bytes=None if disk is None else round(disk + index),
        free_disk_bytes=free,
        memory_bytes=_BATCHES_IN_MEMORY + 10 * longest,
    )


def _free(folder: Path) -> int:
    """Bytes, where a folder is or will be."""
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
