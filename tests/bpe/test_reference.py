"""The trainer against one that counts everything over again for every merge, and merging by rank against the same."""

from collections import Counter
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.model import ALL_BYTES
from minigpt_tok.bpe.recipes import Tie
from minigpt_tok.bpe.reference import Merge, Stop, merge_by_rank, train_merges

TIES = get_args(Tie)
MANY = Stop(merges=10_000, min_frequency=1)


def joined(ids, pair, into):
    """Left to right, without overlap."""
    out = []
    for id in ids:
        if out and (out[-1], id) == pair:
            out[-1] = into
        else:
            out.append(id)
    return out


def recounting_trainer(pieces, base, stop, tie, max_token_length=None):
    """What training means, at the cost of a pass over the text per merge."""
    segmented = [(list(ids), count) for ids, count in pieces]
    texts = list(base)
    lengths = [1] * len(base)
    merges = []
    while len(merges) < stop.merges:
        counts = Counter()
        first_places = {}
        for number, (ids, count) in enumerate(segmented):
            for place, pair in enumerate(pairwise(ids)):
                counts[pair] += count
                first_places.setdefault(pair, (number, place))
        if max_token_length is not None:
            counts = {p: n for p, n in counts.items() if lengths[p[0]] + lengths[p[1]] <= max_token_length}
        if not counts:
            break
        most = max(counts.values())
        if most < stop.min_frequency:
            break
        tied = [pair for pair, count in counts.items() if count == most]
        best = {
            "lowest_ids": min(tied),
            "greatest_bytes": max(tied, key=lambda pair: (texts[pair[0]], texts[pair[1]])),
            "first_seen": min(tied, key=first_places.__getitem__),
        }[tie]
        into = len(texts)
        texts.append(texts[best[0]] + texts[best[1]])
        lengths.append(lengths[best[0]] + lengths[best[1]])
        segmented = [(joined(ids, best, into), count) for ids, count in segmented]
        merges.append(Merge(*best, most, sum(len(ids) * count for ids, count in segmented)))
    return merges


# Few letters, so that ties, overlaps (aaaa) and pairs that go and come back are common.
PIECES = st.lists(st.tuples(st.text("aab", min_size=0, max_size=14).map(str.encode), st.integers(1, 4)), max_size=8)
WIDE_PIECES = st.lists(st.tuples(st.binary(max_size=10), st.integers(1, 9)), max_size=8)


@pytest.mark.parametrize("tie", TIES)
@settings(max_examples=250, deadline=None)
@given(pieces=PIECES | WIDE_PIECES, min_frequency=st.integers(1, 4), limit=st.none() | st.integers(1, 5))
@example(pieces=[(b"aaaa", 1)], min_frequency=1, limit=None)
@example(pieces=[(b"aaaaaaa", 1), (b"aaa", 2)], min_frequency=1, limit=None)
@example(pieces=[(b"abab", 1), (b"ba", 2), (b"abab", 1)], min_frequency=1, limit=None)
@example(pieces=[(b"", 3), (b"a", 2)], min_frequency=1, limit=None)
def test_every_merge_is_that_of_a_full_recount(tie, pieces, min_frequency, limit):
    stop = Stop(merges=60, min_frequency=min_frequency)
    learned = train_merges(pieces, ALL_BYTES, stop, tie=tie, max_token_length=limit)
    assert learned.merges == recounting_trainer(pieces, ALL_BYTES, stop, tie, limit)
    assert learned.base_tokens == sum(len(ids) * count for ids, count in pieces)


@pytest.mark.parametrize("tie", TIES)
@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(["low", "lower", "newest", "widest", "banana", "aaaa", "abcabc"]), max_size=30))
def test_words_that_share_parts(tie, words):
    pieces = [(word.encode(), count) for word, count in Counter(words).items()]
    stop = Stop(merges=40, min_frequency=1)
    assert train_merges(pieces, ALL_BYTES, stop, tie=tie).merges == recounting_trainer(pieces, ALL_BYTES, stop, tie)


@settings(max_examples=100, deadline=None)
@given(pieces=PIECES | WIDE_PIECES, tie=st.sampled_from(TIES))
def test_no_two_merges_give_the_same_token(pieces, tie):
    texts = list(ALL_BYTES)
    for merge in train_merges(pieces, ALL_BYTES, MANY, tie=tie).merges:
        texts.append(texts[merge.left] + texts[merge.right])
    assert len(set(texts)) == len(texts)


@settings(max_examples=100, deadline=None)
@given(pieces=PIECES, tie=st.sampled_from(TIES), fewer=st.integers(0, 10))
def test_fewer_merges_are_the_first_of_more(pieces, tie, fewer):
    more = train_merges(pieces, ALL_BYTES, MANY, tie=tie).merges
    assert train_merges(pieces, ALL_BYTES, Stop(fewer, 1), tie=tie).merges == more[:fewer]


@settings(max_examples=50, deadline=None)
@given(pieces=PIECES, tie=st.sampled_from(["lowest_ids", "greatest_bytes"]), data=st.data())
def test_the_order_of_the_pieces_matters_to_first_seen_alone(pieces, tie, data):
    other = data.draw(st.permutations(pieces))
    assert train_merges(pieces, ALL_BYTES, MANY, tie=tie) == train_merges(other, ALL_BYTES, MANY, tie=tie)


