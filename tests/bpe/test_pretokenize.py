"""The named patterns against worked examples, two independent engines, and what every cut must keep."""

import pickle
import random
import subprocess
import sys
import time
import warnings
from itertools import product

import pytest
import tiktoken
from bpe.texts_to_cut import FRAGMENTS, KINDS, any_text
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from minigpt_tok.bpe.classes import class_ranges, is_letter
from minigpt_tok.bpe.patterns import PATTERNS, known_pattern_name, oniguruma_expression
from minigpt_tok.bpe.pretokenize import UnicodeVersionWarning, get_pretokenizer

NAMES = tuple(PATTERNS)
DIGITS = ("digits1", "digits2", "llama3", "cl100k", "o200k")


def members(name):
    return [chr(point) for first, last in class_ranges(name) for point in range(first, last + 1)]


def at_class_borders():
    """The first and last character of every range of every class, and their neighbours."""
    points = {
        point
        for name in ("Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "White_Space")
        for first, last in class_ranges(name)
        for point in (first - 1, first, last, last + 1)
    }
    return [chr(point) for point in sorted(points) if not 0xD800 <= point <= 0xDFFF]


def random_texts(seed, how_many, longest=12):
    rng = random.Random(seed)
    borders = at_class_borders()
    anywhere = [*range(0xD800), *range(0xE000, 0x11DE0), *range(0x17000, 0x110000)]  # not where Digits is Unicode 17
    kinds = (lambda: rng.choice(FRAGMENTS), lambda: rng.choice(borders), lambda: chr(rng.choice(anywhere)))
    return [
        "".join(
            rng.choices(kinds, weights=(8, 2, 1))[0]() * rng.choice((1, 1, 1, 2, 4))
            for _ in range(rng.randint(1, longest))
        )
        for _ in range(how_many)
    ]


def all_ranks(texts):
    """Ranks in which every substring of every text is one token, so that tiktoken's ids show its pieces."""
    ranks = {bytes([value]): value for value in range(256)}
    for text in texts:
        for start, end in product(range(len(text)), range(1, len(text) + 1)):
            if start < end:
                ranks.setdefault(text[start:end].encode(), len(ranks))
    return ranks


def tiktoken_pieces(expression, texts, ranks):
    encoding = tiktoken.Encoding("pieces", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    return [
        [piece.decode() for piece in map(encoding.decode_single_token_bytes, encoding.encode_ordinary(text))]
        for text in texts
    ]


def hugging_face(name):
    """The pieces of a text as tokenizers cuts it, by its own classes where the pattern is made of those."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "gpt2":
        splitter = byte_level
    elif name == "smollm":
        splitter = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    else:
        splitter = pre_tokenizers.Split(Regex(oniguruma_expression(name)), "isolated")
    return lambda text: [text[start:end] for _, (start, end) in splitter.pre_tokenize_str(text)]


@pytest.fixture(scope="module")
def texts():
    return random_texts(seed=16, how_many=500)


@pytest.fixture(scope="module")
def ranks(texts):
    return all_ranks(texts)


# --- Worked examples ---


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt2", "I'm   here!!\n", ["I", "'m", "  ", " here", "!!", "\n"]),
        ("gpt2", "don't 2024 café", ["don", "'t", " 2024", " café"]),
        ("gpt2", "don't run 3 times.", ["don", "'t", " run", " 3", " times", "."]),
        ("gpt2", "DON'T", ["DON", "'", "T"]),
        ("gpt2", "x\ty\xa0z\u3000w", ["x", "\t", "y", "\xa0", "z", "\u3000", "w"]),
        ("gpt2", "½ Ⅷ", ["½", " Ⅷ"]),
        ("gpt2", "a\x1cb\x1f", ["a", "\x1c", "b", "\x1f"]),
        ("gpt2", "a \x1c", ["a", " \x1c"]),
        ("gpt2", "a\n  ", ["a", "\n  "]),
        ("gpt2", "hug hugs", ["hug", " hugs"]),
        ("digits1", "12 x", ["1", "2", " x"]),
        ("digits2", "12345", ["12", "34", "5"]),
        ("llama3", "1234567", ["123", "456", "7"]),
        ("llama3", "I'LL it'ſ\tx", ["I", "'LL", " it", "'ſ", "\tx"]),
        ("llama3", "a\n  ", ["a", "\n", "  "]),
        ("llama3", "a\n  b", ["a", "\n", " ", " b"]),
        ("llama3", "!!\r\n\r\n  \n x", ["!!\r\n\r\n", "  \n", " x"]),
        ("cl100k", "a\n  ", ["a", "\n  "]),
        ("cl100k", "a\n  \n", ["a", "\n  \n"]),
        ("cl100k", "a\n  b", ["a", "\n", " ", " b"]),
        ("cl100k", "12345 'RE", ["123", "45", " '", "RE"]),
        ("o200k", "HTMLParser isn'T", ["HTMLParser", " isn'T"]),
        ("o200k", "HTMLparseR", ["HTMLparse", "R"]),
        ("o200k", "!e\u0301 \u0301x", ["!e\u0301", " \u0301x"]),
        ("o200k", "...\n/\n/x", ["...\n/\n/", "x"]),
        ("smollm", "a  12 b's", ["a", "  ", "1", "2", " b", "'s"]),
        ("smollm", " ½x", [" ", "½", "x"]),
    ],
)
def test_worked_example(name, text, pieces):
    assert get_pretokenizer(name).pieces(text) == pieces


def test_digits1_counts_every_digit_and_leaves_the_space_before_a_number_alone():
    pieces = get_pretokenizer("digits1").pieces("In 1969, 600,000,000 people watched.")
    assert len(pieces) == 22
    assert pieces.count(" ") == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("letter", ["\u1c89", "\U00010d50", "\ua7dc"])
def test_letters_new_in_unicode_16_are_letters_whatever_python_knows(name, letter):
    assert get_pretokenizer(name).pieces(f" {letter}x") == [f" {letter}x"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("later", ["\ua7ce", "\U00011de0"])
def test_characters_of_later_versions_are_no_letters_and_numbers(name, later):
    assert get_pretokenizer(name).pieces(f"?{later}?") == [f"?{later}?"]


# --- Against two other engines ---


@pytest.mark.parametrize("name", NAMES)
def test_random_texts_as_tiktoken_cuts_them(name, texts, ranks):
    for text, theirs in zip(texts, tiktoken_pieces(PATTERNS[name], texts, ranks), strict=True):
        assert get_pretokenizer(name).pieces(text) == theirs, ascii(text)


@pytest.mark.parametrize("name", NAMES)
def test_random_texts_as_tokenizers_cuts_them(name, texts):
    oracle = hugging_face(name)
    for text in texts:
        assert get_pretokenizer(name).pieces(text) == oracle(text), ascii(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_short_text_of_every_kind_as_tokenizers_cuts_it(name):
    oracle, ours = hugging_face(name), get_pretokenizer(name)
    for length in range(1, 4):
        for parts in product((*KINDS, "re"), repeat=length):
            text = "".join(parts)
            assert ours.pieces(text) == oracle(text), ascii(text)


@pytest.mark.parametrize("name", NAMES)
def test_contractions_fold_as_unicode_does(name):
    # Whatever has case is in these classes, but for circled letters.
    cased = [*range(0x24B6, 0x24EA), *(ord(ch) for kind in ("Lu", "Ll", "Lt", "Lm", "M", "N") for ch in members(kind))]
    text = "".join(f"a'{chr(point)}x\n" for point in cased)
    ours = get_pretokenizer(name).pieces(text)
    assert ours == hugging_face(name)(text)
    contracted = {piece[-1] for piece in ours if piece[-2:-1] == "'" and is_letter(piece[-1])}
    assert contracted == set("sdmt" if name in ("gpt2", "smollm") else "sdmtSDMTſ")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "file",
    [
        "prose/gutenberg_1MB.txt",
        "multilingual/udhr2_major_scripts.txt",
        "wikitext-2/valid.txt",
        "tinystories/tinystories_v2_1728_stories.txt",
    ],
)
def test_real_text_as_tokenizers_cuts_it(name, file, shared):
    with open(shared / "corpora" / file, encoding="utf-8", newline="") as opened:
        text = opened.read(100_000)
    assert get_pretokenizer(name).pieces(text) == hugging_face(name)(text)


# --- What every cut keeps ---

any_name = st.sampled_from((*NAMES, "none"))


@settings(deadline=None)
@given(any_name, any_text)
@example("gpt2", "")
@example("none", "")
@example("o200k", "a\ud800b\udfff'\ud83d")
def test_pieces_join_back_and_none_is_empty(name, text):
    pieces = get_pretokenizer(name).pieces(text)
    assert "".join(pieces) == text
    assert all(pieces)


@settings(deadline=None)
@given(any_name, any_text)
def test_explain_gives_the_same_pieces_with_a_label_each(name, text):
    explained = get_pretokenizer(name).explain(text)
    assert [piece for piece, _ in explained] == get_pretokenizer(name).pieces(text)
    assert all(label for _, label in explained)


@settings(deadline=None)
@given(
    st.sampled_from(NAMES),
    st.text(
        [chr(point) for first, last in class_ranges("White_Space") for point in range(first, last + 1)],
        min_size=2,
        max_size=6,
    ),
    st.sampled_from(("word", "中", "!", "\U0001d400", "\U0001f600")),
)
def test_white_space_before_a_word_gives_up_its_last_character(name, run, word):
    *_, before, last = get_pretokenizer(name).pieces(f"x{run}{word}")
    if run[-1] in "\r\n" and name in DIGITS:  # takes the newlines instead
        assert (before, last) == (run, word)
    elif run[-1] == " " or (name in DIGITS and word != "!" and word != "\U0001f600"):
        assert last == run[-1] + word
        assert before[-1] == run[-2]
    else:
        assert (before, last) == (run[-1], word)


@settings(deadline=None)
@given(any_name, any_text, any_text)
def test_a_certain_cut_cuts_whatever_lies_around_it(name, left, right):
    pretokenizer = get_pretokenizer(name)
    if pretokenizer.is_certain_cut(left, right):
        assert pretokenizer.pieces(left) + pretokenizer.pieces(right) == pretokenizer.pieces(left + right)


@pytest.mark.parametrize("name", NAMES)
def test_certain_cuts_hold_around_every_pair_of_kinds(name):
    pretokenizer = get_pretokenizer(name)
    rest = ["", *KINDS, "e", "re", "'r", "!\n", "77", " \n"]
    for before, after in product((*KINDS, "e", "r", "s"), repeat=2):
        if pretokenizer.is_certain_cut(before, after):
            for left, right in product([some + before for some in rest], [after + some for some in rest]):
                apart = pretokenizer.pieces(left) + pretokenizer.pieces(right)
                assert pretokenizer.pieces(left + right) == apart, (left, right)


@settings(deadline=None)
@given(any_name, any_text)
def test_the_last_certain_cut_is_the_last_pair_that_is_certain(name, text):
    pretokenizer = get_pretokenizer(name)
    certain = [i for i in range(1, len(text)) if pretokenizer.is_certain_cut(text[i - 1], text[i])]
    assert pretokenizer.last_certain_cut(text) == max(certain, default=0)


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_text_has_certain_cuts(name):
    pretokenizer = get_pretokenizer(name)
    text = "It is a truth, universally"
    assert pretokenizer.last_certain_cut(text) == text.index(" universally")
    assert pretokenizer.is_certain_cut("7", "x")
    assert pretokenizer.is_certain_cut("x", "7")
    assert pretokenizer.is_certain_cut("中", "。")
    assert pretokenizer.is_certain_cut("end.\n", "Next") == (name in DIGITS)
    assert pretokenizer.is_certain_cut("\U0001d400", "\t")
    assert not pretokenizer.is_certain_cut(" ", "word")
    assert not pretokenizer.is_certain_cut("", "word")
    assert not pretokenizer.is_certain_cut("word", "")


# --- No text is quadratic ---


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", [*KINDS, "A", "\r\n", " \n", "A\u0301", "aA", "'s", "\U0001d400", "1,", "'"])
def test_long_runs_take_linear_time(name, unit):
    pretokenizer = get_pretokenizer(name)
    pretokenizer.pieces("a")
    pretokenizer.last_certain_cut("ab")
    began = time.perf_counter()
    for end in ("", "x", "!"):
        text = unit * (150_000 // len(unit)) + end
        pretokenizer.pieces(text)
        pretokenizer.last_certain_cut(text)
    assert time.perf_counter() - began < 4  # a hundredth of a second each; quadratic would be minutes


# --- Labels ---


def test_labels_say_which_alternative_cut():
    assert get_pretokenizer("gpt2").explain("I'm   12!! \n\tx  ") == [
        ("I", "letters"),
        ("'m", "contraction"),
        ("  ", "white space before a word"),
        (" 12", "numbers"),
        ("!!", "other"),
        (" \n", "white space before a word"),
        ("\t", "white space"),
        ("x", "letters"),
        ("  ", "white space at the end"),
    ]
    assert get_pretokenizer("llama3").explain("x\n\n") == [("x", "letters"), ("\n\n", "newlines")]
    assert get_pretokenizer("cl100k").explain("x\n\n") == [("x", "letters"), ("\n\n", "white space at the end")]
    assert get_pretokenizer("o200k").explain("ABc DE") == [("ABc", "letters"), (" DE", "capital letters")]
    assert get_pretokenizer("smollm").explain("1") == [("1", "number")]
    assert get_pretokenizer("none").explain("a b") == [("a b", "the whole text")]


# --- Names and spellings ---

HF_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TIKTOKEN_R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
EARLIER_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
SPELLINGS = [
    ("gpt2", HF_GPT2),
    ("gpt2", HF_GPT2.replace(r"\p{L}+", r"[\p{L}]+", 1).replace(r"\p{N}+", r"[\p{N}]+", 1)),
    ("gpt2", TIKTOKEN_R50K),
    ("llama3", EARLIER_CL100K),
    ("digits2", EARLIER_CL100K.replace("{1,3}", "{1,2}")),
    ("digits1", EARLIER_CL100K.replace("{1,3}", "")),
    ("cl100k", oniguruma_expression("cl100k")),
]


@pytest.mark.parametrize(("name", "spelling"), SPELLINGS)
def test_other_spellings_cut_alike_in_both_engines(name, spelling, texts, ranks):
    assert known_pattern_name(spelling) == known_pattern_name(spelling, engine="oniguruma") == name
    assert get_pretokenizer(spelling) is get_pretokenizer(name)
    theirs = pre_tokenizers.Split(Regex(spelling), "isolated")
    for text, from_tiktoken in zip(texts, tiktoken_pieces(spelling, texts, ranks), strict=True):
        assert get_pretokenizer(name).pieces(text) == from_tiktoken, ascii(text)
        assert [piece for piece, _ in theirs.pre_tokenize_str(text)] == from_tiktoken, ascii(text)


@pytest.mark.parametrize("name", NAMES)
def test_published_expression_gives_the_name(name):
    assert known_pattern_name(PATTERNS[name]) == name
    assert get_pretokenizer(PATTERNS[name]) is get_pretokenizer(name)
    assert get_pretokenizer(name).name == name
    assert get_pretokenizer(name).expression == PATTERNS[name]


def test_installed_tiktoken_s_expressions_have_names():
    from tiktoken_ext import openai_public

    assert known_pattern_name(openai_public.r50k_pat_str) == "gpt2"
    for name in ("cl100k", "o200k"):
        # Its constructors fetch the ranks, so the expression is looked for in what they were compiled from.
        code = getattr(openai_public, f"{name}_base").__code__.co_consts
        literals = {item for const in code for item in (const if isinstance(const, tuple) else (const,))}
        literals.add(
            "|".join(max((const for const in code if isinstance(const, tuple)), key=len)) if name == "o200k" else ""
        )
        assert PATTERNS[name] in literals, name


def test_tiktoken_s_spelling_of_cl100k_is_another_pattern_in_a_tokenizer_json():
    theirs = pre_tokenizers.Split(Regex(PATTERNS["cl100k"]), "isolated").pre_tokenize_str("1234567")
    assert [piece for piece, _ in theirs] == ["1234567"]
    assert get_pretokenizer("cl100k").pieces("1234567") == ["123", "456", "7"]
    assert known_pattern_name(PATTERNS["cl100k"], engine="oniguruma") is None
    assert oniguruma_expression("cl100k") != PATTERNS["cl100k"]
    assert oniguruma_expression("llama3") == PATTERNS["llama3"]


def test_unknown_expressions_have_no_name():
    assert known_pattern_name(r"\p{L}+") is None
    assert known_pattern_name("gpt2") is None


@pytest.mark.parametrize("pattern", [*NAMES, "none", r" ?\p{L}+|\s"])
def test_the_same_pattern_is_the_same_object_also_through_pickle(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnicodeVersionWarning)
        pretokenizer = get_pretokenizer(pattern)
    assert get_pretokenizer(pattern) is pretokenizer
    assert pickle.loads(pickle.dumps(pretokenizer)) is pretokenizer
    assert pattern in repr(pretokenizer) or repr(pattern) in repr(pretokenizer)


def test_none_is_one_piece_and_has_no_certain_cut():
    none = get_pretokenizer("none")
    assert none.pieces("a b\n c") == ["a b\n c"]
    assert none.pieces("") == []
    assert none.last_certain_cut("a b c") == 0
    assert not none.is_certain_cut("a", " ")
    assert (none.name, none.expression) == ("none", None)


def test_named_patterns_never_load_the_regex_package():
    code = (
        "import sys; from minigpt_tok.bpe.pretokenize import get_pretokenizer, PATTERNS;"
        "[get_pretokenizer(name).pieces('a 1') for name in PATTERNS];"
        "sys.exit(bool({'regex', 'torch', 'numpy', 'unicodedata2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
