"""Mistral's tekken.json."""

import base64
import json

import pytest

from minigpt_tok.bpe.model import ALL_BYTES
from minigpt_tok.errors import FormatError
from minigpt_tok.formats.tekken import UNLISTED_SPECIALS
from minigpt_tok.tokenizer import Tokenizer


def document(tokens=(*ALL_BYTES, b"ab", b"abc", b"unused"), specials=30, **more):
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    config = {
        "pattern": r"\p{L}+|[^\p{L}]+",
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": specials + 258,
        "default_num_special_tokens": specials,
        "version": "v3",
    }
    return {"config": config, "vocab": vocab, **more}


def load(tmp_path, content):
    (tmp_path / "tekken.json").write_text(json.dumps(content))
    return Tokenizer.load(tmp_path)


@pytest.mark.filterwarnings("ignore::minigpt_tok.bpe.pretokenize.UnicodeVersionWarning")
class TestTekken:
    def test_ids_are_ranks_behind_the_special_tokens(self, tmp_path):
        tokenizer = load(tmp_path, document())
        assert tokenizer.vocab_size == 288
        assert tokenizer.encode("abc ab") == [30 + 257, 30 + 32, 30 + 256]
        assert tokenizer.decode(tokenizer.encode("abc é\x00")) == "abc é\x00"
        assert tokenizer.encode("<s>[INST]", allowed_special="all") == [1, 3]
        assert tokenizer.special_tokens["<SPECIAL_29>"] == 29
        assert list(tokenizer.special_tokens)[:20] == list(UNLISTED_SPECIALS)

    def test_listed_special_tokens_count(self, tmp_path):
        listed = [{"rank": 0, "token_str": "<a>", "is_control": True}, {"rank": 2, "token_str": "<c>"}]
        tokenizer = load(tmp_path, document(specials=4, special_tokens=listed))
        assert tokenizer.special_tokens == {"<a>": 0, "<SPECIAL_1>": 1, "<c>": 2, "<SPECIAL_3>": 3}

    @pytest.mark.parametrize(
        ("edit", "named"),
        [
            (lambda d: d["vocab"].pop(), None),
            (lambda d: d.update(vocab=d["vocab"][:-2]), "vocab has 257 tokens, and 258 are needed"),
            (lambda d: d["vocab"][3].update(rank=4), r"vocab\[3\].rank is 4, not 3"),
            (lambda d: d["vocab"][3].update(token_bytes="!"), r"vocab\[3\].token_bytes"),
            (lambda d: d["vocab"][3].update(token_bytes=d["vocab"][2]["token_bytes"]), r"vocab\[3\] is b'\\x02'"),
            (lambda d: d["vocab"].insert(0, 3), r"vocab\[0\]: is 3"),
            (lambda d: d["config"].pop("pattern"), "'pattern'"),
            (lambda d: d["config"].update(pattern="("), "pattern"),
            (lambda d: d["config"].update(version="v13"), "'v13' must list"),
            (lambda d: d["config"].update(default_vocab_size=10), "cannot be"),
            (lambda d: d["config"].update(default_num_special_tokens=-1), "cannot be"),
            (lambda d: d["config"].update(default_vocab_size=1 << 40), "cannot be"),
            (lambda d: d.update(special_tokens=[{"rank": 99, "token_str": "<a>"}]), "beyond 30"),
            (lambda d: d.update(special_tokens=[{"rank": 0, "token_str": "<SPECIAL_1>"}]), "twice"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path, edit, named):
        content = document()
        edit(content)
        if named is None:  # tokens beyond the vocabulary's size do not count
            assert load(tmp_path, content) == load(tmp_path, document())
            return
        with pytest.raises(FormatError, match=named):
            load(tmp_path, content)
