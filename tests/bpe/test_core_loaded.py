"""The core is there where it can be, at every level, and the readable Python where it is not."""

import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace

import pytest

from minigpt_tok.bpe import fast, native
from minigpt_tok.bpe.counting import PieceCounter
from minigpt_tok.bpe.decoder import Decoder
from minigpt_tok.bpe.encoder import Encoder
from minigpt_tok.bpe.fast import FastEncoder, FastPieceCounter, PieceEncoder, make_counter, make_decoder, make_encoder
from minigpt_tok.bpe.recipes import get_recipe

PURE = os.environ.get("MINIGPT_TOK_PURE", "") not in ("", "0")


def a_compiler():
    named = os.environ.get("CXX") or sysconfig.get_config_var("CXX") or ""
    return any(map(shutil.which, [*named.split()[:1], "c++", "g++", "clang++"]))


@pytest.mark.skipif(PURE, reason="MINIGPT_TOK_PURE is set")
@pytest.mark.skipif(not a_compiler(), reason="there is no C++ compiler")
def test_the_core_is_loaded_where_a_compiler_exists():
    assert native.core is not None


@pytest.mark.skipif(PURE, reason="MINIGPT_TOK_PURE is set")
@pytest.mark.skipif(not a_compiler(), reason="there is no C++ compiler")
def test_every_level_up_to_the_processors_is_built():
    highest = importlib.import_module("minigpt_tok.bpe.native._cpu").level()
    for level in (1, 3, 4):
        if level <= highest:
            assert native.load_level(level).__name__.endswith(f"_core_v{level}")
    assert native.core.__name__.endswith(f"_core_v{highest}")


def test_what_is_chosen(best_core, models):
    model = models.trained("gpt2")
    assert type(make_encoder(model)) is FastEncoder
    assert type(make_counter(get_recipe("hf"), None)) is FastPieceCounter
    assert type(make_decoder([b"a"])) is best_core.Decoder


@pytest.mark.filterwarnings("ignore::minigpt_tok.bpe.pretokenize.UnicodeVersionWarning")
def test_a_pattern_without_a_scanner_is_cut_in_python(best_core, models):
    model = replace(models.trained("gpt2"), pattern=r"\w+|\W")
    assert type(make_encoder(model)) is PieceEncoder
    assert type(make_counter(get_recipe("hf", pattern=r"\w+|\W"), None)) is PieceCounter


PROGRAM = """
import json, sys
from minigpt_tok import train_tokenizer
from minigpt_tok.bpe import native

texts = json.load(sys.stdin)
out = {"core": native.core is not None, "results": []}
for recipe in ("hf", "cs336", "readable", "character"):
    tok = train_tokenizer(texts, 600, recipe)
    results = {
        "json": json.loads(tok.to_json()),
        "encode": [tok.encode(text) for text in texts],
        "array": [tok.encode_to_numpy(text).tolist() for text in texts],
        "memory": [tok.encode_to_numpy(text.encode()).tolist() for text in texts],
        "batch": tok.encode_batch(texts),
        "flat": [part.tolist() for part in tok.encode_batch_to_numpy(texts)],
        "offsets": [tok.encode_with_offsets(text) for text in texts],
        "stream": list(tok.encode_iter(texts)),
        "count": [tok.count(text) for text in texts],
        "decoded": [tok.decode(tok.encode(text)) for text in texts],
        "dtype": str(tok.dtype),
    }
    out["results"].append(results)
print(json.dumps(out))
"""


def run(texts, pure):
    environment = {**os.environ, "MINIGPT_TOK_PURE": "1" if pure else "0"}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(texts),
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def without_times(results):
    """Everything but how long it took."""
    if isinstance(results, dict):
        times = ("seconds", "megabytes_per_second", "peak_memory", "threads")
        return {key: without_times(value) for key, value in results.items() if key not in times}
    return [without_times(value) for value in results] if isinstance(results, list) else results


def test_pure_python_gives_the_same_results(best_core, hard):
    rng = random.Random(11)
    texts = [hard.random(rng, 300) for _ in range(20)] + ["", "plain words, and plain words\n"]
    pure, native = run(texts, pure=True), run(texts, pure=False)
    assert (pure["core"], native["core"]) == (False, True)
    assert without_times(pure["results"]) == without_times(native["results"])


def test_pure_python_is_what_works_without_a_core(models, monkeypatch):
    monkeypatch.setattr(fast, "core", None)
    assert type(fast.make_encoder(models.trained("gpt2"))) is Encoder
    assert type(fast.make_counter(get_recipe("hf"), 2)) is PieceCounter
    assert type(fast.make_decoder([b"a"])) is Decoder
