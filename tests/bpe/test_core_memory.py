"""The core's memory: nothing is read behind a text, nothing leaks, and what one huge text needed is given back."""

import ctypes
import gc
import json
import mmap
import os
import random
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager

import pytest

from minigpt_tok.bpe.fast import FastEncoder, FastPieceCounter
from minigpt_tok.bpe.model import ALL_BYTES
from minigpt_tok.bpe.pretokenize import PATTERNS
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.reference import Stop
from minigpt_tok.errors import TokenizerError
from minigpt_tok.tokenizer import Tokenizer

PAGE = mmap.PAGESIZE
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about memory")
# AddressSanitizer keeps memory that was given back, to see who still uses it.
MEASURED = pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="memory is the sanitizer's")


SLOW_PATTERNS = [
    pytest.param(name, marks=pytest.mark.slow) for name in sorted(PATTERNS) if name not in ("gpt2", "o200k")
]


def resident():
    """Memory that this process has in use, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


# What lies behind a text


class Guarded:
    """Memory that ends where the process may read no more."""

    def __init__(self, most):
        self.pages = -(-most // PAGE)
        self.memory = mmap.mmap(-1, (self.pages + 1) * PAGE)
        self.end = self.pages * PAGE
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._protect(0)

    def _protect(self, how):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(self.address + self.end, PAGE, how) == 0

    def holding(self, data):
        self.memory[self.end - len(data) : self.end] = data
        return memoryview(self.memory)[self.end - len(data) : self.end]


@pytest.fixture(scope="module")
def guarded():
    return Guarded(80_000)


@LINUX
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", "none", *SLOW_PATTERNS])
def test_nothing_is_read_behind_a_text(core, models, hard, guarded, pattern):
    """A byte too far, and the process is gone. Ends of windows lie just before the end, at it, and behind it."""
    fast = FastEncoder(models.trained(pattern))
    rng = random.Random(pattern)
    window = 16 << 10
    ends = (
        "a",
        "a b",
        "ab's",
        "  ",
        "\n",
        "é",
        "日",
        "\U0001f600",
        "'",
        "1",
        " x",
        "e\u0301",
        "\0",
        "xxxxxxxxxxxxxxxxxxxxx",
    )
    texts = [end * repeat for end in ends for repeat in (1, 3)] + [hard.random(rng, length) for length in (2, 60, 200)]
    for behind in (0, 1, 2, 7, 8, 9, 15, 16, 17, 40, 63, 64, 65):
        for end in ends:
            text = ("word and " * (window // 9 + 9))[: window + behind - len(end.encode())] + end
            texts += [text, text + "z"] if behind in (1, 8, 16) else [text]
    for text in texts:
        data = text.encode()
        memory = guarded.holding(data)
        array = fast.encode_to_numpy(memory)
        assert b"".join(fast.model.tokens[id] for id in array.tolist()) == data
        counter = core.Counter(pattern, 1)
        assert counter.add_buffer(memory) is None
        assert counter.bytes == len(data)
        memory[-1:] = b"\xe6"  # and a character that does not end
        with pytest.raises(TokenizerError, match="not UTF-8"):
            fast.encode_to_numpy(memory)
        assert core.Counter(pattern, 1).add_buffer(memory) is not None


# What is given back


def settled(work, rounds):
    """How much memory has grown from a first few rounds of some work to the last, in bytes."""
    for _ in range(3):
        work()
    gc.collect()
    before = resident()
    for _ in range(rounds):
        work()
    gc.collect()
    return resident() - before


@MEASURED
@LINUX
def test_dropped_tokenizers_leave_nothing(best_core, models):
    """Tables of a million bytes and more: 60 that stay would show."""
    model = models.trained("gpt2")
    large = type(model)(
        tokens=(*model.tokens, *(f"token{number}".encode() for number in range(20_000))),
        merges=model.merges,
        merge_results=model.merge_results,
    )

    def work():
        tokenizer = Tokenizer(large)
        text = "the cat's sat on 1234 mats, naïve\n" * 200
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        tokenizer.encode(text[:20])
        tokenizer.encode_batch([text] * 3)
        tokenizer.encode_to_numpy(text)

    assert settled(work, 60) < 12 << 20


@LINUX
def test_a_dropped_tokenizer_is_gone_at_once(best_core, models):
    """Not only when garbage is collected: its tables are large, and the collector does not know."""
    model = models.trained("gpt2")
    gc.collect()
    gc.disable()
    try:
        alive = lambda: sum(type(one) is FastEncoder for one in gc.get_objects())  # noqa: E731
        before = alive()
        for _ in range(5):
            tokenizer = Tokenizer(model)
            tokenizer.encode("the cat")
            tokenizer.encode("the cat")
            tokenizer.encode_with_offsets("the cat")
        del tokenizer
        assert alive() == before
    finally:
        gc.enable()


@MEASURED
@LINUX
def test_calls_that_fail_leave_nothing(best_core, models):
    fast = FastEncoder(models.trained("gpt2"))
    tokenizer = Tokenizer(fast.model)
    good = "the cat's sat on 1234 mats, naïve\n" * 3000

    def work():
        for text in ("\ud800" + good, good + "\ud800"):
            for encode in (fast.encode, fast.encode_to_numpy, fast.count, tokenizer.encode):
                with pytest.raises(TokenizerError):
                    encode(text)
            with pytest.raises(TokenizerError):
                fast.encode_batch([good] * 12 + [text])
        with pytest.raises(TypeError):
            fast._core.encode(7)
        with pytest.raises(TokenizerError):
            tokenizer.encode(good, disallowed_special="some")
        with pytest.raises(TokenizerError):
            tokenizer.decode([1] * 10_000 + [-1])

    assert settled(work, 20) < 12 << 20


@MEASURED
@LINUX
def test_training_leaves_nothing(best_core):
    rng = random.Random(1)
    text = " ".join("".join(rng.choices("abcdefghij", k=rng.randint(1, 20))) for _ in range(60_000))

    def work():
        counter = FastPieceCounter(get_recipe("hf"), 2)
        counter.add([text] * 2)
        assert counter.learn(list(ALL_BYTES), Stop(300, 2), None).merges
        FastPieceCounter(get_recipe("hf"), 2).add([text])  # and one that is dropped before

    assert settled(work, 8) < 16 << 20


WITHIN_A_LIMIT = """
import json, os, sys, threading
from minigpt_tok import train_tokenizer

