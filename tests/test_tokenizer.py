"""The `Tokenizer`: what its members say, and what holds for any text."""

import pickle
import random
import subprocess
import sys
import sysconfig
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe.recipes import RECIPES
from minigpt_tok.errors import TokenizerError
from minigpt_tok.tokenizer import Tokenizer

END = "<|endoftext|>"
TEXTS = ["the cat sat on the mat. the cat ate the rat,", "it's 1234 o'clock\n\n", "café 日本 don't\r\n"] * 2
HARD = [
    "🤷🏽‍♀️ 👨‍👩‍👧‍👦 🇩🇪",
    "नमस्ते दुनिया, हिन्दी",
    "\r\n\r\n\n\r",
    "a\x00b\x00",
    "zero\u200bwidth\ufeff",
    "é e\u0301",
    "\U0010ffff\ufffe",
    "  tabs\t\tand   spaces  ",
    "ﷺ ﬀ Ⅷ ½ ²",
    "",
]


@pytest.fixture(scope="module", params=["hf", "cs336", "readable"])
def tokenizer(request):
    return train_tokenizer(TEXTS, 290, request.param, special_tokens=[END, "<s>"])


@pytest.fixture(scope="module")
def character():
    return train_tokenizer(["low lower lowest é"], 16, "character")


# Any text


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_round_trip_of_any_text(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    ids = tokenizer.encode(text, allowed_special="all")
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert tokenizer.count(text) == len(tokenizer.encode(text))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*HARD, END, "<s>", "the cat"]), max_size=8).map("".join))
def test_round_trip_of_hard_text(tokenizer, text):
    for allowed in ((), "all", {END}):
        assert tokenizer.decode(tokenizer.encode(text, allowed_special=allowed)) == text
    decoder = tokenizer.stream_decoder()
    assert "".join([*map(decoder.feed, tokenizer.encode(text)), decoder.finish()]) == text


def test_round_trip_of_the_standard_library(tokenizer):
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in random.Random(3).sample(sorted(folder.glob("*.py")), 12):
        text = path.read_text("utf-8")
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
def test_round_trip_of_all_of_the_standard_library(tokenizer):
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts:
            text = path.read_bytes().decode("utf-8", "replace")
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_thousands_of_random_documents(tokenizer):
    chance = random.Random(7)
    parts = [*HARD, "the ", "cat", " 12", "\n", "'s", "日本語", "ß", "😀"]
    documents = ["".join(chance.choices(parts, k=chance.randrange(8))) for _ in range(3000)]
    for document, ids in zip(documents, tokenizer.encode_batch(documents), strict=True):
        assert tokenizer.decode(ids) == document


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text("ab <s>é日\n", max_size=20), max_size=8))
def test_a_batch_is_one_by_one_and_a_stream_the_joined_text(tokenizer, texts):
    for allowed in ((), "all"):
        one_by_one = [tokenizer.encode(text, allowed_special=allowed) for text in texts]
        assert tokenizer.encode_batch(texts, allowed_special=allowed) == one_by_one
        ids, offsets = tokenizer.encode_batch_to_numpy(iter(texts), allowed_special=allowed)
        assert ids.dtype == tokenizer.dtype
        assert offsets.dtype == np.int64
        assert [ids[start:end].tolist() for start, end in pairwise(offsets)] == one_by_one
        joined = tokenizer.encode("".join(texts), allowed_special=allowed)
        assert list(tokenizer.encode_iter(texts, allowed_special=allowed)) == joined


def test_empty_batches(tokenizer):
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode_batch(["", ""]) == [[], []]
    ids, offsets = tokenizer.encode_batch_to_numpy([])
    assert (ids.tolist(), offsets.tolist(), ids.dtype) == ([], [0], tokenizer.dtype)
    assert list(tokenizer.encode_iter([])) == []


@settings(max_examples=100, deadline=None)
@given(st.text("the cat<s>é日", max_size=40))
def test_lengths_of_ids_add_up_to_the_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.byte_lengths[ids].sum() == len(text.encode())


# Members


def test_what_it_is(tokenizer):
    assert tokenizer.unit == "byte"
    assert tokenizer.vocab_size == len(tokenizer) == 290
    assert tokenizer.dtype == np.uint16
    assert len(tokenizer.fingerprint) == 64
    assert tokenizer.fingerprint_version == 1
    assert set(tokenizer.special_tokens) == {END, "<s>"}
    assert tokenizer.training.vocab_size == 290
    assert tokenizer.fingerprint[:12] in repr(tokenizer)
    assert tokenizer.byte_lengths.dtype == np.int64
    assert tokenizer.byte_lengths.shape == (290,)
    assert all(tokenizer.byte_lengths[id] == 0 for id in tokenizer.special_tokens.values())


