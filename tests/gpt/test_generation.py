"""Sampling on known distributions, and text that ends where it should and never shows half of anything."""

import base64
import math

import pytest
import torch

from minigpt_tok.errors import ModelError, TokenizerMismatchError
from minigpt_tok.gpt.config import MiniGPTConfig
from minigpt_tok.gpt.generation import Sampling, generate, stream
from minigpt_tok.gpt.model import MiniGPT
from minigpt_tok.tokenizer import Tokenizer

KNOWN = torch.tensor([0.1, 0.4, 0.15, 0.3, 0.05], dtype=torch.float64)


@pytest.fixture(scope="module")
def bytes_only():
    """256 byte tokens by value and `<|endoftext|>`, 256."""
    vocab = {value: bytes([value]) for value in range(256)} | {256: b"<|endoftext|>"}
    return Tokenizer.from_vocab_and_merges(vocab, [], special_tokens=["<|endoftext|>"])


class Recites(MiniGPT):
    """Writes one given sequence of ids after any prompt of `prompt_length`, then its first id on and on."""

    def __init__(self, template, ids, prompt_length=1):
        super().__init__(template.config)
        self.sequence = ids
        self.prompt_length = prompt_length
        self.read = 0

    def hidden(self, ids, cache=None, **_):
        if cache is not None:
            cache.length += ids.shape[1]
        self.read += 1
        return torch.zeros(1, ids.shape[1], self.config.embedding_dim)

    def head(self, hidden):
        logits = torch.zeros(self.config.vocab_size)
        at = self.read - 1
        logits[self.sequence[at if at < len(self.sequence) else 0]] = 50.0
        return logits


@pytest.fixture(scope="module")
def endless():
    """256 byte tokens and no way to end a text."""
    return Tokenizer.from_vocab_and_merges({value: bytes([value]) for value in range(256)}, [])


@pytest.fixture
def reciting(tiny):
    def build(content, vocab_size=257):
        ids = list(content.encode() if isinstance(content, str) else content)
        return Recites(tiny(vocab_size, block_size=4096), ids)

    return build


# Sampling


def test_temperature_alone_gives_the_softmax():
    torch.testing.assert_close(Sampling().probabilities(KNOWN.log()), KNOWN)
    squared = KNOWN**2 / (KNOWN**2).sum()
    torch.testing.assert_close(Sampling(temperature=0.5).probabilities(KNOWN.log()), squared)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 1}, [1]),
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.3}, [1]),
        ({"top_p": 0.4}, [1]),
        ({"top_p": 0.41}, [1, 3]),
        ({"top_p": 0.7}, [1, 3]),
        ({"top_p": 0.85}, [1, 3, 2]),
        ({"top_p": 1.0}, [0, 1, 2, 3, 4]),
        ({"top_p": 1e-9}, [1]),
        ({"top_k": 3, "top_p": 0.8}, [1, 3]),  # of the three kept, 0.4 and 0.3 are 0.82
        ({"top_k": 3, "top_p": 0.83}, [1, 3, 2]),
    ],
)
def test_filters_keep_exactly_these(options, kept):
    expected = torch.zeros(5, dtype=torch.float64)
    expected[kept] = KNOWN[kept] / KNOWN[kept].sum()
    torch.testing.assert_close(Sampling(**options).probabilities(KNOWN.log()), expected)


def test_equal_ids_are_kept_in_order_and_the_first_is_the_likeliest():
    logits = torch.tensor([0.0, 1.0, 1.0, 1.0])
    assert Sampling(top_k=2).probabilities(logits).tolist() == [0, 0.5, 0.5, 0]
    assert Sampling(temperature=0).probabilities(logits).tolist() == [0, 1, 0, 0]


def test_a_tiny_temperature_does_not_overflow():
    assert Sampling(temperature=1e-300).probabilities(torch.tensor([1e30, -1e30, 3.0])).tolist() == [1, 0, 0]


def test_ids_are_drawn_by_their_probability():
    generator = torch.Generator().manual_seed(0)
    n = 20_000
    sampling = Sampling(top_k=4)
    counts = torch.bincount(torch.tensor([sampling.draw(KNOWN.log(), generator) for _ in range(n)]), minlength=5)
    expected = sampling.probabilities(KNOWN.log())
    assert counts[4] == 0
    assert ((counts / n - expected).abs() < 5 * (expected * (1 - expected) / n).sqrt() + 1e-12).all()


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"temperature": math.nan}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1}]
)
def test_values_out_of_bounds_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ModelError, match=name):
        Sampling(**wrong)


def test_logits_that_are_no_numbers_are_refused():
    with pytest.raises(ModelError, match="NaN"):
        Sampling().probabilities(torch.tensor([0.0, math.nan]))


# Cache, window, seed


@pytest.mark.parametrize("prompt_length", [1, 5, 16, 40])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_the_text_is_the_same_without_the_cache_also_beyond_the_window(tiny, endless, prompt_length, temperature):
    model = tiny(256, spread=0.6)
    prompt = [7 * n % 256 for n in range(prompt_length)]
    runs = [
        generate(model, endless, prompt, max_new_tokens=50, temperature=temperature, seed=1, use_cache=use_cache)
        for use_cache in (True, False)
    ]
    assert runs[0].ids == runs[1].ids
    assert len(runs[0].ids) == 50
    assert len(set(runs[0].ids)) > (5 if temperature else 1)


def test_greedy_takes_the_likeliest_id_of_the_last_block(tiny, bytes_only):
    model = tiny(257, spread=0.2)
    ids = [1, 2, 3]
    for _ in range(30):
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids[-16:]]))[0, -1].argmax()))
    assert generate(model, bytes_only, [1, 2, 3], max_new_tokens=30, temperature=0).ids == ids[3:]


