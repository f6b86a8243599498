"""Every worked example of the rules, by the public calls."""

import pytest

from minigpt_tok import train_tokenizer
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import CHAT_TOKENS
from minigpt_tok.tokenizer import Tokenizer

HUG = ["hug", "hug", "pug", "hugs"]
SENTENCE = "the cat sat on the mat. the cat ate the rat."
LOW = " ".join(["low"] * 5 + ["lower"] * 2 + ["widest"] * 3 + ["newest"] * 6)


def merges_and_counts(tokenizer):
    merges = ["+".join(part.decode() for part in merge) for merge in tokenizer.merges]
    return list(zip(merges, tokenizer.training.counts, strict=True))


# hf


def test_hug_merges_ids_and_the_tie_at_the_third():
    tokenizer = train_tokenizer(HUG, 259, min_frequency=1)
    assert merges_and_counts(tokenizer) == [("u+g", 4), ("h+ug", 3), ("p+ug", 1)]
    assert [tokenizer.token_bytes(id) for id in (256, 257, 258)] == [b"ug", b"hug", b"pug"]
    assert [tokenizer.token_bytes(id) for id in (70, 71, 79, 82, 84)] == [b"g", b"h", b"p", b"s", b"u"]


def test_hugs_pug():
    tokenizer = train_tokenizer(HUG, 259, min_frequency=1)
    assert tokenizer.encode("hugs pug") == [257, 82, 220, 258]
    assert tokenizer.decode([257, 82, 220, 258]) == "hugs pug"
    assert tokenizer.tokens("hugs pug") == ["hug", "s", " ", "pug"]


@pytest.mark.parametrize(("least", "merges"), [(1, 4), (2, 2), (3, 2), (4, 1), (5, 0)])
def test_a_count_equal_to_the_minimum_still_merges(least, merges):
    assert len(train_tokenizer(HUG, 1000, min_frequency=least).merges) == merges


def test_the_default_minimum_is_two():
    tokenizer = train_tokenizer(HUG, 1000)
    assert len(tokenizer.merges) == 2
    assert tokenizer.training.stopped == "the best pair occurs 1 time"
    assert train_tokenizer(HUG, 1000, min_frequency=1).training.stopped == "no pair is left"


def test_the_alphabet_stands_in_the_order_of_its_printable_characters():
    tokenizer = train_tokenizer(HUG, 256)
    assert tokenizer.token_bytes(0) == b"!"
    assert tokenizer.token_bytes(220) == b" "
    assert train_tokenizer(HUG, 257, special_tokens=["<|endoftext|>"]).special_tokens == {"<|endoftext|>": 0}


# readable


def test_the_cat():
    tokenizer = train_tokenizer([SENTENCE], 256 + 6 + 8, "readable", special_tokens="chat")
    assert merges_and_counts(tokenizer) == [
        ("a+t", 6),
        ("t+h", 4),
        ("th+e", 4),
        (" +the", 3),
        (" +c", 2),
        (" c+at", 2),
    ]
    assert tokenizer.special_tokens == {token: 262 + number for number, token in enumerate(CHAT_TOKENS)}
    text = "the cat ate the hat.<|endoftext|>"
    assert tokenizer.encode(text, allowed_special="all") == [258, 261, 32, 256, 101, 259, 32, 104, 256, 46, 262]
    assert tokenizer.decode(tokenizer.encode(text, allowed_special="all")) == text


def test_the_cat_without_cuts():
    tokenizer = train_tokenizer([SENTENCE], 262, "readable", pattern="none")
    merges = merges_and_counts(tokenizer)
    assert merges[1] == ("e+ ", 5)
    assert tokenizer.learned_tokens[3] == b"the "
    assert tokenizer.learned_tokens[5] == b"the c"


# character


def test_low_lower_lowest():
    tokenizer = train_tokenizer(["low lower lowest"], 20, "character")
    assert tokenizer.merges == [("l", "o"), ("lo", "w"), (" ", "low"), (" low", "e")]
    assert tokenizer.training.counts == (3, 3, 2, 2)
    assert tokenizer.tokens("low lower lowest") == ["low", " lowe", "r", " lowe", "s", "t"]
    assert tokenizer.vocab_size == 12


# cs336


def test_the_handouts_words():
    tokenizer = train_tokenizer([LOW], 256 + 8, "cs336")
    assert [f"{left.decode()}+{right.decode()}" for left, right in tokenizer.merges] == [
        *("s+t", "e+st", "o+w", "l+ow", "w+est", "n+e", "ne+west", " +newest")
    ]


