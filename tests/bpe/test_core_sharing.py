"""One tokenizer used by many: copies and pickles, subclasses, threads, forks, and threads that outlive Python."""

import copy
import inspect
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from minigpt_tok.bpe.encoder import Encoder
from minigpt_tok.bpe.model import AddedToken
from minigpt_tok.errors import TokenizerError
from minigpt_tok.tokenizer import Tokenizer

TEXT = "the cat's sat on 1234 mats, naïve 日本\n" * 7
LONG = TEXT * 400
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.fixture
def tokenizer(core, models):
    """One that has encoded, so that its `encode` is the built-in function."""
    tokenizer = Tokenizer(models.trained("gpt2"))
    tokenizer.encode(TEXT)
    assert "encode" in vars(tokenizer)
    assert inspect.isbuiltin(tokenizer.encode)
    return tokenizer


@pytest.fixture
def expected(tokenizer, models):
    return models.reference(models.trained("gpt2")).encode(TEXT)


# The built-in function


def test_the_shortcut_is_the_method(tokenizer, expected):
    assert tokenizer.encode(TEXT) == expected
    assert tokenizer.encode(text=TEXT) == expected
    assert tokenizer.encode(TEXT, allowed_special="all", disallowed_special=()) == expected
    assert tokenizer.encode("") == []
    for arguments, keywords in (((), {}), ((TEXT, TEXT), {}), ((TEXT,), {"text": TEXT}), ((TEXT,), {"unknown": 1})):
        with pytest.raises(TypeError):
            tokenizer.encode(*arguments, **keywords)
    for bad in (None, 7, b"ab", ["ab"]):
        with pytest.raises(TokenizerError, match="not str"):
            tokenizer.encode(bad)
    with pytest.raises(TokenizerError, match="lone surrogate"):
        tokenizer.encode("ab\ud800")
    with pytest.raises(TokenizerError, match="disallowed_special is the string"):
        tokenizer.encode("ab", disallowed_special="some")


def test_the_shortcut_has_the_methods_signature(tokenizer):
    method, function = inspect.signature(Tokenizer.encode), inspect.signature(tokenizer.encode)
    assert [(p.name, p.kind, p.default) for p in method.parameters.values()][1:] == [
        (p.name, p.kind, p.default) for p in function.parameters.values()
    ]
    assert tokenizer.encode.__name__ == "encode"
    assert tokenizer.encode.__doc__


def test_there_is_no_shortcut_where_added_tokens_always_match(core, models):
    model = models.trained("gpt2")
    added = AddedToken(content="<a>", id=len(model.tokens), special=False)
    tokenizer = Tokenizer(type(model)(**{**vars_of(model), "tokens": (*model.tokens, None), "added_tokens": (added,)}))
    assert tokenizer.encode("x<a>") == tokenizer.encode("x<a>") == [ord("x"), added.id]
    assert "encode" not in vars(tokenizer)


def vars_of(model):
    return {name: getattr(model, name) for name in model.__dataclass_fields__}


def test_a_subclass_keeps_its_own_encode(core, models):
    class Marked(Tokenizer):
        def encode(self, text, **keywords):
            return [0, *super().encode(text, **keywords)]

    class Plain(Tokenizer):
        pass

    model = models.trained("gpt2")
    marked, plain = Marked(model), Plain(model)
    for _ in range(3):
        assert marked.encode("the cat") == [0, *plain.encode("the cat")]
    assert inspect.isbuiltin(plain.encode)
    assert copy.copy(marked).encode("the cat") == marked.encode("the cat")


