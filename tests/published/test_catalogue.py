"""The catalogue of tests that published courses hold an implementation to, row by row, in our own words.

Rows that have a file of their own: merges equal Hugging Face's (`test_hugging_face_merges`), ids of GPT-2, SmolLM2 and
the rank files, decoding of every oracle case (`test_id_vectors`), hand examples (`test_worked_examples`).
"""

import base64
import gzip
import json
import random
from collections import Counter
from itertools import pairwise

import pytest

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe.classes import is_space
from minigpt_tok.bpe.model import ALL_BYTES
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.reference import Stop, train_merges
from minigpt_tok.compat.course import split_digits
from minigpt_tok.errors import FormatError
from minigpt_tok.tokenizer import Tokenizer

END = "<|endoftext|>"
ALPHABET = [
    *"ab hgpsu'.,!?0129\t\n\r",
    "  ",
    "é",
    "\u0301",
    "日",
    "🙂",
    "\u00a0",
    "\u3000",
    "\x1c",
    "½",
    "'s",
    "'T",
    "𝒳",
]
STORY = (
    "Once upon a time there was a little cat. The cat's name was Tom, and Tom didn't like the rain.\n"
    "One day it rained and rained: 12 hours, 1,234 drops! Tom sat at the window and watched the rain.\n\n"
) * 6


def random_texts(seed, count, longest=25):
    chance = random.Random(seed)
    return ["".join(chance.choices(ALPHABET, k=chance.randrange(longest))) for _ in range(count)]


def test_specials_are_not_trained_on():
    tokenizer = train_tokenizer([f"ab{END}" * 3] * 3, 300, special_tokens=[END])
    assert tokenizer.special_tokens == {END: 0}
    assert tokenizer.merges == [(b"a", b"b")]
    beside = train_tokenizer([f"a{END}b"] * 5, 300, special_tokens=[END])
    assert beside.merges == []


@pytest.mark.parametrize(
    ("documents", "vocab_size", "options"),
    [
        (["ab"], 255, {}),
        (["ab"], 256, {"special_tokens": ["<s>"]}),
        (["ab"], 300, {"min_frequency": 0}),
        (["ab"], 300, {"min_frequency": -1}),
        (["ab"], 300, {"special_tokens": ["<s>", "<s>"]}),
        (["ab"], 300, {"special_tokens": [""]}),
        (["ab"], 300, {"special_tokens": ["a"]}),
        (["ab"], 300, {"limit_alphabet": 255}),
        (["ab"], 300, {"recipe": "character", "special_tokens": ["<s>"]}),
        (["ab"], 1, {"recipe": "character"}),
        (["ab"], 300, {"recipe": "character", "base_characters": "a"}),
        (["ab"], 300, {"recipe": "nonesuch"}),
        (["ab"], 300, {"pattern": "nonesuch"}),
        (["ab"], 300, {"tie": "nonesuch"}),
        (["a\ud800"], 300, {}),
        ([], 300, {}),
        ([""], 300, {}),
    ],
)
def test_bad_arguments(documents, vocab_size, options):
    with pytest.raises(ValueError, match=r"\w"):
        train_tokenizer(documents, vocab_size, **options)


def test_white_space():
    pieces = get_pretokenizer("gpt2").pieces
    assert not is_space("\x1c")
    assert pieces("a\x1c\x1cb") == ["a", "\x1c\x1c", "b"]
    assert pieces("\x1cb") == ["\x1c", "b"]
    assert pieces("it's IT'S") == ["it", "'s", " IT", "'", "S"]
    assert pieces("\tx") == ["\t", "x"]
    assert pieces("\u00a0x") == ["\u00a0", "x"]
    assert pieces(" ½") == [" ½"]


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_pieces_join_back_and_none_is_empty(pattern):
    for text in random_texts(21, 400):
        pieces = get_pretokenizer(pattern).pieces(text)
        assert "".join(pieces) == text
        assert all(pieces)


def test_a_run_of_white_space_before_a_word_gives_up_its_last_character():
    for text in random_texts(22, 400):
        for piece, following in pairwise(get_pretokenizer("gpt2").pieces(text)):
            if len(piece) > 1 and all(map(is_space, piece)):
                assert is_space(following[0])


def test_digits_alone_and_in_runs():
    assert split_digits("ab 123x½") == ["ab ", "1", "2", "3", "x", "½"]
    assert split_digits("ab 123x", individual=False) == ["ab ", "123", "x"]


def test_a_character_may_be_two_tokens():
    tokenizer = train_tokenizer(["\u0928\u0947\u092e" * 4], 257)
    assert tokenizer.count("\u0928") == 2
    assert tokenizer.decode(tokenizer.encode("\u0928")) == "\u0928"
    assert [tokenizer.decode([id]) for id in tokenizer.encode("\u0928")] == ["\ufffd"] * 2


def test_added_tokens_leftmost_longest():
    tokenizer = train_tokenizer([STORY], 300, special_tokens=["<|im_start|>", "<|im_start|><|im_start|>"])
    assert tokenizer.encode("<|im_start|>" * 3, allowed_special="all") == [1, 0]
    assert not {0, 1} & set(tokenizer.encode("<|im <|im_start|", allowed_special="all"))


