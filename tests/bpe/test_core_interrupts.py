"""Ctrl-C is obeyed within 100 ms in whatever the core does long, and nothing is lost or broken by it.

The calls below take seconds where they are left alone. A signal comes in the midst of them, after so much processor time
(not wall time: other processes must not decide), and a second of processor time is allowed until Python hears of it:
ten times the promise, and far less than the call would go on.
"""

import gc
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from minigpt_tok.bpe.fast import FastEncoder, FastPieceCounter
from minigpt_tok.bpe.model import ALL_BYTES
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.reference import Stop
from minigpt_tok.bpe.trainer import train_model

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers of processor time here")

ALLOWED = 1.0  # seconds of processor time
MIDWAY = 0.1
OTHERS = [pytest.param(after, marks=pytest.mark.slow) for after in (0.02, 0.5, 0.8, 1.2)]


class Interrupted(BaseException):
    """As KeyboardInterrupt, which would end the tests where it is not caught."""


def interrupt(work, after):
    """Interrupts some work after so many seconds of processor time; gives how many more it went on."""
    began = time.process_time()

    def handler(number, frame):
        raise Interrupted

    old = signal.signal(signal.SIGPROF, handler)
    try:
        gc.disable()  # what is raised within its callbacks, of which hypothesis has one, is lost
        signal.setitimer(signal.ITIMER_PROF, after)
        while True:
            work()
    except Interrupted:
        return time.process_time() - began - after
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
        signal.signal(signal.SIGPROF, old)


@pytest.fixture(scope="module")
def letters():
    return "".join(random.Random(1).choices("abcdefgh", k=4_000_000))


@pytest.fixture(scope="module")
def words(letters):
    """Distinct words: hardly any is in the cache."""
    return " ".join(letters[start : start + 13] for start in range(0, len(letters), 13))


ENCODING = {
    "a long run": ("gpt2", lambda fast, letters, words: fast.encode_to_numpy("a" * 5_000_000)),
    "a long run to a list": ("gpt2", lambda fast, letters, words: fast.encode("a" * 5_000_000)),
    "a long piece counted": ("gpt2", lambda fast, letters, words: fast.count(letters)),
    "a long piece in memory": ("gpt2", lambda fast, letters, words: fast.encode_to_numpy(memoryview(letters.encode()))),
    "a long piece of many parts": ("none", lambda fast, letters, words: fast.encode_to_numpy(words * 2)),
    "a text of new words": ("gpt2", lambda fast, letters, words: fast.encode_to_numpy(words * 2)),
    "a text beyond Latin-1": ("gpt2", lambda fast, letters, words: fast.encode_to_numpy(words.replace("a", "日") * 2)),
    "a batch of one long text": ("gpt2", lambda fast, letters, words: fast.encode_batch([letters])),
    "a batch of short texts": ("gpt2", lambda fast, letters, words: fast.encode_batch(words.split(" ") * 4)),
    "a batch of short texts, flat": (
        "gpt2",
        lambda fast, letters, words: fast.encode_batch_to_numpy(words.split(" ") * 4),
    ),
    "a batch whose last text is long": (
        "gpt2",
        lambda fast, letters, words: fast.encode_batch(["ab"] * 9000 + [letters]),
    ),
    "a batch whose first text is long": (
        "gpt2",
        lambda fast, letters, words: fast.encode_batch([letters] + ["ab"] * 9000),
    ),
}


@pytest.mark.parametrize("after", [MIDWAY, *OTHERS[:1]])
@pytest.mark.parametrize("name", ENCODING)
def test_encoding(best_core, models, letters, words, name, after):
    pattern, work = ENCODING[name]
    fast = FastEncoder(models.trained(pattern))
    expected = models.reference(fast.model).encode(letters[:300] + words[:3000])
    assert interrupt(lambda: work(fast, letters, words), after) < ALLOWED
    assert fast.encode(letters[:300] + words[:3000]) == expected


def trained(recipe, texts, merges=100_000, memory_limit=0, **switches):
    counter = FastPieceCounter(get_recipe(recipe, min_frequency=1, **switches), 2, memory_limit)
    counter.add(texts)
    return counter.learn(list(ALL_BYTES), Stop(merges, 1), None)


TRAINING = {
    "many new words": lambda letters, words: trained("hf", [words, words[5:]]),
    "counts that go to files": lambda letters, words: trained("hf", [words] * 6, memory_limit=40_000_000),
    "words, ties by bytes": lambda letters, words: trained("cs336", [words]),
    "words, ties by place": lambda letters, words: trained("readable", [words]),
    "one piece": lambda letters, words: trained("hf", [letters], pattern="none"),
    "one run": lambda letters, words: trained("hf", ["a" * 9_000_000], pattern="none"),
    "what is left": lambda letters, words: trained("hf", [letters[:3_000_000]], pattern="none", max_token_length=2),
    "many documents": lambda letters, words: trained("hf", words.split(" ") * 4, merges=0),
    "characters": lambda letters, words: train_model([words], 3000, get_recipe("character")),
}


@pytest.mark.parametrize("after", [MIDWAY, *OTHERS])
@pytest.mark.parametrize("name", TRAINING)
def test_training(best_core, letters, words, name, after):
    assert interrupt(lambda: TRAINING[name](letters, words), after) < ALLOWED


def test_interrupted_work_leaves_nothing(best_core, models, letters, words):
    fast = FastEncoder(models.trained("gpt2"))

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def rounds(how_many):
        for number in range(how_many):
            interrupt(lambda: fast.encode_to_numpy(letters), 0.01 * (number % 5 + 1))
            interrupt(lambda: fast.encode_batch([words[:1_000_000]] * 4), 0.01 * (number % 5 + 1))
            interrupt(lambda: trained("hf", [words]), 0.02 * (number % 5 + 1))

    if not os.path.exists("/proc/self/statm") or "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("asks Linux about memory, which a sanitizer would keep")
    rounds(2)
    before = resident()
    rounds(5)
    assert resident() - before < 48 << 20


def test_a_handler_that_does_not_raise_changes_nothing(best_core, models, words):
    """And may encode itself, by the tokenizer that is just encoding."""
    fast = FastEncoder(models.trained("gpt2"))
    expected = fast.encode_to_numpy(words)
    small = fast.encode("the cat")
    heard = []

    def handler(number, frame):
        heard.append(fast.encode("the cat") == small and fast.count(words[:10_000]) > 0)

    old = signal.signal(signal.SIGPROF, handler)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
        for _ in range(2):
            assert (FastEncoder(fast.model).encode_to_numpy(words) == expected).all()
            assert (fast.encode_to_numpy(words) == expected).all()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
        signal.signal(signal.SIGPROF, old)
    assert heard
    assert all(heard)


PROGRAM = """
import os, signal, sys, threading, time
from minigpt_tok import train_tokenizer

tokenizer = train_tokenizer(["the cat sat on the mat"], 300)
tokenizer.encode("a")
text = "a" * 60_000_000
threading.Timer(0.3, lambda: print("now", flush=True)).start()
try:
    {work}
except KeyboardInterrupt:
    print(tokenizer.decode(tokenizer.encode("obeyed")))
"""


@pytest.mark.parametrize(
    "work", ["tokenizer.encode(text)", "tokenizer.encode_batch([text] * 2)", "train_tokenizer([text], 300)"]
)
def test_ctrl_c_itself(best_core, work):
    """SIGINT, as the terminal sends it. Left alone, these would take half a minute and gigabytes."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{work}", work)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout.readline() == "now\n"
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=120)
    assert (out, err, program.returncode) == ("obeyed\n", "", 0)
