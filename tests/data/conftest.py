from pathlib import Path

import pytest

from minigpt_tok import Tokenizer, train_tokenizer

EOT = "<|endoftext|>"

TEXTS = [
    "the cat sat on the mat. the cat ate the rat.\n",
    "  naïve café — 日本語 🏽\u200d\r\n\ttabs and\x00more  ",
    f"a page that mentions {EOT} in passing",
    "x",
    "the theory of the thing " * 20,
]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Byte-level, with an end-of-text token."""
    return train_tokenizer(TEXTS, 300, special_tokens=[EOT])


@pytest.fixture(scope="session")
def other_tokenizer() -> Tokenizer:
    """Of the same size, with another fingerprint."""
    return train_tokenizer(["another text altogether, other merges " * 3], 300, special_tokens=[EOT], min_frequency=1)


@pytest.fixture(scope="session")
def plain_tokenizer() -> Tokenizer:
    """Byte-level, without specials."""
    return train_tokenizer(TEXTS, 280)


@pytest.fixture(scope="session")
def character_tokenizer() -> Tokenizer:
    """The characters of `TEXTS`, without merges."""
    return train_tokenizer(TEXTS, len(set("".join(TEXTS))), recipe="character")


@pytest.fixture
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture
def id_file(tmp_path, tokenizer, texts) -> Path:
    """`TEXTS` as the train split."""
    from minigpt_tok.data.encode import encode_corpus

    return encode_corpus(texts, tokenizer, tmp_path / "ids")["train"]