def test_a_seed_gives_one_text_and_touches_no_other_generator(tiny, bytes_only):
    model = tiny(257)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (generate(model, bytes_only, "a", max_new_tokens=20, seed=seed).ids for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert torch.equal(torch.get_rng_state(), before)
    unseeded = [generate(model, bytes_only, "a", max_new_tokens=20).ids for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_padded_rows_and_holes_are_never_drawn(tiny, tmp_path):
    ranks = tmp_path / "bytes.tiktoken"
    ranks.write_text("".join(f"{base64.b64encode(bytes([value])).decode()} {value}\n" for value in range(256)))
    holed = Tokenizer.from_tiktoken(ranks, pattern="gpt2", special_tokens={"<|endoftext|>": 300})
    assert holed.vocab_size == 301
    model = tiny(301, pad_vocab_to=512)
    with torch.no_grad():
        model.final_norm.bias.fill_(1)
        model.token_embedding.weight[256:300] = 9  # logits far above all others
        model.token_embedding.weight[301:] = 9
    drawn = generate(model, holed, "a", max_new_tokens=200, seed=0).ids
    assert drawn
    assert max(drawn) < 256


def test_the_model_keeps_its_mode_and_writes_without_dropout(tiny, bytes_only):
    model = tiny(257, dropout=0.9, spread=0.2).train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    first = generate(model, bytes_only, "a", max_new_tokens=10, temperature=0).ids
    assert [module.training for module in model.modules()] == modes
    assert first == generate(model.eval(), bytes_only, "a", max_new_tokens=10, temperature=0).ids


# Text


def test_half_a_character_is_never_shown(reciting, bytes_only):
    text = "a日本語🙂é👩‍👩‍👧z"
    pieces = list(stream(reciting(text), bytes_only, "x", max_new_tokens=len(text.encode()), temperature=0))
    assert "".join(pieces) == text
    assert all(pieces)
    assert "�" not in text
    assert max(map(len, pieces)) == 1


def test_half_a_character_at_the_end_comes_last(reciting, bytes_only):
    pieces = list(stream(reciting("ab🙂"), bytes_only, "x", max_new_tokens=4, temperature=0))
    assert pieces == ["a", "b", "�"]


@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("one. two", ". ", "one"),
        ("one. two", ["two", "ne"], "o"),
        ("aaab", "aab", "a"),
        ("ababac", "abac", "ab"),
        ("no stop here", "###", "no stop here"),
        ("almost ##", "###", "almost ##"),
        ("日本語", "本", "日"),
        ("stop", "stop", ""),
    ],
)
def test_stop_strings_end_the_text_and_no_part_of_them_is_shown(reciting, bytes_only, text, stop, shown):
    model = reciting(text)
    pieces = stream(model, bytes_only, "x", max_new_tokens=len(text.encode()), temperature=0, stop=stop)
    seen = ""
    for piece in pieces:
        seen += piece
        assert shown.startswith(seen)
    assert seen == shown
    assert pieces.finish_reason == ("length" if shown == text else "stop")


def test_a_stop_string_within_one_token_is_found():
    vocab = {value: bytes([value]) for value in range(256)} | {256: b"ab", 257: b"abab"}
    tok = Tokenizer.from_vocab_and_merges(vocab, [(b"a", b"b"), (b"ab", b"ab")])
    torch.manual_seed(0)
    model = Recites(MiniGPT(MiniGPTConfig(258, embedding_dim=8, num_heads=1, num_layers=1)), [257])
    result = generate(model, tok, "x", max_new_tokens=3, temperature=0, stop="ba")
    assert (result.text, result.ids, result.finish_reason) == ("a", [257], "stop")


def test_the_end_of_text_token_ends_it(reciting, bytes_only):
    result = generate(reciting([*b"hello", 256, *b"more"]), bytes_only, "x", max_new_tokens=50, temperature=0)
    assert (result.text, result.finish_reason, result.ids) == ("hello", "end_of_text", list(b"hello"))


def test_what_is_held_back_for_a_stop_string_comes_out_at_the_end(reciting, bytes_only):
    result = generate(reciting([*b"ab#", 256]), bytes_only, "x", temperature=0, stop="##")
    assert (result.text, result.finish_reason) == ("ab#", "end_of_text")
    result = generate(reciting(b"ab\xf0\x9f"), bytes_only, "x", temperature=0, stop="b�", max_new_tokens=4)
    assert (result.text, result.finish_reason) == ("a", "stop")


def test_an_empty_prompt_begins_a_new_text(tiny, bytes_only):
    result = generate(tiny(257), bytes_only, max_new_tokens=3, seed=0)
    assert result.prompt_ids == [256]
    assert len(result.ids) <= 3


def test_an_empty_prompt_needs_an_end_of_text_token(tiny, endless):
    with pytest.raises(ModelError, match=r"prompt is empty.*<\|endoftext\|>"):
        generate(tiny(256), endless, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"stop": ["x", ""]}, "empty"),
        ({"prompt": [3, 400]}, "id 400"),
        ({"top_k": 0}, "top_k"),
    ],
)
def test_requests_that_cannot_work_are_refused_at_once(tiny, bytes_only, options, message):
    with pytest.raises(ModelError, match=message):
        stream(tiny(257), bytes_only, **({"prompt": "a"} | options))


def test_another_vocabulary_is_refused(tiny, bytes_only):
    with pytest.raises(TokenizerMismatchError, match="258 ids"):
        generate(tiny(258), bytes_only, "a")


def test_nothing_asked_for_is_nothing(tiny, bytes_only):
    result = generate(tiny(257), bytes_only, "a", max_new_tokens=0)
    assert (result.text, result.ids, result.finish_reason) == ("", [], "length")
