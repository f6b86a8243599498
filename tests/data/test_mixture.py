import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigpt_tok import train_tokenizer
from minigpt_tok.data.corpora import open_corpus, open_inputs
from minigpt_tok.data.decode import decode_documents
from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.data.id_file import IdFile
from minigpt_tok.data.mixture import Mixture
from minigpt_tok.data.stream import TokenStream
from minigpt_tok.errors import CorpusError

A = [f"a{n:03}" * 5 for n in range(400)]
B = [f"b{n:03}" for n in range(400)]


def train_of(mixture, **options):
    return list(open_corpus(mixture, **options).splits["train"])


def test_shares_are_of_bytes_and_hold_all_the_way(caplog):
    with caplog.at_level(logging.INFO):
        mixed = train_of(Mixture([(A, 0.75), (B, 0.25)]))
    sizes = {"a": 0, "b": 0}
    for text in mixed:
        sizes[text[0]] += len(text)
        if sum(sizes.values()) > 200:
            assert abs(sizes["a"] / sum(sizes.values()) - 0.75) < 0.1
    assert abs(sizes["a"] / sum(sizes.values()) - 0.75) < 0.01
    assert [text for text in mixed if text[0] == "a"] == A[: sum(text[0] == "a" for text in mixed)]
    assert "the mixture ends with texts, train, which has no more" in caplog.text
    assert mixed == train_of(Mixture([(A, 3), (B, 1)]))


characters = st.characters(exclude_categories=["Cs"])
documents = st.lists(st.text(characters, min_size=1), min_size=1)


@given(st.lists(st.tuples(documents, st.floats(0.01, 100)), min_size=1, max_size=4))
def test_nothing_is_repeated_or_out_of_order(sources):
    mixed = train_of(Mixture([([f"{n}:{text}\n" for text in texts], w) for n, (texts, w) in enumerate(sources)]))
    taken = [[text for text in mixed if text.startswith(f"{n}:")] for n in range(len(sources))]
    for n, (texts, _) in enumerate(sources):
        assert taken[n] == [f"{n}:{text}\n" for text in texts][: len(taken[n])]
    assert any(len(taken[n]) == len(texts) for n, (texts, _) in enumerate(sources))


def test_splits_are_mixed_one_by_one_and_limits_are_of_the_mixture(tmp_path):
    for name, texts in (("a", A), ("b", B)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    mixture = Mixture({tmp_path / "a.jsonl": 0.5, tmp_path / "b.jsonl": 0.5})
    corpus = open_corpus(mixture)
    assert corpus.name == "a-0.5+b-0.5"
    found = {split: set(documents) for split, documents in corpus.splits.items()}
    assert set(found) == {"train", "validation", "test"}
    assert not found["train"] & found["validation"]
    assert {text[0] for text in found["validation"]} == {"a", "b"}
    assert len(train_of(mixture, max_documents=10)) == 10
    with_test = open_corpus(Mixture([({"train": A, "test": ["t"]}, 1), (B, 1)]))
    assert list(with_test.splits["test"]) == ["t"]


def test_a_tokenizer_and_id_files_of_a_mixture(tmp_path):
    mixture = Mixture([(A, 0.9), (B, 0.1)])
    tokenizer = train_tokenizer(mixture, 300)
    assert tokenizer.training.documents == len(train_of(mixture))
    path = encode_corpus(mixture, tokenizer, tmp_path)["train"]
    assert list(decode_documents(IdFile(path), tokenizer)) == train_of(mixture)


def test_batches_of_a_mixture_that_is_tokenized_as_it_is_read():
    mixture = Mixture([(A, 0.9), (B, 0.1)])
    tokenizer = train_tokenizer(mixture, 300, special_tokens=["<|endoftext|>"])
    options = {"packing": "best_fit", "repeat": False, "steps": None, "lanes": 1}
    found = []
    for inputs, targets in TokenStream(open_corpus(mixture).splits["train"], tokenizer, 64, 2, **options):
        for before, after in zip(inputs.tolist(), targets.tolist(), strict=True):
            row = [id for id in [before[0], *after] if id != -100]
            found += tokenizer.decode(row).split("<|endoftext|>")
    assert sorted(filter(None, found)) == sorted(train_of(mixture))


def test_weights_on_a_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, texts in (("a", A), ("b", B), ("odd:7", ["odd"])):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    corpus = open_inputs(["a.jsonl:0.7", "b.jsonl:.3"], fractions={"train": 1.0})
    assert list(corpus.splits["train"]) == train_of(Mixture([(A, 0.7), (B, 0.3)]))
    assert corpus.name == "a-0.7+b-0.3"
    (tmp_path / "odd.jsonl:7").write_text("a path goes before a weight")
    assert list(open_inputs(["odd.jsonl:7"]).documents) == ["a path goes before a weight"]
    with pytest.raises(CorpusError, match=r"b\.jsonl has no weight.*b\.jsonl:0\.5"):
        open_inputs(["a.jsonl:0.7", "b.jsonl"])


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "1"])
def test_weights_that_make_no_sense(weight):
    with pytest.raises(CorpusError, match="weight of"):
        Mixture([("a", weight)])
    with pytest.raises(CorpusError, match="at least one"):
        Mixture({})
