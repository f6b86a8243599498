"""Broken and hostile files: each is one clear error, soon and in bounded memory, or a tokenizer; never anything else.

Seeded: `--slow` keeps trying for longer.
"""

import base64
import contextlib
import json
import os
import pickle
import random
import resource
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import pytest

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe.model import BYTE_TO_CHARACTER
from minigpt_tok.errors import FormatError, TokenizerError
from minigpt_tok.formats import cs336, loaded, plain_pickle
from minigpt_tok.tokenizer import Tokenizer

TEXTS = ["the cat sat on the mat. the cat ate the rat,", "it's 1234 o'clock\n\n", "café 日本 don't"] * 2
SECONDS = 2  # for small files; the machine that tests run on may be busy
LONGEST_MESSAGE = 850  # characters


def write_hf(tokenizer, folder):
    tokenizer.save(folder / "tokenizer.json")
    return folder / "tokenizer.json"


def write_plain_hf(tokenizer, folder):
    document = json.loads(tokenizer.to_json())
    del document["model"]["minigpt_tok"]
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False))
    return folder / "tokenizer.json"


def write_character(tokenizer, folder):
    train_tokenizer(TEXTS, 60, recipe="character").save(folder / "c.json")
    return folder / "c.json"


def write_vocab(tokenizer, folder):
    tokenizer.to_gpt2(folder)
    return folder / "vocab.json"


def write_merges(tokenizer, folder):
    tokenizer.to_gpt2(folder)
    return folder / "merges.txt"


def write_pickle(tokenizer, folder):
    cs336.save_model(folder / "vocab.pkl", folder / "merges.pkl", tokenizer.model)
    return folder / "vocab.pkl"


def write_merges_pickle(tokenizer, folder):
    return write_pickle(tokenizer, folder).with_name("merges.pkl")


def write_ranks(tokenizer, folder):
    tokenizer.to_tiktoken(folder / "a.tiktoken")
    return folder / "a.tiktoken"


def write_tekken(tokenizer, folder):
    raw = [token for token in tokenizer.model.tokens if token is not None]
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for rank, token in enumerate(raw)]
    size = len(raw) + 5
    config = {"pattern": r"\s+|\S+", "default_vocab_size": size, "default_num_special_tokens": 5, "version": "v3"}
    (folder / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocab}))
    return folder / "tekken.json"


FORMS = {
    "own": write_hf,
    "hf": write_plain_hf,
    "character": write_character,
    "vocab": write_vocab,
    "merges": write_merges,
    "pickle": write_pickle,
    "merges pickle": write_merges_pickle,
    "ranks": write_ranks,
    "tekken": write_tekken,
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 300, special_tokens=["<|endoftext|>"])


def outcome(path, **named):
    """A tokenizer, or `None` for one error of ours of one line; anything else is a failure. Within bounded time."""
    started = time.process_time()
    try:
        found = Tokenizer.load(path, **named)
        found.encode(
            "the cat sat\n\n 日本"[: 3 if found.unit == "character" else None]
        ) if found.unit == "byte" else None
    except (FormatError, TokenizerError) as error:
        message = str(error)
        assert str(path.parent) in message
        assert "\n" not in message.replace("\\n", "")
        assert len(message) < LONGEST_MESSAGE
        found = None
    assert time.process_time() - started < SECONDS
    return found


# Damage by bytes