def now():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024

def files():
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink("/proc/self/fd/" + descriptor))
        except OSError:
            pass
    return {name for name in found if "minigpt_tok-" in name}

def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, now())
        spilled.update(files())

path, limit = sys.argv[1], int(sys.argv[2]) or None
train_tokenizer(["low lower lowest"], 260)
before = peak = now()
spilled, done = set(), threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
tokenizer = train_tokenizer(path, 3000, threads=1, memory_limit=limit)
done.set()
watcher.join()
print(json.dumps([tokenizer.fingerprint, tokenizer.training.distinct_pieces, peak - before, len(spilled)]))
"""


@MEASURED
@LINUX
def test_training_keeps_to_its_limit(best_core, tmp_path):
    """More than 800,000 distinct words: counts go to files, and learning has room within the limit."""
    rng = random.Random(3)
    letters = str.maketrans("0123456789", "aeiouslrtn")
    words = [f"{number}".translate(letters) + rng.choice(("ing", "ed", "ness")) for number in range(0, 10_000_000, 12)]
    rng.shuffle(words)
    (tmp_path / "words.txt").write_text(" ".join([*words, *words[:99_999]]))

    def trained(limit):
        command = [sys.executable, "-c", WITHIN_A_LIMIT, str(tmp_path / "words.txt"), str(limit)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    limit = 100_000_000
    freely, limited = trained(0), trained(limit)
    assert limited[:2] == freely[:2]
    assert freely[2] > limit > limited[2], (freely, limited)
    assert freely[3] == 0 < limited[3]


HUGE_PIECES = """
import ctypes, gc, mmap, sys
from minigpt_tok.bpe.fast import FastEncoder
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model

def resident():
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)(0)  # what is free, but kept by the allocator, is not ours
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE

fast = FastEncoder(train_model(["aaaa aa low lower lowest"] * 3, 270, get_recipe("hf", pattern=sys.argv[1]))[0])
fast.encode_to_numpy("a" * 100_000)
before = resident()
for text in ("a" * 2_500_000, "日" * 1_000_000):
    assert len(fast.encode_to_numpy(text))
    assert fast.count(text)
