import pytest

from minigpt_tok.data import estimate
from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.data.estimate import estimate_encoding
from minigpt_tok.data.id_file import read_metadata
from minigpt_tok.errors import CorpusError


def test_of_a_corpus_with_documents_alike_it_is_about_right(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(estimate, "SAMPLE_BYTES", 20_000)
    text = "\n<|endoftext|>\n".join(f"the cat sat on mat {n}. " * 10 for n in range(3000))
    (tmp_path / "a.txt").write_text(text)
    found = estimate_encoding(tmp_path / "a.txt", tokenizer, tmp_path / "not" / "there")
    files = encode_corpus(tmp_path / "a.txt", tokenizer, tmp_path / "out", separator=None)
    tokens = sum(read_metadata(path).n_tokens for path in files.values())
    assert found.tokens == pytest.approx(tokens, rel=0.1)
    assert found.disk_bytes == pytest.approx(sum(path.stat().st_size for path in files.values()), rel=0.15)
    assert found.disk_bytes < found.most_disk_bytes < 1.5 * found.disk_bytes
    assert found.seconds > 0
    assert 20_000 <= found.sample_bytes < 21_000
    assert found.free_disk_bytes > 0
    assert found.fits


def test_what_is_not_known_beforehand_is_not_made_up(tokenizer, monkeypatch):
    small = estimate_encoding(iter(["some text"] * 10), tokenizer)
    assert small.n_bytes == 90  # all of it was looked at
    monkeypatch.setattr(estimate, "SAMPLE_BYTES", 50)
    found = estimate_encoding(iter(["some text"] * 10), tokenizer)
    assert found.n_bytes is found.tokens is found.seconds is found.disk_bytes is None
    assert found.fits
    with pytest.raises(CorpusError, match="no documents"):
        estimate_encoding([""], tokenizer)
