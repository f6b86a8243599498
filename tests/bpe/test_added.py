"""Added tokens: found leftmost-longest, with their flags, and refused by name where that is asked for."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.added import AddedTokens, Matcher
from minigpt_tok.bpe.model import AddedToken
from minigpt_tok.errors import TokenizerError


def matches(text, *contents, **flags):
    matcher = Matcher(AddedToken(content=content, id=number, **flags) for number, content in enumerate(contents))
    return [(start, part if isinstance(part, str) else part.id) for start, part in matcher.split(text)]


def test_the_leftmost_token_is_taken_and_of_those_the_longest():
    assert matches("xabcx", "ab", "abc", "bcx") == [(0, "x"), (1, 1), (4, "x")]
    assert matches("xbcx", "ab", "abc", "bcx") == [(0, "x"), (1, 2)]


def test_the_order_in_which_tokens_are_given_does_not_matter():
    assert matches("<a><a>!", "<a>", "<a><a>") == [(0, 1), (6, "!")]
    assert matches("<a><a>!", "<a><a>", "<a>") == [(0, 0), (6, "!")]


def test_part_of_a_token_is_text():
    assert matches("<|im and <|im_start|", "<|im_start|>") == [(0, "<|im and <|im_start|")]


def test_characters_with_a_meaning_in_regular_expressions_are_taken_as_they_are():
    assert matches("a.+(b)*", ".+", "(b)*") == [(0, "a"), (1, 0), (3, 1)]


def test_nothing_to_find_is_one_segment_and_the_empty_text_none():
    assert matches("text") == [(0, "text")]
    assert matches("") == []
    assert matches("", "x") == []


def test_stripping_flags_take_the_white_space_on_their_side():
    assert matches("a  <x>  b", "<x>", lstrip=True) == [(0, "a"), (1, 0), (6, "  b")]
    assert matches("a  <x>  b", "<x>", rstrip=True) == [(0, "a  "), (3, 0), (8, "b")]
    assert matches("<x>  <x>", "<x>", lstrip=True, rstrip=True) == [(0, 0), (5, 0)]


def test_single_word_wants_no_word_character_beside_the_token():
    assert matches("ab a, _a a_ a", "a", single_word=True) == [(0, "ab "), (3, 0), (4, ", _a a_ "), (12, 0)]


@pytest.fixture
def specials():
    return AddedTokens(
        [
            AddedToken(content="<a>", id=0),
            AddedToken(content="<b>", id=1),
            AddedToken(content="<c>", id=2, special=False),
        ]
    )


def found(specials, text, allowed):
    return [token.content for _, _, token in specials.matcher(allowed).find(text)]


def test_allowed_specials_are_matched_and_tokens_that_are_not_special_always(specials):
    text = "<a><b><c>"
    assert found(specials, text, ()) == ["<c>"]
    assert found(specials, text, {"<b>"}) == ["<b>", "<c>"]
    assert found(specials, text, "all") == ["<a>", "<b>", "<c>"]
    assert found(specials, text, {"<not one of them>"}) == ["<c>"]


def test_a_disallowed_special_is_named_with_its_place_and_a_remedy_for_each_intention(specials):
    with pytest.raises(TokenizerError) as error:
        specials.refuse("xy<b>", (), "all")
    message = str(error.value)
    assert "'<b>' at character 2" in message
    assert "allowed_special={'<b>'}" in message
    assert "disallowed_special" in message


def test_allowed_wins_over_disallowed_and_tokens_that_are_not_special_are_never_refused(specials):
    specials.refuse("<a><c>", {"<a>"}, "all")
    specials.refuse("<a><c>", (), {"<c>", "<b>"})
    with pytest.raises(TokenizerError, match="'<a>'"):
        specials.refuse("<a>", {"<b>"}, {"<a>"})


def test_a_token_inside_a_longer_one_is_not_refused_for_itself():
    tokens = AddedTokens([AddedToken(content="<a>", id=0), AddedToken(content="<a><a>", id=1)])
    tokens.refuse("x<a><a>", {"<a><a>"}, "all")
    with pytest.raises(TokenizerError, match="character 7"):
        tokens.refuse("x<a><a><a>", {"<a><a>"}, "all")


@pytest.mark.parametrize("argument", ["allowed_special", "disallowed_special"])
def test_a_string_in_place_of_a_set_is_refused_by_the_arguments_name(specials, argument):
    allowed, disallowed = ("<a>", "all") if argument == "allowed_special" else ((), "<a>")
    with pytest.raises(TokenizerError, match=f"^{argument} is the string '<a>'"):
        specials.refuse("text", allowed, disallowed)


CONTENTS = ["<a>", "ab", "bb", "a b", "aab", " a", "ab_"]


@st.composite
def token_sets(draw):
    contents = draw(st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=4, unique=True))
    flag = st.booleans()
    return [
        {
            "id": 256 + number,
            "content": content,
            "single_word": draw(flag),
            "lstrip": draw(flag),
            "rstrip": draw(flag),
            "normalized": False,
            "special": True,
        }
        for number, content in enumerate(contents)
    ]


@settings(max_examples=300, deadline=None)
@given(token_sets(), st.text("ab <>_\n", max_size=14))
def test_spans_are_those_of_hugging_face(tokens, text):
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE({c: n for n, c in enumerate(alphabet)}, []))
    theirs.add_special_tokens(
        [
            tokenizers.AddedToken(
                t["content"],
                single_word=t["single_word"],
                lstrip=t["lstrip"],
                rstrip=t["rstrip"],
                normalized=False,
                special=True,
            )
            for t in tokens
        ]
    )
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoding = theirs.encode(text)
    expected = [
        (id, span)
        for id, span in zip(encoding.ids, encoding.offsets, strict=True)
        if theirs.id_to_token(id) in {t["content"] for t in tokens}
    ]
    fields = ("content", "id", "single_word", "lstrip", "rstrip")
    matcher = Matcher(AddedToken(**{name: token[name] for name in fields}) for token in tokens)
    assert [(token.id, (start, end)) for start, end, token in matcher.find(text)] == expected


@settings(max_examples=300, deadline=None)
@given(token_sets(), st.text("ab <>_\n", max_size=30))
@example([], "text")
def test_segments_join_back_to_the_text(tokens, text):
    fields = ("content", "id", "single_word", "lstrip", "rstrip")
    matcher = Matcher(AddedToken(**{name: token[name] for name in fields}) for token in tokens)
    done = 0
    ends = {start: end for start, end, _ in matcher.find(text)}
    for start, part in matcher.split(text):
        # As in tokenizers, a token may begin within the white space that the one before it has taken.
        assert start == done or (not isinstance(part, str) and start < done and text[start:done].isspace())
        done = start + len(part) if isinstance(part, str) else ends[start]
        assert part
    assert done == len(text)
