"""What is no text, and what is no model: the core refuses it and says where; and all that is text it takes."""

import numpy as np
import pytest

from minigpt_tok.bpe.fast import FastEncoder
from minigpt_tok.bpe.model import ALL_BYTES, BPEModel
from minigpt_tok.errors import TokenizerError

WINDOW = 16 << 10  # the core reads so many bytes at a time


@pytest.mark.parametrize("where", [0, 1, 100, 5000, WINDOW, 70_000])
@pytest.mark.parametrize("code_point", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_lone_surrogates(core, models, where, code_point):
    model = models.trained("gpt2")
    fast, reference = FastEncoder(model), models.reference(model)
    for lead in ("some text " * 7001, "some téxt " * 7001, "日本 text " * 9000):
        text = lead[:where] + chr(code_point) + " more"
        for encode in (fast.encode, fast.encode_to_numpy, fast.count, fast.encode_with_offsets):
            with pytest.raises(TokenizerError, match=f"surrogate, U\\+{code_point:04X}, at character {where:,}:"):
                encode(text)
        with pytest.raises(TokenizerError, match=r"texts\[2\]: the text has a lone surrogate"):
            fast.encode_batch([lead, "", text])
        assert fast.encode("some text" + lead[:50]) == reference.encode("some text" + lead[:50])


def test_memory_that_is_not_utf8(core, models):
    fast = FastEncoder(models.trained("gpt2"))
    broken = [
        b"\xff",
        b"\xc3",
        b"\xe6\x97",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\x80",
        b"\x80",
        b"\xf0\x80\x80\x80",
    ]
    for lead in (b"", b"abcdefg", "é".encode() * 9, b"a" * WINDOW):
        for bad in broken:
            for tail in (b"", b"z" * 70):
                data = lead + bad + tail
                with pytest.raises(UnicodeDecodeError) as decoding:
                    data.decode()
                with pytest.raises(TokenizerError, match=f"not UTF-8 at byte {decoding.value.start:,}$"):
                    fast.encode_to_numpy(memoryview(data))


def test_every_kind_of_memory(core, models, tmp_path):
    import mmap
    from array import array

    fast = FastEncoder(models.trained("gpt2"))
    text = "the cat’s naïve\n" * 64
    data = text.encode()
    expected = fast.encode(text)
    (tmp_path / "text").write_bytes(data)
    with open(tmp_path / "text", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert fast.encode_to_numpy(memoryview(mapped)).tolist() == expected
    every_other = bytes(byte for value in data for byte in (value, 0))
    for memory in (
        memoryview(bytearray(data)),
        memoryview(np.frombuffer(data, dtype=np.uint8)),
        memoryview(array("I", data)) if len(data) % 4 == 0 else memoryview(data),
        memoryview(every_other)[::2],
        memoryview(data[::-1])[::-1],
        memoryview(b"--" + data + b"--")[2:-2],
    ):
        assert fast.encode_to_numpy(memory).tolist() == expected
    assert fast.encode_to_numpy(memoryview(b"")).tolist() == []


def test_texts_that_are_no_str(core, models):
    fast = FastEncoder(models.trained("gpt2"))
    for texts in ([b"ab"], ["ab", None], ["ab", 7], [["ab"]]):
        for encode in (fast.encode_batch, fast.encode_batch_to_numpy):
            if texts == [b"ab"] and encode == fast.encode_batch_to_numpy:  # which takes UTF-8
                continue
            with pytest.raises(TokenizerError, match=rf"texts\[{len(texts) - 1}\] is \w+, not str"):
                encode(texts)

    class Text(str):
        pass

    assert fast.encode(Text("the cat")) == fast.encode("the cat")
    assert fast.encode_batch([Text("the cat")]) == [fast.encode("the cat")]


def test_ids_that_lead_outside_are_refused_at_once(core):
    tokens = list(ALL_BYTES)
    for merge in ((256, 0, 0), (0, 256, 0), (0, 0, 256)):
        with pytest.raises(IndexError):
            core.Encoder16(tokens, *[[id] for id in merge], False, False, "gpt2", [], False)
    with pytest.raises(IndexError):
        core.Encoder16(tokens, [0, 1], [0], [0], False, False, "gpt2", [], False)
    with pytest.raises(IndexError):
        core.Encoder32(tokens, [], [], [], False, False, "none", [(97, 300)], True)
    with pytest.raises(ValueError, match="no such pattern"):
        core.Encoder16(tokens, [], [], [], False, False, "gpt3", [], False)


def test_equal_tokens_have_the_last_of_their_ids(core, models):
    """No file has them, but a model can."""
    model = BPEModel(tokens=(*ALL_BYTES, b"ab", b"a", b"ab"), rank_rule="bytes", whole_piece=True, pattern="none")
    fast, reference = FastEncoder(model), models.reference(model)
    for text in ("a", "ab", "abab", "aab"):
        assert fast.encode(text) == reference.encode(text)
