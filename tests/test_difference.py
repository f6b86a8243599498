"""What differs between two tokenizers: the first thing, the ids that change meaning, overlap, ties."""

import dataclasses
import itertools

import pytest

from minigpt_tok import Tokenizer
from minigpt_tok.bpe.model import ALL_BYTES, AddedToken, BPEModel
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.difference import counts_on, difference, first_difference, readable

TEXT = "the cat sat on the mat. the cat ate the rat."
OTHER = "zoo zoo zebra zebra zip zip zap the zoo"


def train(text, size, recipe="hf", specials=(), **switches):
    switches.setdefault("min_frequency", 1)
    return Tokenizer(*train_model([text], size, get_recipe(recipe, **switches), specials))


def with_merges(*merges, specials=(), pattern="gpt2"):
    """A tokenizer of all bytes and these merges, in order."""
    tokens = [*ALL_BYTES]
    pairs = []
    for left, right in merges:
        pairs.append((tokens.index(left), tokens.index(right)))
        tokens.append(left + right)
    added = tuple(AddedToken(content=text, id=len(tokens) + n) for n, text in enumerate(specials))
    return Tokenizer(
        BPEModel(
            tokens=(*tokens, *(None for _ in added)),
            merges=tuple(pairs),
            merge_results=tuple(range(256, 256 + len(pairs))),
            pattern=pattern,
            added_tokens=added,
        )
    )


def test_two_equal_tokenizers_differ_in_nothing():
    found = difference(train(TEXT, 270), train(TEXT, 270))
    assert found.same
    assert found.reasons == ()
    assert found.first is None
    assert found.first_merge is None
    assert found.ids_changed == 0
    assert found.shared_tokens == found.all_tokens == 270
    assert first_difference(train(TEXT, 270), train(TEXT, 270)) is None
    assert "same tokenizer" in str(found)


def test_the_training_record_and_the_name_are_no_difference():
    trained = train(TEXT, 270)
    assert difference(trained, Tokenizer(trained.model, name="another")).same


def test_the_first_different_merge_is_named_with_its_rank_and_both_merges():
    a = with_merges((b"t", b"h"), (b"th", b"e"), (b" ", b"the"))
    b = with_merges((b"t", b"h"), (b"h", b"e"), (b" ", b"t"))
    found = difference(a, b, names=("the checkpoint", "the tokenizer"))
    assert found.first_merge.rank == 1
    assert found.first_merge.first == ("th", "e")
    assert found.first_merge.second == ("h", "e")
    assert found.first == "the merge at rank 1: 'th' + 'e' in the checkpoint, 'h' + 'e' in the tokenizer"


def test_a_merge_is_shown_as_a_person_reads_it():
    a = with_merges((b" ", b"t"))
    b = with_merges((b"\n", b"\xe6"))
    assert "'␣' + 't'" in first_difference(a, b)
    assert r"'⏎' + '\xe6'" in first_difference(a, b)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b" the", "␣the"),
        (b"\n\t\r", r"⏎⇥\r"),
        ("é日".encode(), "é日"),
        (b"\xe6\x97", r"\xe6\x97"),
        (b"\x00\x1b[31m", r"\x00\x1b[31m"),
        ("\u200b\u202e".encode(), r"\u200b\u202e"),
        (b"", ""),
    ],
)
def test_readable_shows_white_space_and_never_a_control_character(raw, shown):
    assert readable(raw) == shown


def test_equal_size_and_another_order_of_two_merges():
    a = with_merges((b"a", b"b"), (b"c", b"d"))
    b = with_merges((b"c", b"d"), (b"a", b"b"))
    found = difference(a, b)
    assert found.first_merge.rank == 0
    assert found.ids_changed == 2
    assert [(changed.id, changed.first, changed.second) for changed in found.changed] == [
        (256, "ab", "cd"),
        (257, "cd", "ab"),
    ]
    assert found.shared_tokens == found.all_tokens == 258


def test_units_differ_before_everything_else():
    found = difference(train(TEXT, 270), train(TEXT, 20, "character"))
    assert found.first.startswith("the unit: bytes in the first, characters in the second")


def test_sizes_differ_before_merges_and_the_shared_merges_are_said():
    large, small = train(TEXT, 270), train(TEXT, 265)
    found = difference(large, small)
    assert found.first == "the vocabulary size: 270 in the first, 265 in the second"
    assert found.first_merge.rank == 9
    assert found.first_merge.second is None
    assert any("the first 9 are equal" in reason for reason in found.reasons)
    assert (found.ids_changed, found.only_first, found.only_second) == (0, 5, 0)


