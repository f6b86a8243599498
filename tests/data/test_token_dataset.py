import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Subset

from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.data.packing import Account, Amounts
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError, TokenizerMismatchError


def write_ids(path, ids, vocab_size=1000):
    metadata = IdFileMetadata(
        tokenizer_fingerprint="f", tokenizer_fingerprint_version=1, vocab_size=vocab_size, corpus="c", split="train"
    )
    ids = np.asarray(ids)
    write_id_file(path, [("x" * int(BYTE_LENGTHS[ids].sum()), ids)], metadata)
    return path


BYTE_LENGTHS = np.arange(1000) % 7  # of the made-up vocabulary; id 0 is a special


@pytest.fixture
def counting(tmp_path):
    """The ids 0 … 99, so that an id is its own place."""
    return write_ids(tmp_path / "train.safetensors", np.arange(100))


def test_a_block_is_ids_and_the_ids_after_them(counting):
    dataset = TokenDataset(counting, 8)
    assert len(dataset) == 12  # 12 × 8 targets need 97 ids
    inputs, targets = dataset[3]
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.tolist() == list(range(24, 32))
    assert targets.tolist() == list(range(25, 33))
    assert inputs.is_contiguous()
    assert targets.is_contiguous()
    assert torch.equal(dataset[-1][1], torch.arange(89, 97))
    for wrong in (12, -13):
        with pytest.raises(IndexError):
            dataset[wrong]
        with pytest.raises(IndexError):
            dataset.__getitems__([0, wrong])


def test_every_id_but_the_first_is_a_target_once_up_to_the_tail(counting):
    dataset = TokenDataset(counting, 8)
    assert torch.cat([targets for _, targets in dataset]).tolist() == list(range(1, 97))
    assert dataset.account == Account(12, Amounts(100, 96, 4, 0), None)
    assert str(dataset.account) == "12 blocks; 96 of 100 tokens kept, 4 lost"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.integers(2, 200), st.integers(1, 40), st.integers(1, 60) | st.none())
def test_the_account_is_what_happens(tmp_path, n_ids, block_size, stride):
    ids = np.random.default_rng(n_ids).integers(0, 1000, n_ids)
    path = write_ids(tmp_path / "x.safetensors", ids)
    if n_ids < block_size + 1:
        with pytest.raises(DataError, match="not enough for one block"):
            TokenDataset(path, block_size, stride=stride)
        return
    dataset = TokenDataset(path, block_size, stride=stride)
    step = stride or block_size
    starts = [start for start in range(0, n_ids, step) if start + block_size + 1 <= n_ids]
    assert len(dataset) == len(starts)
    seen = np.zeros(n_ids, dtype=int)
    for start, (inputs, targets) in zip(starts, dataset, strict=True):
        assert inputs.tolist() == ids[start : start + block_size].tolist()
        assert targets.tolist() == ids[start + 1 : start + block_size + 1].tolist()
        seen[start + 1 : start + block_size + 1] += 1

    def amounts(weights):
        kept, again = int(weights[seen > 0].sum()), int((weights * np.maximum(seen - 1, 0)).sum())
        return Amounts(int(weights.sum()), kept, int(weights.sum()) - kept, again)

    dataset._byte_lengths = BYTE_LENGTHS
    assert dataset.account == Account(len(starts), amounts(np.ones(n_ids, dtype=int)), amounts(BYTE_LENGTHS[ids]))


def test_bytes_of_real_text_add_up(id_file, tokenizer, texts):
    account = TokenDataset(id_file, 16, tokenizer=tokenizer).account
    assert account.bytes.total == sum(len(text.encode()) for text in texts)
    assert account.bytes.kept + account.bytes.lost == account.bytes.total
    assert account.tokens.total == len(IdFile(id_file).ids)
    assert "bytes kept" in str(account)


def test_a_batch_is_gathered_at_once_and_equals_its_blocks(counting):
    dataset = TokenDataset(counting, 8)
    batch = dataset.__getitems__([5, 0, 5, 11])
    inputs, targets = TokenDataset.collate(batch)
    assert inputs.shape == targets.shape == (4, 8)
    assert inputs.is_contiguous()
    assert targets.is_contiguous()
    for row, index in enumerate([5, 0, 5, 11]):
        assert torch.equal(inputs[row], dataset[index][0])
        assert torch.equal(targets[row], dataset[index][1])
    assert len(batch[1:3]) == 2


