"""Batches of text tokenized on the fly: every row once, and exactly resumed by any number of ranks and workers."""

import gc
import itertools
import subprocess
import sys
import time
import warnings

import lightning as L
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minigpt_tok import encode_corpus
from minigpt_tok.data.blocks import NO_TARGET
from minigpt_tok.data.packed_chunk import PackedChunk
from minigpt_tok.data.stream import TokenStream, merge_states
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError, TokenizerError

pytestmark = pytest.mark.filterwarnings("ignore:.*create . worker processes")
PACKINGS = ("contiguous", "document", "best_fit", "bos_aligned")
DOCUMENTS = [f"document {n} of the cat" + " that sat on the mat" * (n * 7 % 5) for n in range(60)]


def documents():
    return iter(DOCUMENTS)


def stream_of(tokenizer, batch_size=3, **options):
    options = {"chunk_documents": 5, "seed": 4, "lanes": 12, "steps": None} | options
    return TokenStream(documents, tokenizer, 16, batch_size, **options)


def rows(batches):
    """Every row of batches as a tuple of its targets."""
    found = []
    for batch in batches:
        targets = batch["targets"] if isinstance(batch, dict) else batch[1]
        found += [tuple(row) for row in targets.tolist()]
    return found


def an_epoch(tokenizer, **options):
    return rows(stream_of(tokenizer, repeat=False, **options))


@pytest.mark.parametrize("packing", PACKINGS)
def test_an_epoch_has_every_row_of_every_chunk_once(tokenizer, packing):
    found = an_epoch(tokenizer, packing=packing)
    separator = tokenizer.special_tokens["<|endoftext|>"]
    chunks = [
        PackedChunk(DOCUMENTS[at : at + 5], tokenizer, separator, packing, 16, at) for at in range(0, len(DOCUMENTS), 5)
    ]
    expected = [tuple(row) for chunk in chunks for row in chunk.gather(np.arange(len(chunk))).targets.tolist()]
    assert sorted(found) == sorted(expected)
    assert found != expected  # shuffled within chunks
    assert an_epoch(tokenizer, packing=packing, shuffle=False) == expected
    if packing != "bos_aligned":
        learned = sorted(id for row in found for id in row if id != NO_TARGET)
        ids = [id for text in DOCUMENTS for id in [*tokenizer.encode(text), separator]]
        assert learned == sorted(ids)  # nothing is lost


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("separated", [True, False])
def test_a_chunk_is_packed_as_an_id_file_is(tokenizer, plain_tokenizer, tmp_path, packing, separated):
    tok = tokenizer if separated else plain_tokenizer
    if packing == "bos_aligned" and not separated:
        with pytest.raises(DataError, match="begins every block with the separator"):
            stream_of(tok, packing=packing)
        return
    separator = tok.special_tokens.get("<|endoftext|>")
    chunk = PackedChunk(DOCUMENTS, tok, separator, packing, 16)
    dataset = TokenDataset(encode_corpus(DOCUMENTS, tok, tmp_path)["train"], 16, tokenizer=tok, packing=packing)
    blocks, batch = chunk.gather(np.arange(len(chunk))), dataset.__getitems__(np.arange(len(dataset)))
    if packing in ("best_fit", "bos_aligned"):
        assert (blocks.inputs == batch.inputs.numpy()).all()
        assert (blocks.targets == batch.targets.numpy()).all()
        return
    # A file's blocks begin with the first id as an input; a chunk's, where it can, with that id as a target.
    flat = blocks.targets.reshape(-1)
    ids = np.asarray(dataset.id_file.ids)
    if separated:
        assert flat[: len(ids)].tolist() == ids.tolist()
        assert (flat[len(ids) :] == NO_TARGET).all()
        if packing == "document":
            of_id = np.searchsorted(dataset.id_file.document_ends, np.arange(len(ids)), side="right")
            assert (blocks.documents.reshape(-1)[: len(ids)] == of_id).all()
            assert (blocks.positions[:, 0] == 0).all()
    else:
        n = len(dataset) - 1
        assert (blocks.inputs[:n] == batch.inputs[:n].numpy()).all()
        assert (blocks.targets[:n] == batch.targets[:n].numpy()).all()
        if packing == "document":
            assert (blocks.documents[:n] == batch.documents[:n].numpy()).all()
            assert (blocks.positions[:n] == batch.positions[:n].numpy()).all()