def damaged(chance: random.Random, whole: bytes) -> bytes:
    """Cut, flipped, inserted, dropped, doubled or moved somewhere, once or a few times."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        place, length = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 10, 200))
        kind = chance.randrange(7)
        if kind == 0:
            del data[place:]
        elif kind == 1 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            data[place:place] = bytes(chance.choices(b'{}[]",:\\0123456789-eE \nnulltruefalse\x00\xff\x80', k=length))
        elif kind == 3:
            del data[place : place + length]
        elif kind == 4:
            data[place:place] = data[place : place + length]
        elif kind == 5 and place < len(data):
            data[place] = chance.randrange(256)
        else:
            other = chance.randrange(len(data) + 1)
            data[place:place] = data[other : other + length]
        if not data:
            return bytes(data)
    return bytes(data)


@pytest.mark.filterwarnings("ignore::minigpt_tok.bpe.pretokenize.UnicodeVersionWarning")
@pytest.mark.parametrize("rounds", [60, pytest.param(6_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_damaged_bytes(tokenizer, tmp_path, form, rounds):
    path = FORMS[form](tokenizer, tmp_path)
    whole = path.read_bytes()
    named = {"pattern": "gpt2"} if form == "ranks" else {}
    original = outcome(path, **named)
    assert original is not None
    chance = random.Random(f"{form} {rounds}")
    refused = 0
    for _ in range(rounds):
        path.write_bytes(damaged(chance, whole))
        found = outcome(path, **named)
        refused += found is None
        if form == "own" and found is not None and b"fingerprint" in path.read_bytes():
            assert found == original or b'"fingerprint"' not in path.read_bytes()
    assert refused > rounds / 4


@pytest.mark.parametrize("form", FORMS)
def test_cut_anywhere(tokenizer, tmp_path, form):
    path = FORMS[form](tokenizer, tmp_path)
    whole = path.read_bytes()
    chance = random.Random(form)
    for length in {0, 1, 2, len(whole) // 2, len(whole) - 2, *chance.sample(range(len(whole)), 40)}:
        path.write_bytes(whole[:length])
        found = outcome(path, **({"pattern": "gpt2"} if form == "ranks" else {}))
        if form not in ("ranks", "merges"):  # which have no end of their own
            assert found is None


# Damage by structure: values of other kinds and sizes, keys that are missing or doubled


STRANGE = [
    None, True, False, -1, 0, 1, 255, 256, 1 << 31, 1 << 53, 1 << 70, -(1 << 63), 1.5, 1e308, "", "x", "the", "Ġ", "\ud800",
    "日", "\x00", [], {}, [[]], [None], ["a", "b"], ["a", "b", "c"], {"a": {}}, {"id": 0}, [[[[[[]]]]]], "gpt2", "Sequence",
    "Split", "ByteLevel", [0] * 50, {"": 0}, "a" * 3000,
]  # fmt: skip


def places(document):
    """(container, key) of everything in parsed JSON, few of long lists and objects."""
    todo, found = [document], []
    while todo:
        container = todo.pop()
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        for key in keys[:6] + keys[6:][-2:]:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                todo.append(container[key])
    return found


@pytest.mark.filterwarnings("ignore::minigpt_tok.bpe.pretokenize.UnicodeVersionWarning")
@pytest.mark.parametrize("rounds", [80, pytest.param(8_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["own", "hf", "character", "vocab", "tekken"])
def test_damaged_structure(tokenizer, tmp_path, form, rounds):
    path = FORMS[form](tokenizer, tmp_path)
    text = path.read_text("utf-8")
    chance = random.Random(f"{form} {rounds}")
    refused = 0
    for _ in range(rounds):
        document = json.loads(text)
        for _ in range(chance.choice((1, 1, 2))):
            container, key = chance.choice(places(document))
            kind = chance.randrange(5)
            if isinstance(container, list):
                if kind == 0:
                    container.insert(key, deepcopy(container[key]))
                elif kind == 1:
                    del container[key]
                else:
                    container[key] = deepcopy(chance.choice(STRANGE))
            elif kind == 0:
                del container[key]
            elif kind == 1:
                container[chance.choice(["", "x", "the", "type", "日", "\ud800", "a" * 2000])] = container.pop(key)
            else:
                container[key] = deepcopy(chance.choice(STRANGE))
        path.write_text(json.dumps(document))
        refused += outcome(path) is None
    assert refused > rounds / 4


# Made to take time or memory


PLAIN = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "decoder": {"type": "ByteLevel"},
}
BYTES = {character: value for value, character in BYTE_TO_CHARACTER.items()}


def doubling():
    """Each token twice the one before: the last has 16 MB."""
    vocab = BYTES | {"a" * (1 << n): 255 + n for n in range(1, 25)}
    merges = [["a" * (1 << n)] * 2 for n in range(24)]
    model = {"type": "BPE", "vocab": vocab, "merges": merges, "minigpt_tok": {"fingerprint": "0" * 64}}
    return json.dumps(PLAIN | {"model": model}).encode()


def colliding():
    """Ids that fall on each other in Python's dict."""
    vocab = {f"a{n}": n * ((1 << 61) - 1) for n in range(100_000)}
    return json.dumps(PLAIN | {"model": {"type": "BPE", "vocab": vocab, "merges": []}}).encode()


def alternatives():
    expression = "|".join(f"a{n}" for n in range(300_000))
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    steps = [split, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]
    pre = {"type": "Sequence", "pretokenizers": steps}
    return json.dumps(PLAIN | {"pre_tokenizer": pre, "model": {"type": "BPE", "vocab": BYTES, "merges": []}}).encode()


def colliding_pickle():
    numbers = ((n * ((1 << 61) - 1)).to_bytes(10, "little") for n in range(100_000))
    return b"\x80\x04}(" + b"".join(b"\x8a\x0a" + number + b"C\x01a" for number in numbers) + b"u."


