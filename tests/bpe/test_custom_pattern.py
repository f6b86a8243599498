"""Any other regular expression as a pattern: cut by the regex package, as tokenizers would."""

import warnings

import pytest
from bpe.texts_to_cut import any_text
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.pretokenize import UnicodeVersionWarning, get_pretokenizer
from minigpt_tok.errors import TokenizerError


@pytest.fixture
def custom():
    def make(expression):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnicodeVersionWarning)
            return get_pretokenizer(expression)

    return make


@pytest.mark.parametrize(
    "expression", [r"\w+", r" ", r"(?=b)", r"(?=b)|b", r"x*", r"\b", r"(?<=a)", r"\Z", r"[ab]{2}", r"(a)(b)"]
)
@pytest.mark.parametrize("text", ["", "abab", "xx a bb  x", "日本 a.b", " ", "aab\nab"])
def test_custom_expression_cuts_as_split_isolated_does(expression, text, custom):
    theirs = pre_tokenizers.Split(Regex(expression), "isolated").pre_tokenize_str(text)
    assert custom(expression).pieces(text) == [piece for piece, _ in theirs if piece]


@settings(deadline=None)
@given(st.sampled_from([r"\w+", r"(?=b)", r"x*", r"\p{L}+|\d", r"\s+$"]), any_text)
def test_custom_pieces_join_back(expression, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnicodeVersionWarning)
        pretokenizer = get_pretokenizer(expression)
    pieces = pretokenizer.pieces(text)
    assert "".join(pieces) == text
    assert all(pieces)
    assert [piece for piece, _ in pretokenizer.explain(text)] == pieces
    assert pretokenizer.last_certain_cut(text) == 0


def test_custom_labels_and_names(custom):
    words = custom(r"\p{L}+")
    assert words.explain("ab, c") == [("ab", "the expression"), (", ", "between matches"), ("c", "the expression")]
    assert (words.name, words.expression) == (None, r"\p{L}+")
    assert not words.is_certain_cut("a", " ")


def test_custom_expression_warns_once_that_its_unicode_is_not_ours():
    expression = r"\p{L}+$|never asked for elsewhere"
    with pytest.warns(UnicodeVersionWarning, match=r"regex package \d.*may give other ids") as caught:
        get_pretokenizer(expression)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_pretokenizer(expression)
        get_pretokenizer(r"\p{L}+|all engines read this alike, so our own table does")
        for pattern in (*PATTERNS, *PATTERNS.values(), "none"):
            get_pretokenizer(pattern)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(a", r"missing \).*at character 2"),
        (r"\p{L}+|[z-a]", r"bad character range at character 11"),
        ("(" * 5000 + ")" * 5000, "no regular expression"),
        ("x" * 500 + "(", r"\.\.\.'"),
    ],
)
def test_invalid_expression_says_where(expression, message):
    with pytest.raises(TokenizerError, match=message):
        get_pretokenizer(expression)


@pytest.mark.parametrize("word", ["gpt3", "GPT2", "cl100k_base", "o-200"])
def test_misspelt_name_is_no_expression(word):
    with pytest.raises(TokenizerError, match=rf"{word}.*gpt2, digits1.*\(\?:{word}\)"):
        get_pretokenizer(word)


def test_empty_pattern_is_refused():
    with pytest.raises(TokenizerError, match=r"empty.*'none'"):
        get_pretokenizer("")
