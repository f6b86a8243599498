"""From documents to a numbered model: what is counted, what is refused, what the record says."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.encoder import Encoder
from minigpt_tok.bpe.recipes import RECIPES, get_recipe
from minigpt_tok.bpe.renumber import truncated
from minigpt_tok.bpe.trainer import Training, peak_memory, train_model
from minigpt_tok.errors import CorpusError, TokenizerError
from minigpt_tok.fingerprint import fingerprint

TEXT = "the cat sat on the mat. the cat ate the rat, and it's 1234 o'clock!\n\n don't café 日本日本 "


def merges_of(documents, recipe="hf", vocab_size=100_000, specials=(), **switches):
    model, _ = train_model(documents, vocab_size, get_recipe(recipe, **switches), specials)
    return [(model.tokens[left].decode(), model.tokens[right].decode()) for left, right in model.merges]


# What is counted


def test_no_merge_crosses_a_document_or_a_piece():
    assert merges_of(["ab", "ab"], min_frequency=1) == [("a", "b")]
    assert merges_of(["abab"], min_frequency=1) == [("a", "b"), ("ab", "ab")]
    assert merges_of(["a b", "a b"], min_frequency=1) == [(" ", "b")]
    assert merges_of(["a b", "a b"], pattern="none", min_frequency=1) == [("a", " "), ("a ", "b")]


def test_specials_split_the_text_and_are_not_learned_from():
    text = "ab<|endoftext|>ab<|endoftext|>ab"
    assert merges_of([text], specials=("<|endoftext|>",), min_frequency=1) == [("a", "b")]
    assert ("<", "|") in merges_of([text])


def test_specials_in_the_text_split_it_leftmost_longest():
    both = merges_of(["xab<a><a>y"], specials=("<a>", "<a><a>"), min_frequency=1)
    assert both == merges_of(["xab", "y"], min_frequency=1)
    assert "".join(map("".join, merges_of(["<a>b"], specials=("<a>",), min_frequency=1))) == ""


def test_the_patterns_look_ahead_sees_the_end_at_a_special():
    """White space before a special is at the end of its segment, so it is one piece of two and not one and one."""
    assert (" ", " ") in merges_of(["a  <s>b", "a  <s>b"], specials=("<s>",))
    assert (" ", " ") not in merges_of(["a  b", "a  b"])


@pytest.mark.parametrize("recipe", ["hf", "cs336", "readable"])
def test_segments_and_specials_between_them_are_the_same(recipe):
    segments = [TEXT, "more text  ", " \n", "the end"]
    joined = train_model(["<s>".join(segments)], 320, get_recipe(recipe), ("<s>",))[0]
    apart = train_model(segments, 320, get_recipe(recipe), ("<s>",))[0]
    assert joined == apart


def test_characters_and_bytes_of_documents_are_counted_once_each():
    _, record = train_model(["é" * 10, "", "ab"], 260, get_recipe("hf"))
    assert (record.documents, record.bytes, record.distinct_pieces) == (3, 22, 2)
    assert record.base_tokens == 22


# Numbers


@pytest.mark.parametrize(
    ("recipe", "special", "space", "exclamation", "first_merge"),
    [("hf", 0, 222, 2, 258), ("cs336", 256, 32, 33, 258), ("readable", None, 32, 33, 256)],
)
def test_ids_stand_in_the_recipes_order(recipe, special, space, exclamation, first_merge):
    model, _ = train_model([TEXT] * 2, 270, get_recipe(recipe), ("<s>", "<t>"))
    assert model.vocab_size == 270
    assert model.base_ids[b" "] == space
    assert model.base_ids[b"!"] == exclamation
    assert model.merge_results[0] == first_merge
    assert [token.id for token in model.added_tokens] == ([268, 269] if special is None else [special, special + 1])
    assert all(token.special for token in model.added_tokens)


def test_without_specials_the_space_is_220_in_hf():
    assert train_model([TEXT], 256, get_recipe("hf"))[0].base_ids[b" "] == 220


def test_characters_stand_by_code_point():
    model, _ = train_model(["ba é日"], 10, get_recipe("character"))
    assert [token.decode() for token in model.tokens] == [" ", "a", "b", "é", "日"]


def test_32000_ids_of_cs336_have_room_for_31743_merges():
    _, record = train_model(["ab"], 32_000, get_recipe("cs336"), ("<|endoftext|>",))
    assert record.vocab_size - 256 - 1 == 31_743


# Alphabets


def test_base_characters_may_come_from_more_text_than_the_merges():
    model, _ = train_model(["abab"], 10, get_recipe("character", base_characters="abzé"))
    assert [token.decode() for token in model.tokens] == ["a", "b", "z", "é", "ab"]


def test_base_characters_that_lack_some_of_the_text_are_refused_with_a_list():
    with pytest.raises(TokenizerError, match=r"base_characters lacks 2 .*'a', 'é'"):
        train_model(["éab"], 10, get_recipe("character", base_characters="b"))


def test_the_initial_alphabet_is_there_whether_the_text_has_it_or_not():
    model, _ = train_model(["ab"], 10, get_recipe("character", initial_alphabet="z"))
    assert [token.decode() for token in model.tokens] == ["a", "b", "z"]


def test_a_limited_alphabet_keeps_the_most_frequent_and_of_equals_the_lower_code_point():
    model, _ = train_model(["ccabbaz"], 4, get_recipe("character", limit_alphabet=3))
    assert [token.decode() for token in model.tokens] == ["a", "b", "c"]
    model, _ = train_model(["ddccbbaa"], 2, get_recipe("character", limit_alphabet=2))
    assert [token.decode() for token in model.tokens] == ["a", "b"]


def test_characters_outside_a_limited_alphabet_cut_the_text():
    model, _ = train_model(["aazaa aazaa"], 10, get_recipe("character", limit_alphabet=1, min_frequency=1))
    assert [token.decode() for token in model.tokens] == ["a", "aa"]


def test_an_initial_alphabet_stays_within_the_limit_before_what_is_frequent():
    model, _ = train_model(["aaab"], 4, get_recipe("character", limit_alphabet=2, initial_alphabet="z"))
    assert [token.decode() for token in model.tokens][:2] == ["a", "z"]


def test_the_longest_token_is_bounded_in_units():
    longest = {
        limit: max(map(len, train_model(["abcdefgh"] * 3, 300, get_recipe("hf", max_token_length=limit))[0].id_of))
        for limit in (1, 2, 3, 8)
    }
    assert longest[1] == 1
    assert longest[2] == 2
    assert longest[3] <= 3
    assert longest[8] == 8
    model, _ = train_model(["日本日本"], 300, get_recipe("character", max_token_length=2, min_frequency=1))
    assert max(len(token.decode()) for token in model.tokens) == 2


# Refusals


@pytest.mark.parametrize(
    ("documents", "vocab_size", "recipe", "specials", "named"),
    [
        (["ab"], 255, "hf", (), "vocab_size is 255"),
        (["ab"], 256, "hf", ("<s>",), "vocab_size is 256"),
        (["abc"], 2, "character", (), "vocab_size is 2"),
        (["abc"], 0, "character", (), "vocab_size is 0"),
        (["ab"], -1, "hf", (), "vocab_size is -1"),
        (["ab"], 300.0, "hf", (), "vocab_size is 300.0"),
        (["ab"], "300", "hf", (), "vocab_size is '300'"),
        (["ab"], True, "hf", (), "vocab_size is True"),
        (["ab"], 300, "hf", ("<s>", "<s>"), "special_tokens"),
        (["ab"], 300, "character", ("<s>",), "special_tokens"),
        ([], 300, "hf", (), "no documents"),
        (["", ""], 300, "readable", (), "only empty documents"),
        ([], 300, "character", (), "no documents"),
        (["ab", b"ab"], 300, "hf", (), "document 1 is bytes"),
        (["ab", "a\udc00"], 300, "hf", (), "document 1 has a lone surrogate at character 1"),
        (["a\udc00"], 300, "character", (), "document 0 has a lone surrogate"),
    ],
)
def test_what_cannot_be_trained_on_or_to_is_named(documents, vocab_size, recipe, specials, named):
    with pytest.raises(ValueError, match=named) as error:
        train_model(documents, vocab_size, get_recipe(recipe), specials)
    assert isinstance(error.value, TokenizerError | CorpusError)


def test_exactly_the_base_and_the_specials_is_allowed_and_has_no_merges():
    model, record = train_model(["abab"], 257, get_recipe("hf"), ("<s>",))
    assert model.merges == ()
    assert record.stopped == "0 merges were asked for"


def test_text_of_specials_alone_gives_no_merges():
    assert merges_of(["<s><s>"], specials=("<s>",)) == []


@pytest.mark.parametrize("pattern", ["unheard", "", "(unclosed"])
def test_a_pattern_that_cannot_be_is_refused_before_any_document_is_read(pattern):
    def documents():
        raise AssertionError("read")
        yield

    with pytest.raises(TokenizerError, match="pattern"):
        train_model(documents(), 300, get_recipe("hf", pattern=pattern))


# The record


def test_the_record_says_what_was_done():
    documents = ["low low lower", "lower"]
    model, record = train_model(documents, 261, get_recipe("hf"), ("<s>",))
    assert record.recipe["name"] == "hf"
    assert record.recipe["pattern"] == "gpt2"
    assert record.recipe["min_frequency"] == 2
    assert record.special_tokens == ("<s>",)
    assert record.vocab_size == 261
    assert record.documents == 2
    assert record.bytes == 18
    assert record.distinct_pieces == 4
    assert record.seconds > 0
    assert record.megabytes_per_second > 0
    assert record.peak_memory is None or record.peak_memory > 1 << 20
    assert record.counts[0] == 4
    assert len(record.counts) == len(record.curve) == len(model.merges) == 4
    assert record.stopped == "4 merges were asked for"


def test_the_record_goes_through_plain_values_and_back():
    _, record = train_model(["low low"], 300, get_recipe("character"))
    assert Training.from_plain(record.to_plain()) == record


def test_peak_memory_is_in_bytes():
    peak = peak_memory()
    assert peak is None or 1 << 20 < peak < 1 << 44


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("ab c1é\n", max_size=30), min_size=1, max_size=5).filter(any),
    st.sampled_from(sorted(RECIPES)),
)
def test_the_curve_is_what_encoding_the_training_text_gives(documents, recipe):
    size = 400
    model, record = train_model(documents, size, get_recipe(recipe, min_frequency=1))
    fixed = model.vocab_size - len(model.merges)
    for merges, tokens in enumerate((record.base_tokens, *record.curve)):
        smaller = Encoder(truncated(model, fixed + merges))
        assert sum(len(smaller.encode(document)) for document in documents) == tokens


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("ab c1é<s>\n", max_size=40), min_size=1, max_size=5).filter(any),
    st.sampled_from(sorted(RECIPES)),
    st.sampled_from([(), ("<s>",), ("<s>", "a b")]),
    st.data(),
)
def test_a_smaller_tokenizer_is_a_prefix_of_every_larger_one(documents, recipe, specials, data):
    specials = () if recipe == "character" else specials
    recipe = get_recipe(recipe, min_frequency=1)
    model, record = train_model(documents, 400, recipe, specials)
    fixed = model.vocab_size - len(model.merges)
    size = data.draw(st.integers(fixed, model.vocab_size))
    direct, direct_record = train_model(documents, size, recipe, specials)
    assert truncated(model, size) == direct
    assert fingerprint(truncated(model, size)) == fingerprint(direct)
    shorter = record.truncated(size - fixed, size)
    assert (shorter.counts, shorter.curve) == (direct_record.counts, direct_record.curve)
    assert shorter.vocab_size == direct_record.vocab_size
    if size < model.vocab_size:
        assert shorter.stopped == direct_record.stopped


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text("ab c1é\n", max_size=30), min_size=1, max_size=5).filter(any),
    st.sampled_from(["hf", "cs336"]),
    st.randoms(use_true_random=False),
)
def test_training_depends_on_the_documents_alone(documents, recipe, random):
    shuffled = list(documents)
    random.shuffle(shuffled)
    first = train_model(documents, 300, get_recipe(recipe))[0]
    assert train_model(documents, 300, get_recipe(recipe))[0] == first
    assert train_model(iter(shuffled), 300, get_recipe(recipe))[0] == first


def test_progress_says_chunks_bytes_pieces_and_merges():
    seen = []
    train_model(["low low", "lower"], 258, get_recipe("hf"), progress=lambda *step: seen.append(step))
    assert seen[:4] == [("chunks", 1, None), ("bytes", 12, None), ("distinct pieces", 3, 3), ("merges", 0, 2)]
    assert seen[-1] == ("merges", 2, 2)


def test_the_model_knows_the_pattern_by_its_name():
    expression = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    named, _ = train_model([TEXT], 270, get_recipe("hf"))
    spelled, _ = train_model([TEXT], 270, get_recipe("hf", pattern=expression))
    assert replace(spelled, pattern="gpt2") == named
    assert fingerprint(spelled) == fingerprint(named)
