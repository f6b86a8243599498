"""Every packing against what it promises: each kept id a target once, no pair across documents, a true account."""

import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from minigpt_tok.data.blocks import NO_TARGET, Account, Amounts
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.data.row_plan import plan_best_fit, plan_bos_aligned
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError

SEPARATOR = 59_999
VOCABULARY = 60_000
BYTE_LENGTHS = np.arange(VOCABULARY) % 5  # of the made-up vocabulary


def write(path, lengths, *, separated=True):
    """Documents of so many ids, and one more each where they are separated. Every id, separators too, is its place."""
    documents, place = [], 0
    for length in lengths:
        ids = np.arange(place, place + length + separated)
        place += len(ids)
        documents.append(("x" * int(BYTE_LENGTHS[ids].sum()), ids))
    metadata = IdFileMetadata(
        tokenizer_fingerprint="f", tokenizer_fingerprint_version=1, vocab_size=VOCABULARY, corpus="c", split="train",
        separator="<|endoftext|>" if separated else "", separator_id=SEPARATOR if separated else None,
    )  # fmt: skip
    write_id_file(path, documents, metadata)
    return path


def everything(dataset):
    """Flat inputs, targets, documents and positions of an epoch, each `(n_blocks, block_size)`."""
    batch = dataset.__getitems__(np.arange(len(dataset)))
    parts = (batch.inputs, batch.targets, batch.documents, batch.positions)
    return [None if part is None else part.numpy() for part in parts]


def documents_of(file):
    """Which document each id of the file is of."""
    return np.searchsorted(file.document_ends, np.arange(len(file.ids)), side="right")


files = st.lists(st.integers(0, 40), min_size=1, max_size=30)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def check_account(dataset, targets):
    """The account is what a reader of all blocks counts."""
    learned = targets[targets != NO_TARGET]
    kept = np.unique(learned)
    total = len(dataset.id_file.ids)
    account = dataset.account
    assert account.blocks == len(targets)
    tokens, of_bytes = account.tokens, account.bytes
    assert (tokens.total, tokens.kept, tokens.lost) == (total, len(kept), total - len(kept))
    assert (tokens.repeated, tokens.padded) == (len(learned) - len(kept), targets.size - len(learned))
    assert of_bytes.total == int(BYTE_LENGTHS[:total].sum())
    assert of_bytes.kept == int(BYTE_LENGTHS[kept].sum()) == of_bytes.total - of_bytes.lost
    assert of_bytes.repeated == int(BYTE_LENGTHS[learned].sum()) - of_bytes.kept
    assert of_bytes.padded == 0
    for amounts in (tokens, of_bytes):
        assert amounts.cropped == (amounts.lost if dataset.packing == "bos_aligned" else 0)


def check_pairs(dataset, inputs, targets):
    """Every target has the id before it as its input, and that is of its own document or a separator."""
    kept = targets != NO_TARGET
    before, after = inputs[kept], targets[kept]
    assert (before == np.where(after == 0, SEPARATOR, after - 1)).all()
    if dataset.id_file.metadata.separator_id is None:
        of_id = documents_of(dataset.id_file)
        assert (of_id[before] == of_id[after]).all()


def opened(path, block_size, packing, **options):
    try:
        dataset = TokenDataset(path, block_size, packing=packing, **options)
    except DataError as error:
        if "not enough for one block" in str(error) or "not one block" in str(error):
            return None
        raise
    dataset._byte_lengths = BYTE_LENGTHS
    return dataset


