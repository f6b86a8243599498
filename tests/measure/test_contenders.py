import pytest

from minigpt_tok import Tokenizer, train_tokenizer
from minigpt_tok.data.corpora import Corpus, open_corpus
from minigpt_tok.errors import CorpusError, DataError
from minigpt_tok.measure.contenders import character_baseline, contenders

TRAIN = ["the cat sat on the mat. the cat ate the rat.", "the hat of the bat"]


@pytest.fixture
def corpus() -> Corpus:
    return open_corpus({"train": iter(TRAIN), "validation": iter(["the Zébra 日"]), "test": iter(["🦊"])}, name="cats")


def test_character_baseline_has_the_characters_of_every_split_and_no_merges(corpus):
    tokenizer = character_baseline(corpus)
    assert list(tokenizer.vocab.values()) == sorted(set("".join(TRAIN) + "the Zébra 日🦊"))
    assert tokenizer.merges == []
    assert tokenizer.decode(tokenizer.encode("Zébra 🦊")) == "Zébra 🦊"
    base = frozenset("".join(TRAIN) + "the Zébra 日🦊")
    trained = train_tokenizer({"train": iter(TRAIN)}, len(base), "character", base_characters=base)
    assert tokenizer.fingerprint == trained.fingerprint


def test_sizes_are_those_that_training_to_each_gives(corpus):
    found = contenders(corpus, vocab_sizes=[263, 261], byte_baseline=True)
    assert [(one.name, one.kind) for one in found] == [
        ("characters", "characters"),
        ("bytes", "bytes"),
        ("bpe-261", "bpe"),
        ("bpe-263", "bpe"),
    ]
    for one in found[2:]:
        direct = train_tokenizer({"train": iter(TRAIN)}, one.tokenizer.vocab_size)
        assert one.tokenizer.fingerprint == direct.fingerprint
    assert found[1].tokenizer.vocab_size == 256
    assert found[1].tokenizer.merges == []


def test_one_training_run_for_all_sizes(corpus, monkeypatch):
    from minigpt_tok.measure import contenders as module

    runs = []
    monkeypatch.setattr(module, "train_tokenizer", lambda *a, **k: (runs.append(a), train_tokenizer(*a, **k))[1])
    contenders(corpus, vocab_sizes=[260, 262, 263], byte_baseline=True)
    assert len(runs) == 1


def test_bytes_alone_and_characters_alone(corpus):
    assert [one.name for one in contenders(corpus, vocab_sizes=[], byte_baseline=True)] == ["characters", "bytes"]
    assert [one.name for one in contenders(corpus, vocab_sizes=[])] == ["characters"]


def test_recipe_specials_and_switches_are_those_asked_for(corpus):
    found = contenders(
        corpus, vocab_sizes=[265], recipe="readable", special_tokens=["<|x|>"], switches={"pattern": "none"}
    )
    tokenizer = found[1].tokenizer
    assert tokenizer.special_tokens == {"<|x|>": 264}
    assert tokenizer.pattern == "none"


def test_given_tokenizers_are_loaded_and_named_after_their_files(tmp_path, corpus):
    first = train_tokenizer({"train": iter(["abab" * 9])}, 257)
    second = train_tokenizer({"train": iter(["cdcd" * 9])}, 257)
    third = train_tokenizer({"train": iter(["efef" * 9])}, 257)
    (tmp_path / "llama").mkdir()
    first.save(tmp_path / "llama" / "tokenizer.json")
    second.save(tmp_path / "my tok.json")
    paths = [tmp_path / "llama" / "tokenizer.json", str(tmp_path / "my tok.json"), third]
    found = contenders(corpus, vocab_sizes=[], with_tokenizers=paths)[1:]
    assert [one.name for one in found] == ["llama", "my-tok", f"given-{third.fingerprint[:8]}"]
    assert [one.tokenizer for one in found] == [first, second, third]
    assert {one.kind for one in found} == {"given"}


def test_names_stay_apart(tmp_path, corpus):
    for number, text in enumerate(["abab", "cdcd", "efef"]):
        (tmp_path / str(number)).mkdir()
        train_tokenizer({"train": iter([text * 9])}, 257).save(tmp_path / str(number) / "characters.json")
    paths = [tmp_path / str(number) / "characters.json" for number in range(3)]
    names = [one.name for one in contenders(corpus, vocab_sizes=[], with_tokenizers=paths)]
    assert names == ["characters", "characters-2", "characters-3", "characters-4"]


def test_what_cannot_be_compared_is_refused(corpus):
    with pytest.raises(DataError, match="262 twice"):
        contenders(corpus, vocab_sizes=[262, 262])
    with pytest.raises(DataError, match=r"gives \d+ ids and no more \(.*\), fewer than 5,000"):
        contenders(corpus, vocab_sizes=[5000])
    with pytest.raises(DataError, match="byte-level recipe"):
        contenders(corpus, vocab_sizes=[300], recipe="character")
    tokenizer = Tokenizer.from_json(train_tokenizer({"train": iter(TRAIN)}, 262).to_json())
    with pytest.raises(DataError, match="same tokenizer as bpe-262"):
        contenders(corpus, vocab_sizes=[262], with_tokenizers=[tokenizer])
    with pytest.raises(CorpusError, match="no text"):
        character_baseline(Corpus("empty", {}, corpus.documents))
