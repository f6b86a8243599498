import itertools
import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.data.order import Permutation, ResumableSampler
from minigpt_tok.errors import DataError

# The permutation


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(0, 2**63), st.integers(0, 50))
def test_every_item_once(n, seed, epoch):
    items = Permutation(n, seed, epoch)(np.arange(n))
    assert sorted(items.tolist()) == list(range(n))


def test_position_by_position_it_is_the_same_on_every_machine():
    permutation = Permutation(10, seed=0, epoch=0)
    assert permutation(np.arange(10)).tolist() == [int(permutation(np.array([i]))[0]) for i in range(10)] == PINNED
    large = Permutation(10**15, seed=1, epoch=2)
    assert large(np.array([0, 10**15 - 1])).tolist() == PINNED_LARGE


def test_seeds_and_epochs_give_other_orders():
    orders = {tuple(Permutation(50, seed, epoch)(np.arange(50))) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


def is_uniform(counts):
    """Whether chi squared is within five standard deviations of what chance gives."""
    expected = counts.sum() / len(counts)
    freedom = len(counts) - 1
    return float(((counts - expected) ** 2 / expected).sum()) < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("n", [2, 3, 5, 24, 300])
def test_each_place_gets_each_item_equally_often(n):
    runs = 1000
    places = np.array([Permutation(n, seed, 0)(np.arange(n))[[0, n // 2, n - 1]] for seed in range(runs)])
    for column in places.T:
        assert is_uniform(np.bincount(column, minlength=n))


def test_neighbours_do_not_stay_neighbours():
    n = 100_000
    items = Permutation(n, 0, 0)(np.arange(n))
    steps = np.abs(np.diff(items))
    assert abs(steps.mean() / (n / 3) - 1) < 0.02
    assert abs(np.corrcoef(np.arange(n), items)[0, 1]) < 0.02
    again = Permutation(n, 0, 1)(np.arange(n))
    assert (items == again).sum() < 10


def test_small_permutations_take_every_form():
    forms = Counter(tuple(Permutation(4, seed, 0)(np.arange(4)).tolist()) for seed in range(1200))
    assert is_uniform(np.array([forms[form] for form in itertools.permutations(range(4))]))


# Batches


def epoch_of(n, batch_size, world_size, **options):
    return [list(ResumableSampler(n, batch_size, rank=r, world_size=world_size, **options)) for r in range(world_size)]


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 5), st.booleans(), st.booleans(), st.integers(0, 99))
def test_ranks_share_an_epoch_without_overlap_or_loss(n, batch_size, world_size, shuffle, drop_last, seed):
    step = batch_size * world_size
    if drop_last and n < step:
        with pytest.raises(DataError, match="drop_last=True would leave all out"):
            ResumableSampler(n, batch_size, world_size=world_size, drop_last=True)
        return
    ranks = epoch_of(n, batch_size, world_size, shuffle=shuffle, drop_last=drop_last, seed=seed)
    sampler = ResumableSampler(n, batch_size, world_size=world_size, drop_last=drop_last)
    assert {len(batches) for batches in ranks} == {len(sampler)}  # the same number of steps
    given_out = [item for batches in ranks for batch in batches for item in batch]
    assert len(given_out) == len(set(given_out)) == n - sampler.n_left_out
    assert sampler.n_left_out < (step if drop_last else world_size)
    assert all(0 <= item < n for item in given_out)
    sizes = [len(batch) for batches in ranks for batch in batches[:-1]]
    assert set(sizes) <= {batch_size}
    ends = [len(batches[-1]) for batches in ranks if batches]
    assert not ends or max(ends) - min(ends) <= 1
    if not shuffle:
        steps = zip(*ranks, strict=True)
        assert [item for step in steps for batch in step for item in batch] == sorted(given_out)


@given(st.integers(1, 100), st.integers(1, 9), st.integers(1, 5))
def test_ranks_that_need_not_keep_step_leave_nothing_out(n, batch_size, world_size):
    ranks = epoch_of(n, batch_size, world_size, shuffle=False, same_steps=False)
    assert sorted(item for batches in ranks for batch in batches for item in batch) == list(range(n))
    for rank, batches in enumerate(ranks):
        assert len(batches) == len(
            ResumableSampler(n, batch_size, rank=rank, world_size=world_size, shuffle=False, same_steps=False)
        )


def test_the_order_does_not_depend_on_how_it_is_computed():
    batches = list(ResumableSampler(100_000, 7, seed=3))
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(100_000))
    permutation = Permutation(100_000, 3, 0)
    assert batches[5000] == permutation(np.arange(35_000, 35_007)).tolist()


def test_epochs_follow_one_another():
    sampler = ResumableSampler(20, 6, seed=1)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert (sampler.epoch, sampler.position) == (2, 0)
    sampler.set_epoch(0)
    assert list(sampler) == first


# Resuming


@settings(deadline=None)
@given(
    st.integers(1, 200), st.integers(1, 7), st.integers(1, 4), st.integers(1, 7), st.integers(1, 4), st.integers(0, 60)
)
def test_stopped_anywhere_it_goes_on_under_any_number_of_ranks(n, batch, world, next_batch, next_world, stop):
    whole = list(itertools.chain.from_iterable(ResumableSampler(n, 1, seed=9)))
    done, state = [], None
    for rank in range(world):
        sampler = ResumableSampler(n, batch, rank=rank, world_size=world, seed=9)
        taken = list(itertools.islice(sampler, stop))
        done += [item for group in taken for item in group]
        if state is not None and len(taken) == stop:
            assert sampler.state_dict() == state  # every rank saves the same
        state = sampler.state_dict()
    if state["epoch"] == 1:  # it was at the end
        return
    assert sorted(done) == sorted(whole[: state["position"]])
    rest = []
    for rank in range(next_world):
        sampler = ResumableSampler(n, next_batch, rank=rank, world_size=next_world, seed=0)
        sampler.load_state_dict(state)
        left = sampler.steps_left()
        if left == 0:
            continue
        batches = list(sampler)
        assert len(batches) == left
        rest += [item for group in batches for item in group]
    assert not set(done) & set(rest)
    assert set(rest) <= set(whole)
    assert len(done) + len(rest) > n - world - next_world
    if next_world == 1 and rest:
        assert rest == whole[state["position"] :]


def test_a_state_at_the_end_of_an_epoch_begins_the_next():
    sampler = ResumableSampler(10, 5, seed=2)
    batches = iter(sampler)
    next(batches), next(batches)  # the last batch is out, and the epoch not yet left
    state = sampler.state_dict()
    expected = list(ResumableSampler(10, 5, seed=2)), list(sampler)
    again = ResumableSampler(10, 5, seed=7)
    again.load_state_dict(state)
    assert list(again) == expected[1]
    assert expected[0] != expected[1]


def test_setting_the_epoch_that_is_under_way_changes_nothing():
    sampler = ResumableSampler(10, 2, seed=2)
    next(iter(sampler))
    sampler.set_epoch(0)
    assert sampler.position == 2
    sampler.set_epoch(1)
    assert (sampler.epoch, sampler.position) == (1, 0)


def test_states_of_other_data_are_refused():
    state = ResumableSampler(10, 2).state_dict()
    with pytest.raises(DataError, match="blocks 10, and this data has 11"):
        ResumableSampler(11, 2).load_state_dict(state)
    with pytest.raises(DataError, match="shuffling True, and this data has False"):
        ResumableSampler(10, 2, shuffle=False).load_state_dict(state)
    with pytest.raises(DataError, match="damaged"):
        ResumableSampler(10, 2).load_state_dict({**state, "position": 11})
    with pytest.raises(DataError, match="version 2"):
        ResumableSampler(10, 2).load_state_dict({**state, "version": 2})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"batch_size": 0}, "batch_size is 0"), ({"batch_size": 1, "rank": 2, "world_size": 2}, "rank is 2 of 2")],
)
def test_numbers_that_make_no_sense(arguments, message):
    with pytest.raises(DataError, match=message):
        ResumableSampler(10, **arguments)


def test_it_needs_no_torch():
    program = (
        "import sys, minigpt_tok.data.order, minigpt_tok.data.encode, minigpt_tok.data.leakage\n"
        "assert not {'torch', 'lightning', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


PINNED = [0, 6, 7, 4, 3, 1, 8, 2, 9, 5]  # computed by another program, in Python's own integers
PINNED_LARGE = [42152344959501, 312860022241806]