# Copies and pickles


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_and_copies_begin_anew(tokenizer, expected, protocol):
    for same in (
        pickle.loads(pickle.dumps(tokenizer, protocol)),
        copy.copy(tokenizer),
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps({"a": [tokenizer]}, protocol))["a"][0],
    ):
        assert "encode" not in vars(same)
        assert "_encoder" not in vars(same)
        assert same == tokenizer
        assert same.encode(TEXT) == same.encode(TEXT) == expected
        assert same.encode is not tokenizer.encode


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_the_function_itself_can_be_pickled(tokenizer, expected, protocol):
    """As `pool.map(tokenizer.encode, texts)` does, before the first call and after it."""
    fresh = Tokenizer(tokenizer.model)
    for encode in (tokenizer.encode, fresh.encode, copy.copy(tokenizer.encode), copy.deepcopy(tokenizer).encode):
        again = pickle.loads(pickle.dumps(encode, protocol))
        assert again(TEXT) == expected
        assert again("ab", allowed_special="all") == tokenizer.encode("ab")
        assert pickle.loads(pickle.dumps(again, protocol))(TEXT) == expected


def test_a_dropped_tokenizers_function_still_works(tokenizer, expected):
    encode = Tokenizer(tokenizer.model)
    encode.encode("a")
    encode = encode.encode
    assert encode(TEXT) == expected
    assert encode(TEXT, allowed_special="all") == expected


# Threads


def many_ways(tokenizer, text):
    """All results of one text."""
    return (
        tokenizer.encode(text),
        tokenizer.encode_to_numpy(text).tolist(),
        tokenizer.count(text),
        tokenizer.encode_batch([text, "", text[:9]]),
        tokenizer.decode(tokenizer.encode(text)),
    )


def test_threads_share_a_tokenizer(best_core, models, hard):
    """None of them has encoded before: the encoder, its workers and its ints are made in the middle of it."""
    rng = random.Random(1)
    texts = [hard.random(rng, rng.choice((5, 60, 3000, 30_000))) for _ in range(24)]
    alone = Tokenizer(models.trained("gpt2"))
    expected = [many_ways(alone, text) for text in texts]
    for _ in range(3):
        tokenizer = Tokenizer(models.trained("gpt2"))
        barrier = threading.Barrier(4)

        def work(start, tokenizer=tokenizer, barrier=barrier):
            barrier.wait()
            return [many_ways(tokenizer, text) for text in texts[start:] + texts[:start]]

        with ThreadPoolExecutor(4) as pool:
            starts = (0, 5, 11, 17)
            for start, found in zip(starts, pool.map(work, starts), strict=True):
                assert found == expected[start:] + expected[:start]


def test_encoding_while_a_batch_runs(best_core, models):
    tokenizer = Tokenizer(models.trained("gpt2"))
    texts = [LONG[: 50_000 + n] for n in range(60)]
    expected = [len(tokenizer.encode_to_numpy(text)) for text in texts]
    short = tokenizer.encode(TEXT)
    running = threading.Event()
    results = []

    def batches():
        for _ in range(6):
            running.set()
            _, offsets = tokenizer.encode_batch_to_numpy(texts)
            results.append(np.diff(offsets).tolist())

    thread = threading.Thread(target=batches)
    thread.start()
    running.wait()
    calls = 0
    while thread.is_alive() or calls < 10:
        assert tokenizer.encode(TEXT) == short
        assert tokenizer.count(LONG) == len(short) * 400
        calls += 1
    thread.join()
    assert results == [expected] * 6


def test_a_list_that_other_threads_change_meanwhile(best_core, models):
    tokenizer = Tokenizer(models.trained("gpt2"))
    texts = [LONG] * 40
    expected = tokenizer.count(LONG)
    done = threading.Event()

    def change():
        while not done.is_set():
            texts[:] = [LONG[1:]] * 3
            texts[:] = [LONG] * 40

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(20):
            _, offsets = tokenizer.encode_batch_to_numpy(texts)
            assert set(np.diff(offsets).tolist()) <= {expected, tokenizer.count(LONG[1:])}
    finally:
        done.set()
        thread.join()


# Processes