def test_swapping_two_ranks_changes_ids():
    vocab = {id: bytes([id]) for id in range(256)} | {256: b"bc", 257: b"ab"}
    merges = [(b"b", b"c"), (b"a", b"b")]
    first = Tokenizer.from_vocab_and_merges(vocab, merges)
    second = Tokenizer.from_vocab_and_merges(vocab, merges[::-1])
    assert first.encode("abc") == [97, 256]
    assert second.encode("abc") == [257, 99]
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("recipe", ["hf", "cs336", "readable"])
def test_round_trip_of_thousands_of_random_documents(recipe):
    tokenizer = train_tokenizer([STORY], 400, recipe, special_tokens=[END])
    for text in random_texts(23, 2000, 30):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("recipe", ["hf", "cs336", "readable", "character"])
def test_save_and_load(recipe, tmp_path):
    specials = [] if recipe == "character" else [END]
    tokenizer = train_tokenizer([STORY], 320, recipe, special_tokens=specials)
    tokenizer.save(tmp_path / "tokenizer.json")
    back = Tokenizer.load(tmp_path / "tokenizer.json")
    assert back.merges == tokenizer.merges
    assert back.special_tokens == tokenizer.special_tokens
    assert back.fingerprint == tokenizer.fingerprint
    for line in STORY.splitlines(keepends=True):
        assert back.encode(line) == tokenizer.encode(line)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.unk_token", "<unk>"),
        ("model.dropout", 0.1),
        ("model.byte_fallback", True),
        ("model.fuse_unk", True),
        ("model.type", "Unigram"),
        ("normalizer", {"type": "BertNormalizer"}),
        ("pre_tokenizer", {"type": "Metaspace"}),
        ("post_processor", {"type": "RobertaProcessing"}),
        ("decoder", {"type": "WordPiece"}),
        ("truncation", {"max_length": 10}),
        ("new_field", 1),
    ],
)
def test_refusals_name_the_field(path, value):
    document = json.loads(train_tokenizer([STORY], 300).to_json())
    *way, last = path.split(".")
    place = document
    for key in way:
        place = place[key]
    place[last] = value
    with pytest.raises(FormatError, match=last):
        Tokenizer.from_json(json.dumps(document))


def test_a_batch_is_one_by_one_empty_texts_included():
    tokenizer = train_tokenizer([STORY], 300, special_tokens=[END])
    texts = ["", STORY, f"a{END}", "", "日本"]
    for allowed in ((), "all"):
        expected = [tokenizer.encode(text, allowed_special=allowed) for text in texts]
        assert tokenizer.encode_batch(texts, allowed_special=allowed) == expected
    assert tokenizer.encode_batch([]) == []


def test_a_gap_in_the_ids_is_refused_but_in_ranks(tmp_path):
    vocab = {id: bytes([id]) for id in range(256)} | {300: b"xx"}
    with pytest.raises(ValueError, match="no token has id 256"):
        Tokenizer.from_vocab_and_merges(vocab, [(b"x", b"x")])
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in vocab.items()]
    (tmp_path / "ranks").write_text("".join(lines))
    assert Tokenizer.from_tiktoken(tmp_path / "ranks", pattern="gpt2").encode("xxx") == [300, 120]


def test_training_twice_gives_the_same_with_any_number_of_threads(engine):
    documents = [f"{STORY}{number}" for number in range(50)]
    first = train_tokenizer(documents, 500)
    for threads in (1, 2, 5):
        again = train_tokenizer(documents, 500, threads=threads)
        assert again.merges == first.merges
        assert again.training.curve == first.training.curve


def test_counts_are_repaired_where_a_pair_falls_to_zero_and_returns():
    """Merging `a b` in `ababab` unmakes (b, a) and makes (ab, ab) out of (ab, a) within one word."""
    tokenizer = train_tokenizer(["ababab"] * 3 + ["baba"], 300, pattern="none")
    tokens = [list(document) for document in ["ababab"] * 3 + ["baba"]]
    for (left, right), count in zip(tokenizer.merges, tokenizer.training.counts, strict=True):
        pair = (left.decode(), right.decode())
        assert Counter(pair for word in tokens for pair in pairwise(word))[pair] == count
        tokens = [joined(word, pair) for word in tokens]
    assert tokenizer.training.curve[-1] == sum(map(len, tokens))


def joined(word, pair):
    out = []
    for token in word:
        if out and (out[-1], token) == pair:
            out[-1] += token
        else:
            out.append(token)
    return out


@pytest.mark.parametrize("engine", ["python"], indirect=True)
def test_counts_have_more_than_32_bits():
    learned = train_merges([(b"ab", 3 << 31), (b"cd", (3 << 31) + 1)], ALL_BYTES, Stop(2, 1))
    assert [merge.occurrences for merge in learned.merges] == [(3 << 31) + 1, 3 << 31]


def test_held_out_compression_of_english(shared, engine):
    """About 4 bytes a token; half of it would mean that merges are not applied."""
    with gzip.open(shared / "corpora" / "prose" / "gutenberg_100MB.txt.gz", "rt", encoding="utf-8") as file:
        text = file.read(4_000_000 if engine == "core" else 1_200_000)
    held_out = text[-200_000:]
    size, least, most = (32_768, 3.7, 4.7) if engine == "core" else (4_096, 3.2, 4.4)
    tokenizer = train_tokenizer([text[:-200_000]], size)
    assert least < len(held_out.encode()) / tokenizer.count(held_out) < most
