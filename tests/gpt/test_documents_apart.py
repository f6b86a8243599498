"""Attention that stays within documents: what stands beside a document in its block changes nothing in its logits."""

import pytest
import torch

from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import write_id_file
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import ModelError

LENGTHS = (5, 4, 7)


@pytest.fixture
def packed():
    """(documents, positions) of three documents side by side, `(1, 16)` each."""
    documents = torch.cat([torch.full((n,), number) for number, n in enumerate(LENGTHS)])
    positions = torch.cat([torch.arange(n) for n in LENGTHS])
    return documents[None], positions[None]


@pytest.mark.parametrize("block_size", [16, 600])  # below and above where attention changes its form on a CPU
def test_logits_of_a_document_are_those_it_has_alone(tiny, packed, block_size):
    model = tiny(block_size=block_size, spread=0.4)
    documents, positions = packed
    if block_size > 16:  # a long last document, so that the block is long
        longer = block_size - 16
        documents = torch.cat([documents, torch.full((1, longer), 2)], dim=1)
        positions = torch.cat([positions, LENGTHS[2] + torch.arange(longer)[None]], dim=1)
    ids = torch.randint(0, 23, documents.shape, generator=torch.Generator().manual_seed(1))
    together = model(ids, documents=documents, positions=positions)
    for number in range(3):
        places = documents[0] == number
        alone = model(ids[:, places])
        torch.testing.assert_close(together[:, places], alone, atol=2e-5, rtol=1e-4)
    # That this test can fail: with positions alone, or the mask alone, it would.
    for arguments in ({"positions": positions}, {"documents": documents}):
        leaking = model(ids, **arguments)
        assert not torch.allclose(leaking[:, documents[0] == 1], together[:, documents[0] == 1], atol=1e-3)


def test_other_neighbours_change_nothing_at_all(tiny, packed):
    model = tiny(spread=0.4)
    documents, positions = packed
    generator = torch.Generator().manual_seed(2)
    first, second = (torch.randint(0, 23, (1, 16), generator=generator) for _ in range(2))
    places = documents[0] == 1
    second[:, places] = first[:, places]
    logits = [model(ids, documents=documents, positions=positions)[:, places] for ids in (first, second)]
    assert torch.equal(*logits)


@pytest.mark.parametrize("separated", [True, False])
def test_the_blocks_of_a_dataset_do_not_leak(tiny, tmp_path, separated):
    """From the id file to the loss: a document's losses are those it has when the others are replaced."""
    model = tiny(block_size=12, spread=0.4)
    generator = torch.Generator().manual_seed(3)

    def dataset(name, fixed):
        documents = []
        for number, length in enumerate((6, 9, 8, 14)):
            source = torch.Generator().manual_seed(9) if number == 1 and fixed else generator
            ids = torch.randint(1, 23, (length,), generator=source).numpy()
            if separated:
                ids[-1] = 0
            documents.append(("x", ids))
        metadata = IdFileMetadata(
            tokenizer_fingerprint="f", tokenizer_fingerprint_version=1, vocab_size=23, corpus="c", split="train",
            separator_id=0 if separated else None,
        )  # fmt: skip
        write_id_file(tmp_path / name, documents, metadata)
        return TokenDataset(tmp_path / name, 12, packing="document")

    logits = []
    for name in ("a", "b"):
        data = dataset(name, fixed=True)
        batch = data.__getitems__(range(len(data)))
        found = model(batch.inputs, documents=batch.documents, positions=batch.positions)
        of_it = batch.documents == 1
        assert int(of_it.sum()) == 9
        logits.append(found[of_it])
        assert (batch.targets[of_it] >= 0).sum() == (9 if separated else 8)
    assert torch.equal(*logits)


def test_documents_that_cannot_be_kept_apart(tiny):
    model = tiny()
    ids = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(ModelError, match="there is a cache"):
        model(ids, model.new_cache(), documents=ids)
    with pytest.raises(ModelError, match="the ids are"):
        model(ids, documents=ids[:, :3])