def test_sizes_differ_and_so_does_a_merge():
    found = difference(train(TEXT, 270), train(OTHER, 265))
    assert "vocabulary size" in found.first
    assert "the merge at rank 0" in found.reasons[1]


def test_base_characters_differ():
    a = train("abab", 3, "character", base_characters="ab")
    b = train("acac", 3, "character", base_characters="ac")
    found = difference(a, b)
    assert found.first == "the base tokens: 'b' is only in the first, 'c' only in the second"


def test_pre_tokenizers_differ():
    merges = [(b"a", b"b")]
    found = difference(with_merges(*merges), with_merges(*merges, pattern="llama3"))
    assert found.first == "the pre-tokenizer: gpt2 in the first, llama3 in the second"
    assert found.first_merge is None
    assert found.ids_changed == 0


def test_a_long_expression_is_not_shown_whole():
    found = difference(with_merges(), with_merges(pattern=r"\p{L}+|" * 200 + r"\P{L}"))
    assert "the pre-tokenizer: gpt2 in the first" in found.first
    assert len(found.first) < 300


def test_character_tokenizers_differ_in_their_pattern():
    model = train("low lower", 12, "character").model
    found = difference(Tokenizer(model), Tokenizer(dataclasses.replace(model, pattern="gpt2")))
    assert found.first == "the pre-tokenizer: none in the first, gpt2 in the second"


def test_specials_differ():
    merges = [(b"a", b"b")]
    plain, end = with_merges(*merges), with_merges(*merges, specials=["<|end|>"])
    assert difference(plain, end).reasons[1] == "the special token '<|end|>': only in the second, with id 257"
    swapped = difference(
        with_merges(*merges, specials=["<a>", "<b>"]),
        with_merges(*merges, specials=["<b>", "<a>"]),
    )
    assert swapped.first == "the special token '<a>': id 257 in the first, id 258 in the second"
    assert swapped.ids_changed == 2
    assert len(swapped.reasons) == 2  # one for each special, none for a numbering that follows from them
    many = difference(plain, with_merges(*merges, specials=[f"<{n}>" for n in range(9)]))
    assert many.reasons[-1] == "4 more differences of special or added tokens"


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_flags_of_an_added_token_differ(flag):
    plain = with_merges(specials=["<a>"])
    token = dataclasses.replace(plain.model.added_tokens[0], **{flag: True})
    flagged = Tokenizer(dataclasses.replace(plain.model, added_tokens=(token,)))
    assert difference(plain, flagged).first == f"the special token '<a>': {flag} only in the second"
    assert difference(flagged, plain).first == f"the special token '<a>': {flag} only in the first"


def test_an_added_token_that_is_special_in_one_only():
    plain = with_merges(specials=["<a>"])
    token = dataclasses.replace(plain.model.added_tokens[0], special=False)
    other = Tokenizer(dataclasses.replace(plain.model, added_tokens=(token,)))
    assert difference(plain, other).first == "the added token '<a>': special only in the first"


def test_a_special_is_another_meaning_than_an_ordinary_token_with_the_same_text():
    learned = with_merges((b"<", b"a"))
    special = with_merges(specials=["<a"])
    found = difference(learned, special)
    assert found.ids_changed == 1
    assert found.changed[0].second == "<a (special)"


def test_only_the_numbering_differs():
    a = train(TEXT, 270, specials=("<|endoftext|>",))
    found = difference(a, a.with_id_order("bytes_first"))
    assert found.first_merge is None
    assert any(reason.startswith("the numbering: id 0 is '<|endoftext|>") for reason in found.reasons)
    assert found.shared_tokens == found.all_tokens == 270
    assert found.ids_changed > 200


def test_a_numbering_that_differs_is_said_beside_a_merge_that_does():
    found = difference(train(TEXT, 270), train(TEXT, 270, "cs336"))
    assert found.reasons[0].startswith("the merge at rank")
    assert found.reasons[1] == r"the numbering: id 0 is '!' in the first, '\x00' in the second"
    assert not any("numbering" in reason for reason in difference(train(TEXT, 270), train(OTHER, 270)).reasons)