def test_any_collate_function_gives_the_same_batches(counting):
    dataset = TokenDataset(counting, 8)
    fast = list(DataLoader(dataset, batch_size=5, collate_fn=TokenDataset.collate))
    plain = list(DataLoader(dataset, batch_size=5))
    subset = list(DataLoader(Subset(dataset, range(12)), batch_size=5, collate_fn=TokenDataset.collate))
    joined = list(DataLoader(dataset + dataset, batch_size=5, collate_fn=TokenDataset.collate))
    assert [len(inputs) for inputs, _ in fast] == [5, 5, 2]
    assert len(joined) == 5
    for other in (plain, subset, joined):
        for (a, b), (c, d) in zip(fast[:2], other[:2], strict=True):
            assert torch.equal(a, c)
            assert torch.equal(b, d)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_reopen_the_file_however_they_start(counting, start):
    dataset = TokenDataset(counting, 8)
    loader = DataLoader(
        dataset, batch_size=3, num_workers=2, collate_fn=TokenDataset.collate, multiprocessing_context=start
    )
    assert torch.cat([inputs for inputs, _ in loader]).flatten().tolist() == list(range(96))


def test_it_pickles_without_its_ids(tmp_path):
    path = write_ids(tmp_path / "x.safetensors", np.zeros(1_000_000, dtype=int))
    dataset = TokenDataset(path, 8, stride=3)
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 2000
    again = pickle.loads(pickled)
    assert len(again) == len(dataset)
    assert again.stride == 3


def test_ids_of_another_tokenizer_are_refused(id_file, tokenizer, other_tokenizer):
    TokenDataset(id_file, 8, tokenizer=tokenizer)
    with pytest.raises(TokenizerMismatchError) as error:
        TokenDataset(id_file, 8, tokenizer=other_tokenizer)
    for part in (tokenizer.fingerprint, other_tokenizer.fingerprint, "encode the corpus again"):
        assert part in str(error.value)


def test_options_that_make_no_sense(counting, tmp_path):
    with pytest.raises(
        DataError, match="packing is 'best'; there is 'contiguous', 'document', 'best_fit', 'bos_aligned'"
    ):
        TokenDataset(counting, 8, packing="best")
    with pytest.raises(DataError, match="block_size is 0"):
        TokenDataset(counting, 0)
    with pytest.raises(DataError, match="stride is 0"):
        TokenDataset(counting, 8, stride=0)
    with pytest.raises(DataError, match="has 100 ids, not enough for one block of 100"):
        TokenDataset(counting, 100)
    assert len(TokenDataset(counting, 99)) == 1
    with pytest.raises(DataError, match="no such id file"):
        TokenDataset(tmp_path / "none.safetensors", 8)


def test_a_folder_and_a_split(tmp_path, tokenizer, texts):
    encode_corpus({"train": texts, "test": texts[:2]}, tokenizer, tmp_path / "ids")
    assert TokenDataset(tmp_path / "ids", 8).id_file.metadata.split == "train"
    assert TokenDataset(tmp_path / "ids", 8, split="test").id_file.metadata.split == "test"
    with pytest.raises(DataError, match=r"has no validation\.safetensors \(it has test, train\)"):
        TokenDataset(tmp_path / "ids", 8, split="validation")
    with pytest.raises(DataError, match="encode a corpus into it first"):
        TokenDataset(tmp_path, 8)


def test_its_fingerprint_follows_what_the_blocks_are(counting, tmp_path):
    same = write_ids(tmp_path / "same.safetensors", np.arange(100))
    other = write_ids(tmp_path / "other.safetensors", np.arange(1, 101))
    fingerprint = TokenDataset(counting, 8).fingerprint
    assert TokenDataset(same, 8, seed=1).fingerprint == TokenDataset(same, 8, stride=8).fingerprint == fingerprint
    assert len({fingerprint, TokenDataset(other, 8).fingerprint, TokenDataset(same, 9).fingerprint,
                TokenDataset(same, 8, stride=4).fingerprint}) == 4  # fmt: skip


def test_large_ids_stay_what_they_are(tmp_path):
    ids = np.array([0, 65_535, 65_536, 199_999])
    metadata = IdFileMetadata(
        tokenizer_fingerprint="f", tokenizer_fingerprint_version=1, vocab_size=200_000, corpus="c", split="train"
    )
    for name, vocab_size, kept in (("u2", 65_536, ids[:2]), ("u4", 200_000, ids)):
        write_id_file(tmp_path / name, [("x", kept)], IdFileMetadata(**{**vars(metadata), "vocab_size": vocab_size}))
        inputs, targets = TokenDataset(tmp_path / name, len(kept) - 1)[0]
        assert [*inputs.tolist(), targets[-1].item()] == kept.tolist()