@same_folder
@given(files, st.integers(1, 24), st.none() | st.integers(1, 30), st.booleans())
def test_document_is_contiguous_with_documents_apart(tmp_path, lengths, block_size, stride, separated):
    path = write(tmp_path / "x.safetensors", lengths, separated=separated)
    dataset = opened(path, block_size, "document", stride=stride)
    if dataset is None:
        return
    inputs, targets, documents, positions = everything(dataset)
    plain_inputs, plain_targets, *_ = everything(TokenDataset(path, block_size, stride=stride))
    kept = targets != NO_TARGET
    assert (inputs == plain_inputs).all()
    assert (targets[kept] == plain_targets[kept]).all()
    of_id = documents_of(dataset.id_file)
    if separated:
        assert kept.all()
        # A separator belongs to the document that it begins, every other id to its own.
        assert (documents == of_id[plain_targets]).all()
        is_separator = np.isin(inputs, dataset.id_file.document_ends - 1)
        assert (documents == of_id[inputs])[~is_separator].all()
    else:
        assert (documents == of_id[inputs]).all()
        assert (kept == (of_id[inputs] == of_id[plain_targets])).all()
    check_pairs(dataset, inputs, targets)
    for row_documents, row_positions in zip(documents, positions, strict=True):
        for column in range(block_size):
            begins = column == 0 or row_documents[column] != row_documents[column - 1]
            assert row_positions[column] == (0 if begins else row_positions[column - 1] + 1)
    check_account(dataset, targets)


@same_folder
@given(files, st.integers(1, 24), st.booleans())
def test_best_fit_keeps_every_id_and_every_document_that_fits_whole(tmp_path, lengths, block_size, separated):
    path = write(tmp_path / "x.safetensors", lengths, separated=separated)
    dataset = opened(path, block_size, "best_fit")
    if dataset is None:
        assert not separated
        assert max(lengths) < 2
        return
    inputs, targets, *_ = everything(dataset)
    kept = targets != NO_TARGET
    ends = np.asarray(dataset.id_file.document_ends)
    starts = ends - np.diff(ends, prepend=0)
    everywhere = np.arange(len(dataset.id_file.ids))
    expected = everywhere if separated else np.setdiff1d(everywhere, starts[ends > starts])
    assert sorted(targets[kept].tolist()) == expected.tolist()  # each once
    check_pairs(dataset, inputs, targets)
    assert (kept[:, :-1] >= kept[:, 1:]).all()  # padding is at the end of rows
    row_of = np.full(len(everywhere), -1)
    row_of[targets[kept]] = np.nonzero(kept)[0]
    for start, end in zip(starts, ends, strict=True):
        of_document = row_of[start:end][row_of[start:end] >= 0]
        assert len(set(of_document.tolist())) == -(-len(of_document) // block_size)  # not cut, or as little as can be
    check_account(dataset, targets)


@same_folder
@given(files, st.integers(1, 24))
def test_bos_aligned_rows_begin_with_the_separator_and_are_full(tmp_path, lengths, block_size):
    dataset = opened(write(tmp_path / "x.safetensors", lengths), block_size, "bos_aligned")
    inputs, targets, *_ = everything(dataset)
    kept = targets != NO_TARGET
    ends = np.asarray(dataset.id_file.document_ends)
    separators = [*(ends - 1), SEPARATOR]
    assert np.isin(inputs[:, 0], separators).all()
    assert kept[:-1].all()  # only the last row has padding
    check_pairs(dataset, inputs, targets)
    learned = targets[kept]
    assert len(set(learned.tolist())) == len(learned)
    # Documents begin at their beginning: what comes before each id in a row is there, unless it begins a document.
    begins = np.isin(learned, [0, *ends])
    assert (begins | np.isin(learned - 1, learned)).all()
    # Only the last document of a row is cropped, so behind each one but that a separator is the target.
    for row_targets, row_kept in zip(targets, kept, strict=True):
        jumps = np.flatnonzero(np.diff(row_targets[row_kept]) != 1)
        assert np.isin(row_targets[jumps], separators).all()
    check_account(dataset, targets)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 40), st.booleans())