def test_the_whole_piece_rule_differs_only_where_it_acts():
    # 'abcd' is made by no merge of the tokens below it: it is reached whole or not at all.
    tokens = (*ALL_BYTES, b"abcd")
    base = BPEModel(tokens=tokens, rank_rule="bytes")
    found = difference(Tokenizer(base), Tokenizer(dataclasses.replace(base, whole_piece=True)))
    assert found.first == "the rule that a piece which is a token is taken whole: only in the second"
    harmless = BPEModel(tokens=(*ALL_BYTES, b"ab"), rank_rule="bytes")
    assert difference(Tokenizer(harmless), Tokenizer(dataclasses.replace(harmless, whole_piece=True))).same


def test_rank_rules_differ():
    # By bytes 'a' + 'bc' merges too; by pair only 'ab' + 'c' does.
    tokens = (*ALL_BYTES, b"ab", b"bc", b"abc")
    a, b, c = 97, 98, 99
    pairs = ((b, c), (a, b), (256, c))
    by_pair = BPEModel(tokens=tokens, merges=pairs, merge_results=(257, 256, 258))
    by_bytes = BPEModel(tokens=tokens, rank_rule="bytes")
    found = difference(Tokenizer(by_bytes), Tokenizer(by_pair))
    assert not found.same
    assert found.first_merge.rank == 0
    assert found.ids_changed == 0


def test_one_tokenizer_as_merges_and_as_ranks_is_the_same():
    trained = train(TEXT, 270)
    ranks = Tokenizer(dataclasses.replace(trained.model, merges=(), merge_results=(), rank_rule="bytes"))
    assert difference(trained, ranks).same
    other = ranks.with_special_tokens(["<x>"])
    found = difference(trained, other)
    assert found.first_merge is None  # the same merges, written another way
    assert [reason.split(":")[0] for reason in found.reasons] == ["the vocabulary size", "the special token '<x>'"]


def test_all_splits_and_ranks_are_the_same_merges():
    # As Llama 3's tokenizer.json: every way to split each token is in its merge list.
    tokens = (*ALL_BYTES, b"ab", b"bc", b"abc")
    a, b, c = 97, 98, 99
    splits = BPEModel(tokens=tokens, merges=((a, b), (b, c), (a, 257), (256, c)), merge_results=(256, 257, 258, 258))
    ranks = Tokenizer(BPEModel(tokens=tokens, rank_rule="bytes"))
    assert difference(Tokenizer(splits), ranks).same
    assert difference(Tokenizer(splits), ranks.with_special_tokens(["<x>"])).first_merge is None


def test_a_tie_decided_the_first_different_merge():
    # 'ab' and 'cd' occur equally often; each recipe takes another one first.
    a = train("ab cd", 257, "hf")
    b = train("ab cd", 257, "cs336", id_order="specials_first")
    found = difference(a, b)
    merge = found.first_merge
    assert (merge.first, merge.second) == (("a", "b"), ("c", "d"))
    assert (merge.first_count, merge.second_count) == (1, 1)
    assert merge.tie is True
    assert "a tie decided" in str(found)


def test_no_tie_where_the_counts_differ():
    found = difference(train("ab ab cd", 257), train("ab cd cd", 257))
    assert (found.first_merge.first_count, found.first_merge.second_count) == (2, 2)
    assert found.first_merge.tie is False  # equal counts of two texts
    found = difference(train("ab ab ab cd", 257), train("ab cd cd", 257))
    assert found.first_merge.tie is False
    assert "no tie" in str(found)


def test_equal_measures_of_other_texts_are_no_tie():
    # Equal bytes, pieces and counts, but the texts before the merge are told apart by what the other merges left.
    a, b = train("xy xy ab", 258), train("xy xy cd", 258)
    found = difference(a, b)
    assert found.first_merge.rank == 1
    # Nothing in the records tells these texts apart, so it can only be said that the counts are equal.
    assert found.first_merge.tie is True
    assert "if both learned from one text" in str(found)


@pytest.mark.parametrize("measure", ["documents", "bytes", "distinct_pieces", "base_tokens", "curve"])
def test_records_of_other_texts_are_no_tie(measure):
    a, b = train("xy xy ab", 258), train("xy xy cd", 258)
    assert difference(a, b).first_merge.tie is True
    value = getattr(b.training, measure)
    changed = tuple(n + 1 for n in value) if measure == "curve" else value + 1
    other = Tokenizer(b.model, dataclasses.replace(b.training, **{measure: changed}))
    assert difference(a, other).first_merge.tie is False


