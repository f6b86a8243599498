"""One adapter for each trainer, the merges they should learn, and one training run in a process of its own.

All train a byte-level vocabulary with GPT-2's pattern. They do not all take the same documents: some the whole file as
one text, gigabpe each of its lines, those that take an iterator the documents of `jobs.documents_of`. What is expected
of each is what `tokenizers` learns from those same documents. A trainer with ties of its own (equally frequent pairs in
another order) cannot give the same merges; it is held to give nearly the same tokens.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.jobs import documents_of
from benchmarks.peers import OURS
from benchmarks.texts import read

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEFINITION = "tokenizers"
Merges = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Prepared:
    """A training run that is ready to start.

    Attributes:
        train: does it; what it gives is read by `tokens` later.
        merges: the pairs in order, from what `train` gave; or `None` where it only tells tokens.
        tokens: what was learned, in order.
    """

    train: Callable[[], Any]
    tokens: Callable[[Any], list[bytes]]
    merges: Callable[[Any], Merges] | None = None


@dataclass(frozen=True)
class Trainer:
    """A contender.

    Attributes:
        name: in tables.
        package: as it is installed.
        documents: what it takes for documents: `whole`, `lines` or `paragraphs`.
        own_ties: whether it has another rule for equally frequent pairs than `tokenizers`.
        prepare: a function of the text's path, the vocabulary size and the number of threads.
        rounds: at most.
    """

    name: str
    package: str
    documents: str
    prepare: Callable[[str, int, int], Prepared]
    own_ties: bool = False
    rounds: int = 1000


def _tokens_of(merges: Callable[[Any], Merges]) -> Callable[[Any], list[bytes]]:
    return lambda result: [left + right for left, right in merges(result)]


def _from_merges(train: Callable[[], Any], merges: Callable[[Any], Merges]) -> Prepared:
    return Prepared(train, _tokens_of(merges), merges)


def _minigpt_tok(path: str, vocab_size: int, threads: int) -> Prepared:
    from minigpt_tok import train_tokenizer

    return _from_merges(lambda: train_tokenizer(path, vocab_size, threads=threads), lambda result: result.merges)


def _gigatoken(path: str, vocab_size: int, threads: int) -> Prepared:
    from gigatoken import TextFileSource, train_bpe

    return _from_merges(lambda: train_bpe(TextFileSource([path]), vocab_size, []), lambda result: result[1])


def _gigabpe(path: str, vocab_size: int, threads: int) -> Prepared:
    from gigabpe import train_bpe

    # It keeps only the bytes that occur, so it learns some merges more than the others.
    return _from_merges(
        lambda: train_bpe([path], vocab_size, pretokenizer="bytelevel", special_tokens=[], threads=threads),
        lambda result: _from_byte_level(result[1]),
    )


def _rustbpe(path: str, vocab_size: int, threads: int) -> Prepared:
    from rustbpe import Tokenizer

    documents = documents_of(read(path))

    def train() -> Any:
        tokenizer = Tokenizer()
        tokenizer.train_from_iterator(iter(documents), vocab_size, pattern=PATTERN)
        return tokenizer

    return Prepared(train, lambda result: [bytes(token) for token, _ in result.get_mergeable_ranks()[256:]])


def _minibperust(path: str, vocab_size: int, threads: int) -> Prepared:
    from MiniBpeRust import FastRegexTokenizer

    def train() -> Any:
        tokenizer = FastRegexTokenizer(PATTERN)
        tokenizer.train_files([path], vocab_size)
        return tokenizer

    return Prepared(train, lambda result: [result.vocab[id] for id in sorted(result.vocab) if id >= 256])


def _tokenizers(path: str, vocab_size: int, threads: int) -> Prepared:
    documents = documents_of(read(path))
    return _by_tokenizers(lambda: documents, vocab_size)


def _by_tokenizers(documents: Callable[[], Iterable[str]], vocab_size: int) -> Prepared:
    import json

    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    def train() -> Any:
        tokenizer = Tokenizer(BPE())
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        tokenizer.train_from_iterator(
            documents(),
            BpeTrainer(
                vocab_size=vocab_size,
                min_frequency=2,  # our default; its own, 0, differs only once every pair left occurs a single time
                initial_alphabet=ByteLevel.alphabet(),
                special_tokens=[],
                show_progress=False,
            ),
        )
        return tokenizer

    def merges(result: Any) -> Merges:
        return _from_byte_level(tuple(pair) for pair in json.loads(result.to_str())["model"]["merges"])

    return _from_merges(train, merges)


TRAINERS = {
    trainer.name: trainer
    for trainer in (
        Trainer(OURS, OURS, "whole", _minigpt_tok),
        Trainer("gigatoken", "gigatoken", "whole", _gigatoken),
        Trainer("gigabpe", "gigabpe", "lines", _gigabpe),
        Trainer("rustbpe", "rustbpe", "paragraphs", _rustbpe, own_ties=True),
        Trainer("minibperust", "MiniBpeRust", "whole", _minibperust, own_ties=True),
        Trainer(DEFINITION, "tokenizers", "paragraphs", _tokenizers, rounds=2),
    )
}


def expected_merges(path: str, vocab_size: int, documents: str) -> Merges:
    """What `tokenizers` learns from a file's `documents`.

    The whole as one text takes it very long, so it gets the whole in parts, cut where a line that is not empty ends: no
    piece of GPT-2's pattern reaches from a character that is no white space over a newline, so the pieces are the same.
    """

    def texts() -> Iterable[str]:
        text = read(path)
        if documents == "paragraphs":
            return documents_of(text)
        if documents == "lines":
            return re.findall(r"[^\n]*\n|[^\n]+\Z", text)
        return _parts_of_whole(text)

    prepared = _by_tokenizers(texts, vocab_size)
    assert prepared.merges is not None
    return prepared.merges(prepared.train())


def _parts_of_whole(text: str) -> Iterable[str]:
    end_of_line = re.compile(r"(?<=\S)\n")
    start = 0
    while found := end_of_line.search(text, start + 2000):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def hash_of(merges: Merges) -> str:
    """SHA-256 of merges in order: a line of two hexadecimal tokens for each."""
    return hashlib.sha256("".join(f"{left.hex()} {right.hex()}\n" for left, right in merges).encode()).hexdigest()


def run(task: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: train once, and tell seconds, memory and what was learned (its `do`)."""
    path, vocab_size = task["text"], task["vocab_size"]
    if task["do"] == "expect":
        merges = expected_merges(path, vocab_size, task["documents"])
        return {"status": "ok", "merges": len(merges), "sha256": hash_of(merges)}
    prepared = TRAINERS[task["contender"]].prepare(path, vocab_size, task["threads"])
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # so that the kernel's peak is of what follows
    before = _own_memory()
    started = time.monotonic()
    cpu, wall = time.process_time(), time.perf_counter()
    result = prepared.train()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    answer: dict[str, Any] = {"status": "ok", "first": [wall, cpu], "started": started, "ended": time.monotonic()}
    answer["before"], answer["after"] = before, _own_memory()
    if task["do"] == "verify":
        answer["tokens"] = [token.hex() for token in prepared.tokens(result)]
        if prepared.merges is not None:
            merges = prepared.merges(result)[: task["merges"]]
            answer |= {"merges": len(merges), "sha256": hash_of(merges)}
    return answer


def _own_memory() -> dict[str, int]:
    try:
        return memory_of("self")
    except OSError:
        return {}


def memory_of(process: int | str) -> dict[str, int]:
    """Bytes by the kernel's names: `RssAnon` (not backed by files), `RssFile`, `VmHWM` (the peak of all).

    Raises:
        OSError: the process has ended, or the system has no such table.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile", "VmHWM") if name in fields}


def _from_byte_level(pairs: Iterable[tuple[str, str]]) -> Merges:
    """Tokens in the characters that stand for bytes → bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    byte_of |= {chr(256 + number): byte for number, byte in enumerate(others)}
    return [(bytes(byte_of[c] for c in left), bytes(byte_of[c] for c in right)) for left, right in pairs]