def test_the_special_is_256_and_32000_ids_have_31743_merges():
    tokenizer = train_tokenizer([LOW], 300, "cs336", special_tokens=["<|endoftext|>"])
    assert [tokenizer.token_bytes(id) for id in (0, 65, 255)] == [b"\x00", b"A", b"\xff"]
    assert tokenizer.special_tokens == {"<|endoftext|>": 256}
    assert tokenizer.token_bytes(257) == b"st"
    assert 32_000 - tokenizer.vocab_size + len(tokenizer.merges) == 31_743


# Pieces


def pieces(text, pattern="gpt2"):
    return get_pretokenizer(pattern).pieces(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I'm   here!!\n", ["I", "'m", "  ", " here", "!!", "\n"]),
        ("don't 2024 café", ["don", "'t", " 2024", " café"]),
        ("don't run 3 times.", ["don", "'t", " run", " 3", " times", "."]),
        ("\tword", ["\t", "word"]),
        ("\u00a0word", ["\u00a0", "word"]),
        ("\u3000word", ["\u3000", "word"]),
        (" \tword", [" ", "\t", "word"]),
        ("½ cup", ["½", " cup"]),
        ("IT'S", ["IT", "'", "S"]),
        ("a\x1cb", ["a", "\x1c", "b"]),
        ("x   ", ["x", "   "]),
        ("x   y", ["x", "  ", " y"]),
        ("", []),
    ],
)
def test_gpt2_pieces(text, expected):
    assert pieces(text) == expected


def test_digits1_has_22_pieces_two_of_them_a_lone_space():
    found = pieces("In 1969, 600,000,000 people watched.", "digits1")
    assert len(found) == 22
    assert found.count(" ") == 2


def test_white_space_at_the_end_tells_cl100k_from_llama3():
    assert pieces("a\n  ", "cl100k") == ["a", "\n  "]
    assert pieces("a\n  ", "llama3") == ["a", "\n", "  "]


def test_a_long_s_is_a_contraction_in_any_case_patterns_alone():
    assert pieces("it'\u017f", "digits1") == ["it", "'\u017f"]
    assert pieces("it'\u017f", "gpt2") == ["it", "'", "\u017f"]


# Encoding


def hand_made(*merges):
    vocab = {id: bytes([id]) for id in range(256)}
    for left, right in merges:
        vocab.setdefault(len(vocab), left + right)
    return Tokenizer.from_vocab_and_merges(vocab, merges)


def test_rank_and_not_position():
    assert hand_made((b"b", b"c"), (b"a", b"b")).tokens("abc") == ["a", "bc"]
    assert hand_made((b"a", b"b"), (b"b", b"c")).tokens("abc") == ["ab", "c"]


def test_equal_ranks_leftmost():
    tokenizer = hand_made((b"a", b"a"))
    assert tokenizer.tokens("aaa") == ["aa", "a"]
    assert tokenizer.tokens("aaaa") == ["aa", "aa"]


def test_a_page_that_mentions_a_special_is_no_boundary_unless_asked_for():
    tokenizer = train_tokenizer(HUG, 300, special_tokens=["<|endoftext|>", "<|im_start|>"])
    text = "hug<|endoftext|>"
    assert 0 not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text, allowed_special="all")[-1] == 0
    assert tokenizer.encode(text, allowed_special={"<|endoftext|>"}, disallowed_special="all")[-1] == 0
    with pytest.raises(ValueError, match=r"'<\|endoftext\|>' at character 3"):
        tokenizer.encode(text, disallowed_special="all")
    assert 1 not in tokenizer.encode("<|im", allowed_special="all")


# Decoding


def test_three_bytes_of_one_character():
    tokenizer = train_tokenizer(HUG, 256)
    ids = tokenizer.encode("日")
    assert len(ids) == 3
    assert tokenizer.decode(ids) == "日"
    assert tokenizer.decode(ids[:1]) == "\ufffd"
    assert tokenizer.decode_bytes(ids[:1]) == b"\xe6"
    decoder = tokenizer.stream_decoder()
    assert [decoder.feed(id) for id in ids] == ["", "", "日"]


def test_a_special_is_skipped_where_that_is_asked_for():
    tokenizer = train_tokenizer(HUG, 300, special_tokens=["<s>"])
    ids = tokenizer.encode("hug<s>hug", allowed_special="all")
    assert tokenizer.decode(ids) == "hug<s>hug"
    assert tokenizer.decode(ids, skip_special=True) == "hughug"


# The prefix property


@pytest.mark.parametrize("recipe", ["hf", "cs336", "readable"])
def test_a_tokenizer_contains_every_smaller_one(recipe):
    text = [SENTENCE, LOW]
    full = train_tokenizer(text, 290, recipe, special_tokens=["<s>"])
    for size in range(257, full.vocab_size + 1):
        direct = train_tokenizer(text, size, recipe, special_tokens=["<s>"])
        assert full.truncated(size).fingerprint == direct.fingerprint
        assert full.truncated(size).training.curve == direct.training.curve