def test_a_record_that_does_not_fit_its_merges_says_nothing():
    a, b = train("xy xy ab", 258), train("xy xy cd", 258)
    short = Tokenizer(b.model, dataclasses.replace(b.training, counts=b.training.counts[:1]))
    assert difference(a, short).first_merge.second_count is None
    assert difference(a, short).first_merge.tie is None


def test_a_tie_is_unknown_without_both_records():
    a, b = train("ab cd", 257, "hf"), train("ab cd", 257, "cs336")
    found = difference(a, Tokenizer(b.model))
    assert found.first_merge.tie is None
    assert found.first_merge.second_count is None
    assert "tie" not in str(found)


def test_only_a_few_ids_are_listed_and_all_are_counted():
    found = difference(train(TEXT, 268), train(OTHER, 268), show=3)
    assert len(found.changed) == 3
    assert found.ids_changed > 3
    assert found.changed[0].id == 256
    assert f"{found.ids_changed} of 268 ids change meaning" in str(found)
    assert str(found).count("id 25") == 3


def test_overlap_counts_tokens_not_ids():
    found = difference(train(TEXT, 257), train(OTHER, 257))
    assert (found.shared_tokens, found.all_tokens) == (256, 258)
    assert "256 of 258" in str(found)


def test_holes_are_ids_without_meaning():
    full = BPEModel(tokens=(*ALL_BYTES, b"ab", b"cd"), rank_rule="bytes")
    holed = BPEModel(tokens=(*ALL_BYTES, None, b"cd"), rank_rule="bytes")
    found = difference(Tokenizer(full), Tokenizer(holed))
    assert found.ids_changed == 1
    assert (found.changed[0].id, found.changed[0].first, found.changed[0].second) == (256, "ab", None)
    assert "nothing" in str(found)


def test_counts_on_a_text():
    counts = counts_on(train(TEXT, 270), train(OTHER, 270), [TEXT, "é", ""])
    assert counts.documents == 3
    assert counts.bytes == len(TEXT) + 2
    assert counts.first < counts.second
    assert counts.documents_that_differ == 1
    assert counts.bytes_per_token[0] == counts.bytes / counts.first
    assert "%" in str(counts)
    empty = counts_on(train(TEXT, 270), train(OTHER, 270), [])
    assert empty.bytes_per_token == (0.0, 0.0)
    assert "0 tokens" in str(empty)


def test_str_says_everything_once():
    a, b = train(TEXT, 270, specials=("<|endoftext|>",)), train(OTHER, 265, pattern="digits1")
    page = str(difference(a, b, names=("a.json", "b.json")))
    for part in (a.fingerprint, b.fingerprint, "a.json", "b.json", "vocabulary size", "pre-tokenizer", "<|endoftext|>"):
        assert part in page
    assert all(line == line.rstrip() for line in page.splitlines())


def test_every_difference_in_fingerprint_has_a_reason():
    """Over all pairs of a zoo: other fingerprint if and only if there is a reason, and a change of ids is one."""
    zoo = [
        train(TEXT, 270),
        train(TEXT, 265),
        train(TEXT, 270, "cs336"),
        train(TEXT, 270, "readable"),
        train(TEXT, 270, "readable", pattern="none"),
        train(TEXT, 20, "character"),
        train(OTHER, 20, "character"),
        train(OTHER, 270, specials=("<a>",)),
        train(OTHER, 270, specials=("<b>",)),
        train(OTHER, 270, specials=("<a>",)).with_id_order("specials_last"),
        with_merges((b"b", b"c"), (b"a", b"b"), (b"ab", b"c")),
        with_merges((b"a", b"b"), (b"b", b"c"), (b"ab", b"c")),
        with_merges((b"a", b"b"), (b"b", b"c"), (b"a", b"bc")),
    ]
    for a, b in itertools.product(zoo, zoo):
        found = difference(a, b)
        assert found.same == (a.fingerprint == b.fingerprint)
        assert bool(found.reasons) == (not found.same)
        assert "other rules" not in str(found)
        assert found.first == (found.reasons[0] if found.reasons else None)


def test_published_tokenizers(shared):
    gpt2 = Tokenizer.from_gpt2(
        shared / "tokenizers" / "gpt2" / "encoder.json", shared / "tokenizers" / "gpt2" / "vocab.bpe"
    )
    other = gpt2.truncated(50_000)
    found = difference(gpt2, other)
    assert found.first == "the vocabulary size: 50,257 in the first, 50,000 in the second"
    assert found.first_merge.rank == 49_743
