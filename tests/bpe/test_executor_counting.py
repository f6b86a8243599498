"""Training whose pieces are counted by the workers of an executor: the same tokenizer, whoever counts."""

import os
import pickle
import random
import signal
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe import count_documents, executor_counting
from minigpt_tok.bpe.executor_counting import ExecutorPieceCounter, count_pieces
from minigpt_tok.bpe.fast import make_counter
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.errors import CorpusError, TokenizerError

RNG = random.Random(5)
WORDS = ["low", "lower", "newest", "widest", "naïve", "日本語", "<|endoftext|>", "1234", "\n\n", "a" * 40]
TEXTS = [" ".join(RNG.choices(WORDS, k=RNG.randint(0, 60))) for _ in range(400)]


class Backwards(Executor):
    """Does nothing until a result is asked for, and then what came last first."""

    def __init__(self):
        self.left = []
        self.most = 0

    def submit(self, call, /, *arguments, **options):
        future = Asked(self)
        self.left.append((future, pickle.dumps((call, arguments, options))))  # as to another machine
        self.most = max(self.most, len(self.left))
        return future


class Asked(Future):
    def __init__(self, executor):
        super().__init__()
        self._executor = executor

    def result(self, timeout=None):
        while self._executor.left:
            future, packed = self._executor.left.pop()
            call, arguments, options = pickle.loads(packed)
            future.set_result(pickle.loads(pickle.dumps(call(*arguments, **options))))
        return super().result(timeout)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(count_documents, "COUNTED_TOGETHER", 1000)
    monkeypatch.setattr(count_documents, "SHORT", 500)
    monkeypatch.setattr(ExecutorPieceCounter, "chunk_bytes", 2000)


def same(one, other):
    assert one.fingerprint == other.fingerprint
    for name in ("documents", "bytes", "distinct_pieces", "counts", "curve", "base_tokens", "stopped"):
        assert getattr(one.training, name) == getattr(other.training, name)


@pytest.mark.parametrize("recipe", ["hf", "cs336", "readable", "character"])
@pytest.mark.parametrize("switches", [{}, {"pattern": r"\w+|\W+"}, {"pattern": "cl100k", "memory_limit": 20_000}])
def test_the_same_whoever_counts(core_or_pure, recipe, switches):
    options = switches if recipe == "character" else {"special_tokens": ["<|endoftext|>"], **switches}
    expected = train_tokenizer(TEXTS, 330, recipe, **options)
    executor = Backwards()
    tokenizer = train_tokenizer(TEXTS, 330, recipe, executor=executor, workers=3, **options)
    same(tokenizer, expected)
    assert executor.most == 6  # chunks wait for the workers, not the corpus
    assert tokenizer.training.threads == 3


