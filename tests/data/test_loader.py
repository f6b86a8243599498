import gc
import itertools
import multiprocessing
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.data.loader import TokenLoader
from minigpt_tok.data.order import ResumableSampler
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("ids") / "train.safetensors"
    metadata = IdFileMetadata(
        tokenizer_fingerprint="f", tokenizer_fingerprint_version=1, vocab_size=1000, corpus="c", split="train"
    )
    write_id_file(path, [("x", np.arange(401) % 1000)], metadata)
    return TokenDataset(path, 4)  # 100 blocks; block n begins with the id 4n


def loader_of(dataset, workers=0, **options):
    start = options.pop("start", None)
    return TokenLoader(
        dataset,
        ResumableSampler(len(dataset), 8, seed=5, **options),
        num_workers=workers,
        multiprocessing_context=start,
    )


def blocks(batches):
    return [(inputs[:, 0] // 4).tolist() for inputs, _ in batches]


def test_batches_are_the_samplers(dataset):
    loader = loader_of(dataset)
    assert len(loader) == 13
    batches = list(loader)
    assert all(inputs.shape == targets.shape for inputs, targets in batches)
    assert torch.equal(batches[0][1][:, :-1], batches[0][0][:, 1:])
    assert blocks(batches) == list(ResumableSampler(100, 8, seed=5))
    assert blocks(loader) != blocks(batches)  # the next epoch


@pytest.mark.parametrize(("workers", "start"), [(1, "fork"), (2, "fork"), (2, "spawn")])
def test_the_order_and_the_state_do_not_depend_on_workers(dataset, workers, start):
    alone = loader_of(dataset)
    expected = blocks(alone) + blocks(alone)
    loader = loader_of(dataset, workers, start=start)
    assert blocks(loader) + blocks(loader) == expected
    for taken, _ in enumerate(loader, start=1):
        assert loader.state_dict()["position"] == min(8 * taken, 100)  # though workers are ahead
        if taken == 5:
            break
    again = loader_of(dataset)
    again.load_state_dict(loader.state_dict())
    reference = ResumableSampler(100, 8, seed=5)
    reference.set_epoch(2)
    assert blocks(again) == list(reference)[5:]


def test_going_on_after_leaving_in_the_middle(dataset):
    for workers in (0, 2):
        loader = loader_of(dataset, workers)
        first = blocks(itertools.islice(loader, 5))
        assert first + blocks(loader) == list(ResumableSampler(100, 8, seed=5))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fixed_number_of_steps_goes_over_the_end_of_an_epoch(dataset, workers):
    sampler = ResumableSampler(100, 8, seed=5)
    stream = list(sampler) + list(sampler) + list(sampler)
    loader = TokenLoader(dataset, ResumableSampler(100, 8, seed=5), steps=13, num_workers=workers)
    first = blocks(itertools.islice(loader, 9))
    assert len(loader) == 13
    assert first + blocks(loader) + blocks(loader) == stream[: 9 + 26]
    assert loader.state_dict()["epoch"] == 2
    assert loader.state_dict()["position"] == 9 * 8


def test_loading_draws_nothing_from_torchs_generator(dataset):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    list(loader_of(dataset))
    assert torch.equal(torch.rand(3), expected)


def test_two_ranks_see_different_blocks_and_all_of_them(dataset):
    a, b = (blocks(loader_of(dataset, rank=rank, world_size=2)) for rank in range(2))
    assert len(a) == len(b) == len(loader_of(dataset, rank=0, world_size=2)) == 7
    assert sorted(itertools.chain(*a, *b)) == list(range(100))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3)])
def test_on_another_number_of_ranks_the_same_stream_goes_on(dataset, before, after):
    def ranks(world_size, state=None):
        loaders = [
            TokenLoader(dataset, ResumableSampler(100, 5, rank=rank, world_size=world_size, seed=5), steps=30)
            for rank in range(world_size)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        return loaders

    loaders = ranks(before)
    steps = zip(*(blocks(itertools.islice(loader, 7)) for loader in loaders), strict=True)
    done = [block for step in steps for batch in step for block in batch]
    assert done == list(itertools.chain(*ResumableSampler(100, 1, seed=5)))[: 35 * before]
    going_on = zip(*(blocks(loader) for loader in ranks(after, loaders[0].state_dict())), strict=True)
    stream = done + [block for step in going_on for batch in step for block in batch]
    left = (100 - 35 * before) % (5 * after)
    in_epoch = 100 - (left if left < after else 0)  # less than one block for each rank is left out
    assert len(set(stream[:in_epoch])) == in_epoch >= 100 - after + 1
    assert len(set(stream[in_epoch : in_epoch + 90])) == 90  # and the next epoch follows


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_changes_between_stops_each_block_comes_once_in_its_place(dataset, data):
    """Ranks, batch sizes, drop_last and workers change at every stop; what all took is the order, without a gap."""
    stream = list(itertools.chain(*ResumableSampler(100, 1, seed=5)))
    state, done = None, 0
    for _ in range(4):
        world_size, batch_size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
        drop_last = data.draw(st.booleans())
        steps = data.draw(st.integers(0, 3))
        loaders = [
            TokenLoader(
                dataset,
                ResumableSampler(
                    100,
                    batch_size,
                    rank=rank,
                    world_size=world_size,
                    seed=5 if state is None else 0,
                    drop_last=drop_last,
                ),
                num_workers=data.draw(st.sampled_from([0, 0, 0, 0, 1])),
            )
            for rank in range(world_size)
        ]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        taken = [blocks(itertools.islice(loader, steps)) for loader in loaders]
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        assert len({len(batches) for batches in taken}) == 1  # ranks keep step
        if states[0]["epoch"]:
            break
        assert all(other == states[0] for other in states)
        state = states[0]
        found = [block for step in zip(*taken, strict=True) for batch in step for block in batch]
        assert found == stream[done : done + len(found)]
        done += len(found)
        left_out = state["position"] - done
        assert 0 <= left_out < world_size * (batch_size if drop_last else 1)
        if left_out:
            break


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_is_of_these_blocks_alone(dataset, workers):
    loader = loader_of(dataset, workers)
    list(itertools.islice(loader, 2))
    state = loader.state_dict()
    loader.close()
    other = loader_of(TokenDataset(dataset.id_file.path, 4, packing="document"))
    with pytest.raises(DataError, match="the place that was saved is one in the blocks"):
        other.load_state_dict(state)
    other.allow_other_data = True
    other.load_state_dict(state)
    assert other.state_dict()["position"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_closing_ends_the_workers_and_the_place_in_the_order_stays(dataset, workers):
    loader = loader_of(dataset, workers)
    batches = iter(loader)
    first = blocks(itertools.islice(batches, 5))
    before = set(multiprocessing.active_children())
    assert len(before) >= workers
    loader.close()
    assert len(before - set(multiprocessing.active_children())) == workers
    assert first + blocks(loader) == list(ResumableSampler(100, 8, seed=5))
    loader.close()


def test_workers_of_a_loader_that_is_dropped_end_at_once(dataset, monkeypatch):
    for module in (torch.utils.data._utils, torch.utils.data._utils.worker):
        monkeypatch.setattr(module, "MP_STATUS_CHECK_INTERVAL", 60.0)  # seconds, instead of 5
    loader = loader_of(dataset, 2)
    iterator = iter(loader)
    next(iterator)
    workers = loader._loader._iterator._workers
    cycle = [loader, iterator]
    cycle.append(cycle)
    before = time.monotonic()
    del loader, iterator, cycle
    gc.collect()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert time.monotonic() - before < 50  # where they are not told to end, each is waited for that minute