def only_merges(pieces, **options):
    return [merge[:3] for merge in train_merges(pieces, ALL_BYTES, MANY, **options).merges]


def test_a_pair_overlaps_itself_in_the_count_but_not_in_the_replacement():
    a = ord("a")
    assert only_merges([(b"aaa", 1)]) == [(a, a, 2), (256, a, 1)]
    learned = train_merges([(b"aaaa", 1)], ALL_BYTES, MANY)
    assert learned.merges == [Merge(a, a, 3, 2), Merge(256, 256, 1, 1)]


def test_a_pair_whose_count_falls_to_zero_within_a_merge_and_returns_is_kept():
    """Replacing `a b` in `abab…` makes and unmakes the pair (ab, a) from place to place; the last one stays."""
    a, b = b"ab"
    merges = train_merges([(b"ababa", 5), (b"ca", 1)], ALL_BYTES, MANY).merges
    assert merges[0][:3] == (a, b, 10)
    assert (256, a, 5) in [merge[:3] for merge in merges] or (256, 256, 5) in [merge[:3] for merge in merges]
    assert merges == recounting_trainer([(b"ababa", 5), (b"ca", 1)], ALL_BYTES, MANY, "lowest_ids")


def test_counts_have_64_bits():
    weight = 1 << 40
    learned = train_merges([(b"ab", weight), (b"cd", weight + 1)], ALL_BYTES, Stop(2, 1))
    assert [merge.occurrences for merge in learned.merges] == [weight + 1, weight]
    assert learned.base_tokens == 2 * (2 * weight + 1)
    assert learned.merges[-1].tokens_after == 2 * weight + 1
    added_up = train_merges([(b"ab", 3 << 30), (b"xab", 3 << 30), (b"cd", 4 << 30)], ALL_BYTES, Stop(1, 1))
    assert added_up.merges[0].occurrences == 6 << 30


def test_each_piece_counts_as_often_as_it_occurs():
    assert only_merges([(b"ab", 1), (b"ac", 1), (b"cd", 3)])[0] == (ord("c"), ord("d"), 3)


def test_why_it_stopped():
    def stopped(pieces, stop):
        return train_merges(pieces, ALL_BYTES, stop).stopped

    assert stopped([(b"ab", 1)], MANY) == "no pair is left"
    assert stopped([(b"a", 1)], MANY) == "no pair is left"
    assert stopped([], MANY) == "no pair is left"
    assert stopped([(b"ab", 1)], Stop(5, 2)) == "the best pair occurs 1 time"
    assert stopped([(b"ab", 2)], Stop(5, 3)) == "the best pair occurs 2 times"
    assert stopped([(b"abc", 2)], Stop(1, 1)) == "1 merge was asked for"


def test_the_greatest_bytes_are_compared_token_by_token():
    """A token beats its own prefix, and only equal left tokens make the right ones count."""
    assert only_merges([(b"ab", 1), (b"ac", 1)], tie="greatest_bytes")[0] == (*b"ac", 1)
    assert only_merges([(b"za", 1), (b"yz", 1)], tie="greatest_bytes")[0] == (*b"za", 1)
    # ("ab", "z") and ("a", "zz"): "ab" is the greater.
    merges = only_merges([(b"ab", 9), (b"zz", 8), (b"abz", 1), (b"azz", 1)], tie="greatest_bytes")
    assert merges[2] == (256, ord("z"), 1)


def test_first_seen_looks_at_the_present_segmentation():
    """After `b c` has gone, `a b` of the first piece is no longer there to come first."""
    merges = only_merges([(b"abc", 1), (b"xy", 2), (b"ab", 1), (b"bc", 2)], tie="first_seen")
    assert merges[0] == (*b"bc", 3)
    assert merges[1] == (*b"xy", 2)
    assert merges[2] == (ord("a"), 256, 1)


def test_progress_counts_every_merge():
    seen = []
    train_merges([(b"abc", 2)], ALL_BYTES, MANY, progress=seen.append)
    assert seen == [1, 2]


def test_merging_by_rank_takes_the_lowest_first_and_of_equals_the_leftmost():
    a, b, c = 0, 1, 2
    ranks = {(b, c): (0, 3), (a, b): (1, 4), (a, a): (2, 5)}
    assert merge_by_rank([a, b, c], lambda *pair: ranks.get(pair)) == [a, 3]
    assert merge_by_rank([a, a, a], lambda *pair: ranks.get(pair)) == [5, a]
    assert merge_by_rank([a, a, a, a], lambda *pair: ranks.get(pair)) == [5, 5]
    assert merge_by_rank([], lambda *pair: ranks.get(pair)) == []
    assert merge_by_rank([c], lambda *pair: ranks.get(pair)) == [c]


def test_merging_leaves_the_given_list_alone():
    ids = [0, 1]
    assert merge_by_rank(ids, lambda *pair: (0, 2)) == [2]
    assert ids == [0, 1]
