"""The core's encoder against `tiktoken` and `tokenizers`: other people's code, with the same vocabulary.

Random and hostile text under every named pattern by small models; real text, and more of the same, by published ones.
"""

import base64
import random
from functools import cache

import pytest
import tiktoken
import tokenizers

from minigpt_tok.bpe.fast import FastEncoder
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.tokenizer import Tokenizer

PUBLISHED = {
    "gpt2": lambda folder: Tokenizer.from_gpt2(folder / "gpt2/encoder.json", folder / "gpt2/vocab.bpe"),
    "cl100k": lambda folder: Tokenizer.from_tiktoken(folder / "cl100k_base.tiktoken", pattern="cl100k"),
    "o200k": lambda folder: Tokenizer.from_tiktoken(folder / "o200k_base.tiktoken", pattern="o200k"),
    "llama3": lambda folder: Tokenizer.from_tiktoken(folder / "llama3/tokenizer.model", pattern="llama3"),
    "qwen": lambda folder: Tokenizer.from_tiktoken(folder / "qwen/qwen.tiktoken", pattern="digits1"),
}


def in_tiktoken(model):
    """The model as tiktoken runs it: by bytes, pieces that are tokens taken whole."""
    ranks = {token: id for id, token in enumerate(model.tokens) if token is not None}
    return tiktoken.Encoding("model", pat_str=PATTERNS[model.pattern], mergeable_ranks=ranks, special_tokens={})


def in_hugging_face(tokenizer, folder):
    """The tokenizer as `tokenizers` runs it, from our own file."""
    tokenizer.to_hf_json(folder / "tokenizer.json")
    loaded = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    loaded.encode_special_tokens = True
    return loaded


@cache
def published(folder, name):
    return PUBLISHED[name](folder / "tokenizers").model


def first_difference(text, ours, theirs):
    """What a failing test should show: not two lists of a million ids."""
    place = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return f"{text[:60]!r}…: ids {place}…: {ours[place : place + 8]} != {theirs[place : place + 8]}"


def check(encode, peer, texts):
    for text in texts:
        ours, theirs = encode(text), peer(text)
        assert ours == theirs, first_difference(text, ours, theirs)


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_tiktoken(core, models, hard, pattern):
    model = models.by_bytes(models.trained(pattern), whole_piece=True)
    rng = random.Random(f"tiktoken {pattern}")
    texts = [hard.random(rng, rng.randint(1, 60)) for _ in range(500)] + [hard.random(rng, 20_000)]
    check(FastEncoder(model).encode, in_tiktoken(model).encode_ordinary, [*texts, *hard.hostile(600).values()])


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_hugging_face(core, models, hard, pattern, tmp_path):
    model = models.trained(pattern)
    peer = in_hugging_face(Tokenizer(model), tmp_path)
    rng = random.Random(f"tokenizers {pattern}")
    texts = [hard.random(rng, rng.randint(1, 60)) for _ in range(300)] + [hard.random(rng, 5000)]
    if pattern == "smollm":  # the Unicode of its digits is not that of its other classes: see test_pretokenize
        texts = [text for text in texts if not any(0x11DE0 <= ord(character) < 0x17000 for character in text)]
    encode = FastEncoder(model).encode
    check(encode, lambda text: peer.encode(text, add_special_tokens=False).ids, [*texts, *hard.hostile(300).values()])


def test_a_million_of_anything_in_tiktoken(best_core, models, hard):
    """Its algorithm for long pieces is a third one."""
    model = models.by_bytes(models.trained("cl100k"), whole_piece=True)
    texts = hard.hostile(1_000_000)
    names = ("one letter", "no white space", "digits", "nul", "every white space in runs", "combining marks")
    check(FastEncoder(model).encode, in_tiktoken(model).encode_ordinary, [texts[name] for name in names])


def test_gpt2_on_real_text(core, shared):
    model = published(shared, "gpt2")
    lines = (shared / "tokenizers/gpt2/r50k_base.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    peer = tiktoken.Encoding("r50k", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens={})
    prose = (shared / "corpora/prose/gutenberg_1MB.txt").read_text("utf-8")
    scripts = (shared / "corpora/multilingual/udhr2_major_scripts.txt").read_text("utf-8")
    check(FastEncoder(model).encode, peer.encode_ordinary, [prose, scripts])


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_vocabularies_on_much_text(core, models, hard, shared, name):
    model = published(shared, name)
    encode = FastEncoder(model).encode
    peer = in_tiktoken(model).encode_ordinary
    rng = random.Random(name)
    check(encode, peer, [hard.random(rng, rng.randint(1, 200)) for _ in range(20_000)])
    check(encode, peer, [hard.random(rng, 2_000_000), *hard.hostile(100_000).values()])
    for file in ("prose/gutenberg_1MB.txt", "multilingual/udhr2_major_scripts.txt", "wikitext-2/train.txt"):
        check(encode, peer, [(shared / "corpora" / file).read_text("utf-8")])


@pytest.mark.slow
def test_smollm2_on_much_text(core, hard, shared):
    """21 bytes are missing from its vocabulary, and dropped."""
    path = shared / "tokenizers/smollm2/tokenizer.json"
    peer = tokenizers.Tokenizer.from_file(str(path))
    peer.encode_special_tokens = True
    encode = FastEncoder(Tokenizer.from_hf_json(path).model).encode
    rng = random.Random("smollm2")
    texts = [hard.random(rng, rng.randint(1, 200)) for _ in range(3000)]
    texts = [text for text in texts if not any(0x11DE0 <= ord(character) < 0x17000 for character in text)]
    check(encode, lambda text: peer.encode(text, add_special_tokens=False).ids, texts)
    scripts = (shared / "corpora/multilingual/udhr2_major_scripts.txt").read_text("utf-8")
    for text in (scripts[:100_000], *hard.hostile(5000).values()):
        check(encode, lambda text: peer.encode(text, add_special_tokens=False).ids, [text])