def test_plans_are_the_greedy_ones(lengths, capacity, crop):
    """The planner by patterns lays out what filling row by row would."""
    lengths = np.array(lengths, dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    plan = (plan_bos_aligned if crop else plan_best_fit)(starts, lengths, capacity)
    left = sorted(
        [int(n) for n in lengths if n]
        if crop
        else [size for n in lengths for size in [capacity] * (n // capacity) + [n % capacity] if size]
    )
    rows = np.split(plan.lengths, plan.row_ends[:-1]) if len(plan.row_ends) else []
    expected = []
    while left:
        space, row = capacity, []
        while space and left:
            fitting = [n for n in left if n <= space]
            if fitting:
                row.append(fitting[-1])
                left.remove(fitting[-1])
                space -= fitting[-1]
            elif crop:
                row.append(space)
                left.pop(0)
                space = 0
            else:
                break
        expected.append(row)
    assert [row.tolist() for row in rows] == expected
    taken = np.concatenate([np.arange(s, s + n) for s, n in zip(plan.starts, plan.lengths, strict=True)] or [[]])
    assert len(set(taken.tolist())) == len(taken)
    if not crop:
        assert len(taken) == lengths.sum()


def test_a_hundred_thousand_documents_are_planned_at_once():
    lengths = np.minimum(np.random.default_rng(0).lognormal(5.3, 1.2, 100_000).astype(np.int64) + 1, 50_000)
    starts = np.cumsum(lengths) - lengths
    for make in (plan_best_fit, plan_bos_aligned):
        before = time.process_time()
        plan = make(starts, lengths, 1024)
        assert time.process_time() - before < 1
        assert len(plan.row_ends) >= lengths.sum() * (0.5 if make is plan_bos_aligned else 1) // 1024


def test_what_the_account_says_in_words(tmp_path):
    path = write(tmp_path / "x.safetensors", [5, 5, 12])
    assert str(TokenDataset(path, 8, packing="best_fit").account) == (
        "4 blocks; 25 of 25 tokens kept, 0 lost, 7 places padded"
    )
    dataset = TokenDataset(path, 8, packing="bos_aligned")
    assert dataset.account == Account(2, Amounts(25, 16, 9, 0, 0, 9), None)
    assert str(dataset.account) == "2 blocks; 16 of 25 tokens kept, 9 lost (9 of them cropped)"


def test_options_that_make_no_sense(tmp_path):
    path = write(tmp_path / "x.safetensors", [5, 5, 12])
    plain = write(tmp_path / "y.safetensors", [5, 5, 12], separated=False)
    with pytest.raises(DataError, match="stride is 4, and blocks of best_fit are made of documents"):
        TokenDataset(path, 8, packing="best_fit", stride=4)
    with pytest.raises(DataError, match="has no separator between documents"):
        TokenDataset(plain, 8, packing="bos_aligned")
    with pytest.raises(DataError, match="there is not one block"):
        TokenDataset(write(tmp_path / "z.safetensors", [1, 0, 1], separated=False), 8, packing="best_fit")


def test_an_item_of_document_is_a_dict_and_others_are_pairs(tmp_path):
    path = write(tmp_path / "x.safetensors", [5, 5, 12])
    dataset = TokenDataset(path, 8, packing="document")
    item = dataset[1]
    assert {key: value.tolist() for key, value in item.items()} == {
        "inputs": [8, 9, 10, 11, 12, 13, 14, 15],
        "targets": [9, 10, 11, 12, 13, 14, 15, 16],
        "documents": [1, 1, 1, 2, 2, 2, 2, 2],
        "positions": [0, 1, 2, 0, 1, 2, 3, 4],
    }
    batch = TokenDataset.collate(dataset.__getitems__([0, 2]))
    one_by_one = TokenDataset.collate([dataset[0], dataset[2]])
    assert all(torch.equal(batch[key], one_by_one[key]) for key in ("inputs", "targets", "documents", "positions"))
    assert all(value.dtype == torch.int64 for value in item.values())
    assert isinstance(TokenDataset(path, 8, packing="best_fit")[0], tuple)


# Plans on the disk


def plans(path):
    return sorted((path.parent / "plans").glob("*"))


def test_a_plan_is_made_once(tmp_path, monkeypatch):
    from minigpt_tok.data import planned

    path = write(tmp_path / "x.safetensors", range(1, 30))
    made = TokenDataset(path, 16, packing="best_fit")
    assert len(plans(path)) == 1
    monkeypatch.setattr(planned.BestFit, "_planner", staticmethod(lambda *_: pytest.fail("planned again")))
    read = TokenDataset(path, 16, packing="best_fit")
    for a, b in zip(everything(made)[:2], everything(read)[:2], strict=True):
        assert (a == b).all()
    assert read.fingerprint == made.fingerprint


def test_a_folder_with_plans_can_be_encoded_into_again(tmp_path, tokenizer, texts):
    from minigpt_tok.data.data_module import TokenDataModule
    from minigpt_tok.data.encode import encode_corpus
    from minigpt_tok.data.identity import data_fingerprint

    for more in ([], ["another text of some length, so that the plan is another " * 3]):
        encode_corpus({"train": texts + more, "validation": texts}, tokenizer, tmp_path / "ids", overwrite=True)
        module = TokenDataModule(tmp_path / "ids", 16, 2, tokenizer=tokenizer, packing="best_fit")
        module.setup()
        account = module.datasets["train"].account
        assert account.bytes.kept == account.bytes.total == sum(len(text.encode()) for text in texts + more)
        assert len(data_fingerprint(tmp_path / "ids")) == 64
    assert len(list((tmp_path / "ids" / "plans").iterdir())) == 2  # that of the validation split has not changed


def test_other_documents_of_the_same_ids_have_other_plans_and_fingerprints(tmp_path):
    a = write(tmp_path / "a.safetensors", [10, 20], separated=False)
    b = write(tmp_path / "b.safetensors", [20, 10], separated=False)
    for packing in ("best_fit", "document"):
        first, second = (TokenDataset(path, 8, packing=packing) for path in (a, b))
        assert first.id_file.metadata.ids_sha256 == second.id_file.metadata.ids_sha256
        assert first.fingerprint != second.fingerprint
    assert TokenDataset(a, 8).fingerprint == TokenDataset(b, 8).fingerprint
    TokenDataset(a, 9, packing="best_fit")
    assert len(plans(a)) == 3


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other"])
def test_a_damaged_plan_is_made_anew(tmp_path, damage, caplog):
    path = write(tmp_path / "x.safetensors", range(1, 30))
    expected = everything(TokenDataset(path, 16, packing="best_fit"))[1]
    (file,) = plans(path)
    raw = bytearray(file.read_bytes())
    if damage == "changed":
        raw[-9] ^= 1
    file.write_bytes({"cut": raw[:-16], "empty": b"", "other": b"not an array" * 20}.get(damage, raw))
    assert (everything(TokenDataset(path, 16, packing="best_fit"))[1] == expected).all()
    assert "is damaged" in caplog.text
    caplog.clear()
    TokenDataset(path, 16, packing="best_fit")
    assert caplog.text == ""


def test_a_folder_that_cannot_be_written_to_will_do(tmp_path, monkeypatch):
    path = write(tmp_path / "x.safetensors", range(1, 30))
    (tmp_path / "plans").write_text("a file where the folder would be")
    assert len(TokenDataset(path, 16, packing="best_fit")) > 0


@pytest.mark.parametrize(
    ("packing", "start"), [("document", "fork"), ("best_fit", "fork"), ("bos_aligned", "fork"), ("best_fit", "spawn")]
)
def test_workers_give_the_same_blocks(tmp_path, packing, start):
    dataset = TokenDataset(write(tmp_path / "x.safetensors", range(1, 30)), 16, packing=packing)
    options = {"batch_size": 7, "collate_fn": TokenDataset.collate}
    alone = list(DataLoader(dataset, **options))
    others = list(DataLoader(dataset, num_workers=2, multiprocessing_context=start, **options))
    for a, b in zip(alone, others, strict=True):
        assert all(
            torch.equal(x, y)
            for x, y in zip(*(batch.values() if isinstance(batch, dict) else batch for batch in (a, b)), strict=True)
        )