def test_vocabulary_merges_and_learned_tokens(tokenizer):
    assert sorted(tokenizer.vocab) == list(range(290))
    assert len(set(tokenizer.vocab.values())) == 290
    assert [left + right for left, right in tokenizer.merges] == tokenizer.learned_tokens
    assert len(tokenizer.merges) == 290 - 256 - 2
    assert tokenizer.vocab[tokenizer.special_tokens["<s>"]] == b"<s>"
    assert all(tokenizer.token_bytes(id) == token for id, token in tokenizer.vocab.items())


def test_a_character_tokenizer(character):
    assert character.unit == "character"
    assert character.vocab[0] == " "
    assert character.merges[0] == ("l", "o")
    assert character.learned_tokens[:2] == ["lo", "low"]
    assert character.special_tokens == {}
    assert character.decode(character.encode("low é")) == "low é"
    assert character.tokens("lowest é") == ["low", "e", "s", "t", " ", "é"]
    assert character.byte_lengths[character.encode("é")].tolist() == [2]
    with pytest.raises(TokenizerError, match="'A', 'z'"):
        character.encode("zAz")


def test_more_than_65536_ids_need_more_than_two_bytes():
    vocab = {id: bytes([id]) for id in range(256)} | {256 + n: b"%08d" % n for n in range(65_281)}
    large = Tokenizer.from_vocab_and_merges(vocab, [])
    assert large.vocab_size == 65_537
    assert large.dtype == np.uint32
    del vocab[65_536]
    assert Tokenizer.from_vocab_and_merges(vocab, []).dtype == np.uint16


def test_tokens_as_a_person_would_read_them(tokenizer):
    assert "".join(tokenizer.tokens("the cat")) == "the cat"
    assert tokenizer.tokens("語")[-1].startswith("\\x")


def test_equality_is_by_meaning(tokenizer):
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    assert tokenizer != tokenizer.truncated(280)
    assert tokenizer != "a tokenizer"
    assert len({again, tokenizer}) == 1


def test_it_can_be_pickled_for_other_processes(tokenizer):
    tokenizer.encode("fills the caches")
    other = pickle.loads(pickle.dumps(tokenizer))
    assert other == tokenizer
    assert other.training == tokenizer.training
    assert other.encode("the cat") == tokenizer.encode("the cat")


def test_threads_may_share_it(tokenizer):
    texts = [f"the cat {number} sat on {number % 7} mats {END}" for number in range(400)]
    expected = [tokenizer.encode(text, allowed_special="all") for text in texts]
    fresh = Tokenizer(tokenizer.model)
    found = {}

    def work(name):
        found[name] = [fresh.encode(text, allowed_special="all") for text in texts]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == expected for number in range(4))


# Ids


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, dtype=np.uint16), iter])
def test_ids_of_any_kind(tokenizer, kind):
    ids = tokenizer.encode("the cat 日本")
    assert tokenizer.decode(kind(ids)) == "the cat 日本"


def test_tensors_and_numpy_integers_are_ids(tokenizer):
    torch = pytest.importorskip("torch")
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode(torch.tensor(ids)) == "the cat"
    assert tokenizer.decode(list(torch.tensor(ids))) == "the cat"
    assert tokenizer.decode([np.int64(id) for id in ids]) == "the cat"
    assert tokenizer.token_bytes(np.uint16(ids[0])) == tokenizer.token_bytes(ids[0])
    assert tokenizer.stream_decoder().feed(torch.tensor(ids[0])) == tokenizer.decode(ids[:1])


@pytest.mark.parametrize("id", [290, -1, 1 << 40, -290])
def test_an_id_outside_is_named_with_the_size(tokenizer, id):
    for decode in (tokenizer.decode, tokenizer.decode_bytes):
        with pytest.raises(TokenizerError, match=rf"id {id} is outside the vocabulary of 290 ids"):
            decode([0, id])
    with pytest.raises(TokenizerError, match="outside"):
        tokenizer.token_bytes(id)


@pytest.mark.parametrize("ids", [[0.5], ["0"], "12", [None], np.array([0.5]), np.array([True]), 5, None])
def test_what_is_no_id_is_refused(tokenizer, ids):
    with pytest.raises(TokenizerError, match=r"integers|shape"):
        tokenizer.decode(ids)