def test_a_file_in_chunks(core_or_pure, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    expected = train_tokenizer(path, 330)
    executor = Backwards()
    same(train_tokenizer(path, 330, executor=executor), expected)
    assert executor.most > 1


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", "none", r"\w+|\W+"])
def test_long_documents_in_memory_are_counted_in_chunks_too(core_or_pure, pattern):
    texts = ["", "日本 " * 50, "\n".join(TEXTS), "naïve " * 900, *TEXTS[:50]]
    expected = train_tokenizer(texts, 330, pattern=pattern)
    sizes = []

    class Sized(Backwards):
        def submit(self, call, /, recipe, texts):
            sizes.append(sum(map(len, texts)))
            return super().submit(call, recipe, texts)

    same(train_tokenizer(texts, 330, pattern=pattern, executor=Sized(), workers=2), expected)
    if pattern in ("gpt2", "o200k"):  # by others, no place in a text is certain to be a cut
        assert max(sizes) < 2 * ExecutorPieceCounter.chunk_bytes


def test_training_further(core_or_pure):
    parent = train_tokenizer(TEXTS[:50], 280)
    expected = train_tokenizer(TEXTS, 330, extend=parent)
    same(train_tokenizer(TEXTS, 330, extend=parent, executor=Backwards(), workers=1), expected)


def test_bytes_that_are_no_text_are_said_with_their_place(core_or_pure, tmp_path):
    path = tmp_path / "one.txt"
    raw = "\n".join(TEXTS).encode("utf-8")
    path.write_bytes(raw[:3000] + b"\xff" + raw[3000:])
    with pytest.raises(CorpusError) as here:
        train_tokenizer(path, 330)
    with pytest.raises(CorpusError) as there:
        train_tokenizer(path, 330, executor=Backwards())
    assert str(there.value) == str(here.value)


def test_processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        same(train_tokenizer(TEXTS, 330, executor=executor, workers=2), train_tokenizer(TEXTS, 330))


def test_a_pool_that_breaks_is_said():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        pid = executor.submit(os.getpid).result()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(CorpusError, match=r"the workers could not count the training text \(BrokenProcessPool"):
            train_tokenizer(TEXTS, 330, executor=executor, workers=1)


def test_a_chunk_that_comes_back_as_an_error_is_counted_again(monkeypatch):
    failed = []

    def fails_now_and_then(recipe, texts):
        if len(failed) < 3:
            failed.append(texts)
            raise ZeroDivisionError("by nothing")
        return count_pieces(recipe, texts)

    monkeypatch.setattr(executor_counting, "count_pieces", fails_now_and_then)
    with ThreadPoolExecutor(1) as executor:
        same(train_tokenizer(TEXTS, 330, executor=executor), train_tokenizer(TEXTS, 330))
    assert len(failed) == 3


def test_what_a_worker_raises_again_and_again_is_raised_here(monkeypatch):
    def fails(recipe, texts):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(executor_counting, "count_pieces", fails)
    with ThreadPoolExecutor(1) as executor, pytest.raises(CorpusError, match=r"ZeroDivisionError: by nothing"):
        train_tokenizer(TEXTS, 330, executor=executor)


class Never(Executor):
    """Is never done, and takes so many chunks."""

    def __init__(self, most):
        self.most = most
        self.given = []

    def submit(self, call, /, *arguments, **options):
        if len(self.given) == self.most:
            raise RuntimeError("cannot schedule new futures")
        self.given.append(Future())
        return self.given[-1]


def interrupted(stage, done, total):
    if stage == "chunks" and done == 3:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("most", "texts", "progress", "raised"),
    [
        (3, TEXTS, None, CorpusError),
        (9, TEXTS, interrupted, KeyboardInterrupt),
        (9, [*TEXTS[:40], 5], None, CorpusError),
    ],
)
def test_what_waits_is_cancelled_whatever_goes_wrong(most, texts, progress, raised):
    executor = Never(most)
    with pytest.raises(raised):
        train_tokenizer(texts, 330, executor=executor, workers=8, progress=progress)
    assert len(executor.given) >= 2
    assert all(future.cancelled() for future in executor.given)


def test_workers_must_be_some():
    with pytest.raises(TokenizerError, match="workers is 0; the least is 1"):
        train_tokenizer(TEXTS, 330, executor=Backwards(), workers=0)


def test_counts_that_cannot_be(core_or_pure):
    counter = make_counter(get_recipe("hf"), 1)
    counter.add_counted(["b", "a"], np.array([2, 1]))
    with pytest.raises(ValueError, match=r"count for each piece|longer than"):
        counter.add_counted(["a"], np.array([1, 2]))
    counter.add(["a c"])
    assert [column.tolist() if hasattr(column, "tolist") else column for column in counter.counted()] == [
        ["b", "a", " c"],
        [2, 2, 1],
    ]


def test_what_a_worker_gives():
    pieces, counts = count_pieces(get_recipe("hf"), [b"b a b", b"a"])
    assert (pieces, counts.tolist()) == (["b", " a", " b", "a"], [1, 1, 1, 1])