def shared_lists():
    """Lists of the list before, twice: 2 ** 60 in all, if they were looked through."""
    return b"\x80\x04]\x94" + b"".join(b"](h%ch%ce\x94" % (n, n) for n in range(60)) + b"."


HOSTILE = {
    "brackets": (lambda: b"[" * (1 << 20), "nested too deeply"),
    "more brackets": (lambda: b"[" * (50 << 20), "more lists"),
    "braces": (lambda: b'{"a":' * (10 << 20), "more lists"),
    "empty lists": (lambda: b"[" + b"[]," * (20 << 20) + b"1]", "more lists"),
    "keys": (lambda: b"{" + b",".join(b'"%d":1' % n for n in range(2_000_000)) + b"}", "more lists"),
    "numbers": (lambda: b"[" + b"1," * (10 << 20) + b"1]", "more lists"),
    "one long string": (lambda: b'{"model":{"x":"' + b"a" * (50 << 20) + b'"}}', "pre_tokenizer"),
    "digits": (lambda: b'{"model":' + b"9" * (1 << 20) + b"}", "1,048,576 digits"),
    "doubling tokens": (doubling, "longer than a tokenizer's"),
    "colliding ids": (colliding, "digits"),
    "an expression of 2 MB": (alternatives, "2,288,889 characters"),
    "lists in a pickle": (lambda: b"\x80\x04" + b"]" * (20 << 20) + b".", "a pickle"),
    "colliding ids in a pickle": (colliding_pickle, "a pickle"),
    "lists of lists in a pickle": (shared_lists, "a pickle"),
    "a memo of 16 GB": (lambda: b"\x80\x04}r\xff\xff\xff\x7f.", "damaged pickle"),
    "bytes that are not there": (lambda: b"\x80\x04}\x8e\xff\xff\xff\xff\xff\x00\x00\x00.", "damaged pickle"),
}

# In a process of its own, whose memory is bounded and measured.
LOAD = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20,) * 2)
from minigpt_tok import Tokenizer
import minigpt_tok.formats
started = time.process_time()
try:
    Tokenizer.load(sys.argv[1])
except ValueError as error:
    print(round(time.process_time() - started, 2), type(error).__name__, error)
"""


QUICK = ("brackets", "keys", "doubling tokens", "colliding ids", "an expression of 2 MB", "colliding ids in a pickle")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE]
)
def test_hostile_files(tmp_path, name):
    content, named = HOSTILE[name]
    path = tmp_path / "vocab"
    path.write_bytes(content())
    (tmp_path / "merges").write_bytes(pickle.dumps([]))
    command = [sys.executable, "-c", LOAD, str(path), "1500"]
    environment = os.environ | {"PYTHONPATH": str(Path(loaded.__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert process.returncode == 0, process.stderr[-2000:]
    seconds, kind, message = process.stdout.split(" ", 2)
    assert named in message
    assert (kind, len(message) < LONGEST_MESSAGE) == ("FormatError", True), message
    assert float(seconds) < SECONDS


def test_a_gigabyte_is_not_read_at_all(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"[" * (1 << 15))
    os.truncate(path, 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError, match="larger than"):
        Tokenizer.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # kilobytes


def test_one_token_a_million_times_is_not_joined_a_million_times(tmp_path):
    """A pickle names one long token again and again for the price of a byte."""
    long = b"a" * 16_000
    vocab = {**{n: bytes([n]) for n in range(256)}, 256: long, 257: long * 2}
    (tmp_path / "vocab.pkl").write_bytes(pickle.dumps(vocab, 4))
    (tmp_path / "merges.pkl").write_bytes(pickle.dumps([(long, long)] * 300_000, 4))
    assert plain_pickle.load(tmp_path / "merges.pkl")[-1] == (long, long)
    started = time.process_time()
    with pytest.raises(FormatError, match=r"longer than|join more than"):
        Tokenizer.load(tmp_path / "vocab.pkl")
    assert time.process_time() - started < SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [60])
def test_damaged_published_files(shared, tmp_path, rounds):
    """Large files too: cut and flipped."""
    chance = random.Random(rounds)
    for name in ("gpt2/tokenizer.json", "smollm2/tokenizer.json", "llama3/tokenizer.json", "cl100k_base.tiktoken"):
        whole = (shared / "tokenizers" / name).read_bytes()
        path = tmp_path / "file"
        for _ in range(rounds // 4):
            path.write_bytes(damaged(chance, whole))
            started = time.process_time()
            with contextlib.suppress(FormatError, TokenizerError):
                Tokenizer.load(path)
            assert time.process_time() - started < 8 * SECONDS