def test_two_dimensions_are_refused(tokenizer):
    with pytest.raises(TokenizerError, match=r"shape \(2, 2\)"):
        tokenizer.decode(np.zeros((2, 2), dtype=np.int64))


def test_broken_characters_by_the_rule_for_errors(tokenizer):
    ids = tokenizer.encode("語")[:1]
    assert tokenizer.decode(ids) == "\ufffd"
    assert tokenizer.decode(ids, errors="ignore") == ""
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode(ids, errors="strict")


def test_a_stream_shows_no_half_of_a_character(tokenizer):
    text = "a日本🤷🏽é"
    decoder = tokenizer.stream_decoder()
    shown = [decoder.feed(id) for id in tokenizer.encode(text)]
    assert "".join(shown) == text
    assert not any("\ufffd" in part for part in shown)
    assert decoder.feed(tokenizer.encode("語")[:2]) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.feed(tokenizer.encode("a")) == "a"
    skipping = tokenizer.stream_decoder(skip_special=True)
    assert skipping.feed(tokenizer.encode(f"a{END}b", allowed_special="all")) == "ab"


# Texts that are none


@pytest.mark.parametrize("text", [b"bytes", None, 3, ["a"]])
def test_what_is_no_text_is_refused(tokenizer, text):
    for call in (tokenizer.encode, tokenizer.count, tokenizer.encode_with_offsets, tokenizer.explain, tokenizer.tokens):
        with pytest.raises(TokenizerError, match="not str"):
            call(text)
    with pytest.raises(TokenizerError, match="not str"):
        tokenizer.encode_batch(["a", text])


def test_one_text_is_no_batch(tokenizer):
    for call in (tokenizer.encode_batch, tokenizer.encode_batch_to_numpy):
        with pytest.raises(TokenizerError, match="texts is one str"):
            call("text")


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_lone_surrogate_is_refused_everywhere(recipe):
    made = train_tokenizer(["ab \ufffd"], 300, recipe)
    for call in (made.encode, made.count, made.encode_to_numpy, made.tokens, made.explain, made.encode_with_offsets):
        with pytest.raises(TokenizerError, match=r"lone surrogate, U\+D800, at character 1"):
            call("a\ud800")


# Explaining


def test_an_explanation_shows_cuts_merges_and_ids():
    tokenizer = train_tokenizer(["hug", "hug", "pug", "hugs"], 259, min_frequency=1)
    explanation = tokenizer.explain("hugs pug")
    assert [piece.text for piece in explanation.pieces] == ["hugs", " pug"]
    assert [piece.cut_by for piece in explanation.pieces] == ["letters", "letters"]
    first = explanation.pieces[0]
    assert first.base_tokens == ("h", "u", "g", "s")
    assert [(merge.rank, merge.left, merge.right) for merge in first.merges] == [(0, "u", "g"), (1, "h", "ug")]
    assert first.tokens == ("hug", "s")
    assert [id for piece in explanation.pieces for id in piece.ids] == tokenizer.encode("hugs pug")
    page = str(explanation)
    assert "␣ pug" in page
    assert "rank 0" in page
    assert "257 82" in page


@settings(max_examples=60, deadline=None)
@given(st.text("the cat12'é日\n", max_size=30))
def test_explained_ids_are_the_encoded_ones(tokenizer, text):
    pieces = tokenizer.explain(text).pieces
    assert [id for piece in pieces for id in piece.ids] == tokenizer.encode(text)
    assert "".join(piece.text for piece in pieces) == text


# Others from it


def test_truncated_renumbered_and_extended(tokenizer):
    smaller = tokenizer.truncated(280)
    assert smaller.vocab_size == 280
    assert smaller.merges == tokenizer.merges[:22]
    assert len(smaller.training.curve) == 22
    assert smaller.special_tokens.keys() == tokenizer.special_tokens.keys()
    other = tokenizer.with_id_order("bytes_first")
    assert other.token_bytes(65) == b"A"
    assert other.merges == tokenizer.merges
    more = tokenizer.with_special_tokens(["<new>"])
    assert more.special_tokens["<new>"] == 290
    assert more.fingerprint != tokenizer.fingerprint


def test_training_gives_the_same_in_every_process():
    program = (
        "from minigpt_tok import train_tokenizer\n"
        f"for recipe in {sorted(RECIPES)!r}:\n"
        f"    made = train_tokenizer({TEXTS!r}, 320, recipe)\n"
        "    print(made.fingerprint, made.encode('the cat'), made.training.curve)\n"
    )
    outputs = set()
    for seed in ("0", "1", "random"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