del text
print(resident() - before)
"""


@MEASURED
@LINUX
@pytest.mark.parametrize("pattern", ["gpt2", "none"])
def test_what_a_huge_piece_needed_is_given_back(best_core, pattern):
    """In a process of its own: what other tests leave behind decides where the allocator can give memory back."""
    run = subprocess.run([sys.executable, "-c", HUGE_PIECES, pattern], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 10 << 20


@MEASURED
@LINUX
@pytest.mark.slow
def test_the_cache_is_bounded(best_core, models):
    """As cache.hpp has it: some 80 MiB, whatever the text; and what the allocator keeps."""
    fast = FastEncoder(models.trained("gpt2"))
    rng = random.Random(1)
    gc.collect()
    before = resident()
    for length in (4, 6, 7, 10, 13, 15, 17, 30, 100):
        for _ in range(6):
            letters = rng.choices("abcdefghijklmnopqrstuvwxyzABCDEF日é", k=500_000 * min(length, 16))
            fast.encode_to_numpy(" ".join("".join(letters[n : n + length]) for n in range(0, len(letters), length)))
    del letters
    gc.collect()
    assert resident() - before < 140 << 20


@MEASURED
def test_python_objects_keep_their_counts(core, models):
    """Ints, lists, arrays and texts: traced, and by their reference counts."""
    fast = FastEncoder(models.trained("gpt2"))
    text = "the cat's sat on 1234 mats, naïve\n" * 300
    texts = [text, "".join(reversed(text)), "", text[:7]]
    ids = fast.encode(text)
    decoder = core.Decoder(list(fast.model.tokens))

    def work():
        fast.encode(text)
        fast.encode(text[:5])
        fast.encode_batch(texts)
        fast.encode_batch_to_numpy(texts)
        fast.encode_to_numpy(text)
        fast.count(text)
        decoder.decode(ids, "replace")
        decoder.decode_bytes(fast.encode_to_numpy(text))
        core.first_invalid_utf8(text.encode())
        core.pieces(text, "gpt2")

    watched = [text, texts[1], texts[3], texts, ids, *(id for id in set(ids) if id > 256), fast._core, decoder]
    work()
    counts = [sys.getrefcount(one) for one in watched]
    gc.collect()
    tracemalloc.start()
    try:
        work()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            work()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()
    assert [sys.getrefcount(one) for one in watched] == counts


# More than 32 bits count


@contextmanager
def mapped_file(path, fill):
    """A large file in memory, gone afterwards: pytest would keep it."""
    try:
        with open(path, "wb") as file:
            fill(file)
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as memory,
        ):
            yield memory
    finally:
        path.unlink()


@LINUX
@pytest.mark.slow
def test_a_piece_past_4_gib_is_refused(best_core, models, tmp_path):
    """A file with a hole of so many zeros; places in a piece have 32 bits."""
    fast = FastEncoder(models.trained("none"))
    with mapped_file(tmp_path / "zeros", lambda file: file.truncate((4 << 30) + 1)) as memory:
        with pytest.raises(TokenizerError, match="longer than 4 GiB"):
            fast.encode_to_numpy(memory)
        with pytest.raises(OverflowError, match="longer than 4 GiB"):
            best_core.Counter("none", 1).add_buffer(memory)


@LINUX
@pytest.mark.slow
def test_a_text_past_4_gib(best_core, models, tmp_path):
    """Offsets in it need more than 32 bits, though no piece of it does."""
    unit = f" {'a' * 50} {'bc' * 30}, {'d' * 45} naïve\n"
    pieces = best_core.pieces(unit * 2, "gpt2")
    fast = FastEncoder(models.of_whole_pieces(pieces, "gpt2"))
    expected = fast.encode(unit * 2)
    assert len(expected) == len(pieces)
    block = unit.encode() * (1 << 16)
    times = (4 << 30) // len(block) + 2

    def fill(file):
        for _ in range(times):
            file.write(block)

    with mapped_file(tmp_path / "text", fill) as memory:
        counter = best_core.Counter("gpt2", 2)
        assert counter.add_buffer(memory) is None
        assert counter.bytes == len(memory) > 4 << 30
        assert counter.pieces == len(set(pieces))
        ids = fast.encode_to_numpy(memory)
    assert len(ids) == len(expected) // 2 * (times << 16)
    assert ids[-len(expected) :].tolist() == expected