def in_a_child(work):
    """What `work` gives in a fork of this process; a child that hangs is killed, and a crash fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(work(), pipe)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    alarm = threading.Timer(60, os.kill, (child, 9))
    alarm.start()
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    alarm.cancel()
    assert status == 0
    return pickle.loads(data)


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_before_and_after_the_first_call(core, models):
    expected = many_ways(Tokenizer(models.trained("gpt2")), LONG)
    tokenizer = Tokenizer(models.trained("gpt2"))
    assert in_a_child(lambda: many_ways(tokenizer, LONG)) == expected
    assert many_ways(tokenizer, LONG) == expected
    assert in_a_child(lambda: many_ways(tokenizer, LONG)) == expected
    assert in_a_child(lambda: in_a_child(lambda: many_ways(tokenizer, LONG))) == expected
    assert many_ways(tokenizer, LONG) == expected


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_while_other_threads_encode(best_core, models):
    """A lock that another thread holds just then would be held in the child for good."""
    tokenizer = Tokenizer(models.trained("gpt2"))
    texts = [LONG] * 30
    expected = many_ways(tokenizer, TEXT)
    done = threading.Event()

    def work(encode):
        while not done.is_set():
            encode()

    threads = [
        threading.Thread(target=work, args=(encode,))
        for encode in (
            lambda: tokenizer.encode_batch_to_numpy(texts),
            lambda: tokenizer.encode(TEXT),
            lambda: tokenizer.count(LONG),
        )
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_a_child(lambda: many_ways(tokenizer, TEXT)) == expected
    finally:
        done.set()
        for thread in threads:
            thread.join()


WORKERS = [
    pytest.param("fork", marks=[forks, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]),
    "spawn",
]


@pytest.mark.parametrize("method", WORKERS)
def test_worker_processes(best_core, models, method):
    tokenizer = Tokenizer(models.trained("gpt2"))
    texts = [TEXT, LONG, "", "a"] * 3
    expected = [tokenizer.encode(text) for text in texts]
    assert inspect.isbuiltin(tokenizer.encode)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == expected
        assert list(pool.map(tokenizer.encode_to_numpy, texts))[1].tolist() == expected[1]
        assert pool.submit(tokenizer.encode_batch, texts).result() == expected


# The end


PROGRAM = """
import sys, threading, time
from minigpt_tok import Tokenizer, train_tokenizer

text = "the cat's sat on 1234 mats, naïve\\n" * 20_000
tokenizer = train_tokenizer([text[:1000]], 300)
started = threading.Event()

def work():
    while True:
        {work}
        started.set()

threading.Thread(target=work, daemon=True).start()
started.wait()
time.sleep(0.05)
print("the end")
"""


@pytest.mark.parametrize(
    "work",
    [
        "tokenizer.encode_to_numpy(text)",
        "tokenizer.encode_batch_to_numpy([text] * 4)",
        "tokenizer.encode(text[:4000])",
        "train_tokenizer([text[:300_000]] * 8, 300, threads=2)",
        "train_tokenizer([text[:30_000]], 300, progress=lambda *_: time.sleep(0.001))",
    ],
)
def test_a_daemon_thread_that_outlives_python(best_core, work):
    """It is stopped where it next asks for the GIL: the process ends as any other."""
    program = [sys.executable, "-c", PROGRAM.replace("{work}", work)]
    finished = subprocess.run(program, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "the end\n", "")


def test_the_readable_encoder_takes_over_where_there_is_no_core(tokenizer, expected):
    """A pickled function may arrive on a machine that has none."""
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(sys.argv[1]))"
    finished = subprocess.run(
        [sys.executable, "-c", program, TEXT],
        input=pickle.dumps(tokenizer.encode),
        env={**os.environ, "MINIGPT_TOK_PURE": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
    )
    assert finished.stdout.decode().strip() == str(expected), finished.stderr.decode()
    assert Encoder(tokenizer.model).encode(TEXT) == expected