def test_epochs_follow_one_another_in_other_orders(tokenizer):
    epoch = an_epoch(tokenizer)
    found = rows(itertools.islice(stream_of(tokenizer), 2 * len(epoch) // 3 + 1))
    assert found[: len(epoch)] == epoch
    second = found[len(epoch) : 2 * len(epoch)]
    assert second != epoch[: len(second)]
    assert set(second) <= set(epoch)
    again = stream_of(tokenizer, repeat=False)
    assert rows(again) == epoch
    assert rows(again)[: len(second)] == second  # the next iteration is the next epoch


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stop", [1, 5, 8])
def test_resumed_exactly_though_workers_read_ahead(tokenizer, workers, stop):
    whole = list(itertools.islice(stream_of(tokenizer, num_workers=workers), 20))
    stopped = stream_of(tokenizer, num_workers=workers)
    first = list(itertools.islice(stopped, stop))
    state = stopped.state_dict()
    stopped.close()
    going_on = stream_of(tokenizer, num_workers=workers)
    going_on.load_state_dict(state)
    second = list(itertools.islice(going_on, 20 - stop))
    going_on.close()
    assert all(torch.equal(a, b) for x, y in zip(whole, first + second, strict=True) for a, b in zip(x, y, strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(st.data())
def test_over_any_changes_of_ranks_no_row_is_skipped_or_met_twice(tokenizer, data):
    packing = data.draw(st.sampled_from(PACKINGS))
    expected = sorted(an_epoch(tokenizer, packing=packing))
    state, found = None, []
    for last in (False, False, True):
        world_size, batch_size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
        streams = [
            stream_of(tokenizer, batch_size, packing=packing, rank=rank, world_size=world_size, repeat=False)
            for rank in range(world_size)
        ]
        for stream in streams:
            if state is not None:
                stream.load_state_dict(state)
        steps = 1000 if last else data.draw(st.integers(0, 3))
        for stream in streams:
            found += rows(itertools.islice(stream, steps))
        if not last:
            state = merge_states([stream.state_dict() for stream in reversed(streams)])
            if any(place[0] for place in state["lanes"]):
                return  # an epoch ended
    assert sorted(found) == expected


def test_spawned_workers_give_the_same(tokenizer):
    options = {"chunk_documents": 5, "seed": 4, "lanes": 12, "packing": "best_fit"}
    spawned = TokenStream(DOCUMENTS, tokenizer, 16, 3, num_workers=1, multiprocessing_context="spawn", **options)
    first = rows(itertools.islice(spawned, 3))
    spawned.close()
    assert first + rows(itertools.islice(spawned, 2)) == rows(
        itertools.islice(TokenStream(DOCUMENTS, tokenizer, 16, 3, **options), 5)
    )
    spawned.close()


def test_from_workers_to_none_and_to_others(tokenizer):
    expected = sorted(an_epoch(tokenizer))
    found, state = [], None
    for workers, steps in ((3, 4), (0, 3), (2, 1000)):
        stream = stream_of(tokenizer, num_workers=workers, repeat=False)
        if state is not None:
            stream.load_state_dict(state)
        found += rows(itertools.islice(stream, steps))
        state = stream.state_dict()
        stream.close()
    assert sorted(found) == expected


@pytest.mark.parametrize("by_collector", [False, True])
def test_workers_of_a_stream_that_is_dropped_end_at_once(tokenizer, by_collector, monkeypatch):
    for module in (torch.utils.data._utils, torch.utils.data._utils.worker):
        monkeypatch.setattr(module, "MP_STATUS_CHECK_INTERVAL", 60.0)  # seconds, instead of 5
    stream = stream_of(tokenizer, num_workers=2)
    next(iter(stream))
    workers = stream._running._workers
    if by_collector:
        cycle = [stream]
        cycle.append(cycle)
        del cycle
    before = time.monotonic()
    del stream
    if by_collector:
        gc.collect()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert time.monotonic() - before < 50  # where they are not told to end, each is waited for that minute


def test_a_fixed_number_of_steps_goes_on_where_it_was(tokenizer):
    stream, whole = stream_of(tokenizer, steps=4), stream_of(tokenizer)
    assert len(stream) == 4
    assert rows(stream) + rows(stream) == rows(itertools.islice(whole, 8))
    for endless in (whole, stream_of(tokenizer, steps=4, repeat=False)):
        with pytest.raises(TypeError, match="has no length"):
            len(endless)


def test_documents_keep_their_numbers_beyond_a_chunk(tokenizer):
    stream = stream_of(tokenizer, packing="document", repeat=False, shuffle=False)
    numbers = set()
    for batch in stream:
        numbers |= set(batch["documents"][batch["targets"] != NO_TARGET].tolist())
    assert numbers == set(range(60))


def test_states_are_plain_and_refused_where_they_do_not_belong(tokenizer, other_tokenizer, tmp_path):
    stream = stream_of(tokenizer)
    list(itertools.islice(stream, 2))
    torch.save(stream.state_dict(), tmp_path / "x")
    state = torch.load(tmp_path / "x", weights_only=True)
    for other, what in (
        (stream_of(other_tokenizer), "tokenizer_fingerprint"),
        (stream_of(tokenizer, packing="best_fit"), "packing"),
        (stream_of(tokenizer, chunk_documents=4), "chunk_documents 5, and this one 4"),
    ):
        with pytest.raises(DataError, match=what):
            other.load_state_dict(state)
    with pytest.raises(DataError, match="version None"):
        stream.load_state_dict({})
    half = stream_of(tokenizer, rank=1, world_size=2).state_dict()
    with pytest.raises(DataError, match="rank 1 of 2 alone"):
        stream.load_state_dict(half)
    with pytest.raises(DataError, match=r"states of the ranks \[1\], and 2 ranks"):
        merge_states([half])


def test_text_that_has_changed_is_noticed(tokenizer):
    stream = stream_of(tokenizer, 1)
    list(itertools.islice(stream, 1))
    changed = TokenStream(["another", *DOCUMENTS[1:]], tokenizer, 16, 1, chunk_documents=5, seed=4, lanes=12)
    changed.load_state_dict(stream.state_dict())
    with pytest.raises(DataError, match="documents 0 to 4 are not those"):
        next(iter(changed))


def test_numbers_that_make_no_sense(tokenizer):
    with pytest.raises(DataError, match="lanes to share out"):
        next(iter(stream_of(tokenizer, world_size=13, rank=0)))
    with pytest.raises(DataError, match="fewer chunks of 60"):
        next(iter(stream_of(tokenizer, world_size=2, rank=1, chunk_documents=60)))
    with pytest.raises(DataError, match="batch_size is 0"):
        stream_of(tokenizer, 0)
    with pytest.raises(TokenizerError, match="is no special token"):
        stream_of(tokenizer, separator="<end>")
    with pytest.raises(DataError, match="packing is 'tight'"):
        stream_of(tokenizer, packing="tight")


def test_loading_draws_nothing_from_torchs_generator(tokenizer):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    list(itertools.islice(stream_of(tokenizer), 3))
    assert torch.equal(torch.rand(3), expected)


def test_lightning_saves_and_restores_the_place(tokenizer, tmp_path):
    class Watcher(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.seen = []

        def training_step(self, batch, batch_index):
            self.seen.append(batch[0].tolist())
            return self.weight * batch[1].float().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    def fit(steps, start=None, end=None):
        model = Watcher()
        trainer = L.Trainer(
            accelerator="cpu", max_steps=steps, max_epochs=-1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(model, stream_of(tokenizer, num_workers=2, steps=5), ckpt_path=start)
        if end:
            trainer.save_checkpoint(end)
        return model.seen

    whole = fit(14)
    assert fit(9, end=tmp_path / "a.ckpt") + fit(14, start=tmp_path / "a.ckpt") == whole


IN_A_GROUP = """
import itertools, sys
import torch
import torch.distributed as dist
from minigpt_tok import Tokenizer, TokenStream

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
documents = open(f"{folder}/documents.txt").read().split("|")
stream = TokenStream(
    documents, Tokenizer.load(f"{folder}/t.json"), 16, 3, chunk_documents=5, seed=4, lanes=12, repeat=False
)
taken = [tuple(row) for batch in itertools.islice(stream, 3) for row in batch[1].tolist()]
torch.save({"taken": taken, "state": stream.state_dict()}, f"{folder}/{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_of_a_group_tell_each_other_their_lanes(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "t.json")
    (tmp_path / "documents.txt").write_text("|".join(DOCUMENTS))
    (tmp_path / "run.py").write_text(IN_A_GROUP)
    started = [subprocess.Popen([sys.executable, "run.py", str(n), str(tmp_path)], cwd=tmp_path) for n in range(2)]
    assert [process.wait(120) for process in started] == [0, 0]
    saved = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert saved[0]["state"] == saved[1]["state"]
    alone = stream_of(tokenizer, repeat=False)
    alone.load_state_dict(saved[0]["state"])
    found = saved[0]["taken"] + saved[1]["taken"] + rows(alone)
    assert len(saved[0]["taken"]) == 9
    assert sorted(found) == sorted(an_epoch(tokenizer))
