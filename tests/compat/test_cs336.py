"""CS336's own calls: training on a file, chunk boundaries, the tokenizer from memory and from files."""

import io
import json
import pickle
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.compat import cs336
from minigpt_tok.compat.cs336 import Tokenizer, find_chunk_boundaries, train_bpe
from minigpt_tok.errors import CorpusError, FormatError, TokenizerError

END = "<|endoftext|>"
LOW = "low low low low low lower lower widest widest widest newest newest newest newest newest newest"


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes((f"the cat's hat\r\n{END}" * 20 + "a café 日本 ate the rat").encode())
    return path


# Training


def test_the_handouts_example(tmp_path):
    path = tmp_path / "low.txt"
    path.write_text(LOW)
    vocab, merges = train_bpe(path, 256 + 1 + 8, [END])
    spelled = [(left.decode(), right.decode()) for left, right in merges]
    assert spelled[:6] == [("s", "t"), ("e", "st"), ("o", "w"), ("l", "ow"), ("w", "est"), ("n", "e")]
    assert spelled[6:] == [("ne", "west"), (" ", "newest")]
    assert vocab[255] == b"\xff"
    assert vocab[256] == END.encode()
    assert vocab[257] == b"st"
    assert len(vocab) == 265


def test_types_are_plain(corpus):
    vocab, merges = train_bpe(str(corpus), 300, [END])
    assert type(vocab) is dict
    assert all(type(id) is int and type(token) is bytes for id, token in vocab.items())
    assert type(merges) is list
    assert all(type(merge) is tuple and type(part) is bytes for merge in merges for part in merge)


def test_specials_are_never_part_of_a_merge_and_line_ends_are_kept(corpus):
    _, merges = train_bpe(corpus, 400, [END])
    assert not any(b"<|" in left + right for left, right in merges)
    assert (b"\r", b"\n") in merges


@pytest.mark.parametrize("specials", [[], [END], [END, "the cat"], ["aa"]])
@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_long_files_are_read_in_chunks_with_the_same_result(tmp_path, monkeypatch, specials, chunk):
    path = tmp_path / "corpus.txt"
    path.write_bytes(f"the cat's hat, aaa{END}the café 日本 12 ate\n\n  the  rat aa a {END}".encode() * 8)
    whole = train_bpe(path, 300, specials)
    monkeypatch.setattr(cs336, "CHUNK", chunk)
    monkeypatch.setattr(cs336, "BLOCK", 16)
    assert train_bpe(path, 300, specials) == whole


@pytest.mark.parametrize(
    ("content", "size", "specials", "error", "named"),
    [
        (b"ab", 256, [END], TokenizerError, "vocab_size is 256"),
        (b"ab", 300, [END, END], TokenizerError, "twice"),
        (b"", 300, [], CorpusError, "nothing to train on"),
        (b"ab\xffcd", 300, [], CorpusError, "not UTF-8 at byte 2"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, content, size, specials, error, named):
    (tmp_path / "c.txt").write_bytes(content)
    with pytest.raises(error, match=named):
        train_bpe(tmp_path / "c.txt", size, specials)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        train_bpe(tmp_path / "none.txt", 300, [])


# Chunks


def published(content, chunks, separator):
    """The assignment's function, which reads 4,096 bytes at a time, but with all of the file in one read."""
    size = len(content) // chunks
    boundaries = [number * size for number in range(chunks)] + [len(content)]
    for number in range(1, chunks):
        found = content.find(separator, boundaries[number])
        boundaries[number] = len(content) if found < 0 else found
    return sorted(set(boundaries))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([END, "a", "<|", "word ", "日本"]), min_size=1, max_size=60), st.integers(1, 9))
def test_boundaries_are_the_published_ones_where_there_is_a_separator(parts, chunks):
    content = ("".join(parts) + END).encode()
    assert find_chunk_boundaries(io.BytesIO(content), chunks, END.encode()) == published(content, chunks, END.encode())


@pytest.mark.parametrize("before", range(4096 - len(END) - 2, 4096 + 3))
def test_a_separator_across_a_read_is_found(monkeypatch, before):
    monkeypatch.setattr(cs336, "BLOCK", 4096)
    content = b"x" * (5000 + before) + END.encode() + b"y" * (5000 - before - len(END))
    assert find_chunk_boundaries(io.BytesIO(content), 2, END.encode()) == [0, 5000 + before, 10000]


def test_a_separator_longer_than_a_read_is_found(monkeypatch):
    monkeypatch.setattr(cs336, "BLOCK", 5)
    content = b"x" * 50 + END.encode() + b"y" * 20
    assert find_chunk_boundaries(io.BytesIO(content), 2, END.encode()) == [0, 50, 83]


def test_fewer_separators_than_chunks_are_fewer_chunks():
    content = b"x" * 100 + END.encode() + b"y" * 10
    assert find_chunk_boundaries(io.BytesIO(content), 10, END.encode()) == [0, 100, 123]
    early = END.encode() + b"y" * 100
    assert find_chunk_boundaries(io.BytesIO(early), 3, END.encode()) == [0, 113]


TEXTS = st.lists(
    st.sampled_from(["word", " ", "\n", "it's", "12", "é", "日本", "!", "🙂", "'"]), min_size=1, max_size=80
)


@settings(max_examples=300, deadline=None)
@given(TEXTS.map("".join), st.integers(1, 8), st.sampled_from([END.encode(), b""]), st.integers(5, 40))
def test_without_a_separator_chunks_have_the_pieces_of_the_whole(text, chunks, separator, block):
    content = text.encode()
    size, cs336.BLOCK = cs336.BLOCK, block
    try:
        boundaries = find_chunk_boundaries(io.BytesIO(content), chunks, separator)
    finally:
        cs336.BLOCK = size
    assert boundaries[0] == 0
    assert boundaries[-1] == len(content)
    pieces = get_pretokenizer("gpt2").pieces
    parts = [content[start:end].decode() for start, end in pairwise(boundaries)]
    assert [piece for part in parts for piece in pieces(part)] == pieces(text)


def test_without_a_separator_prose_is_cut_near_where_it_is_wanted():
    content = ("The cat sat on the mat. " * 1000).encode()
    boundaries = find_chunk_boundaries(io.BytesIO(content), 8, END.encode())
    assert len(boundaries) == 9
    assert all(0 <= found - number * len(content) // 8 < 10 for number, found in enumerate(boundaries))


def test_text_that_cannot_be_cut_is_one_chunk():
    assert find_chunk_boundaries(io.BytesIO(b"a" * 300_000), 4, END.encode()) == [0, 300_000]
    assert find_chunk_boundaries(io.BytesIO(b"\xff" * 300), 4, END.encode()) == [0, 300]
    assert find_chunk_boundaries(io.BytesIO(b""), 4, END.encode()) == [0]


@pytest.mark.parametrize(("chunks", "separator", "named"), [(0, b"x", "desired_num_chunks"), (2, "x", "not bytes")])
def test_arguments_that_cannot_be_are_named(chunks, separator, named):
    with pytest.raises(TokenizerError, match=named):
        find_chunk_boundaries(io.BytesIO(b"text"), chunks, separator)


# The tokenizer


@pytest.fixture
def trained(corpus):
    return train_bpe(corpus, 300, [END])


def test_specials_in_text_are_matched(trained):
    tokenizer = Tokenizer(*trained, [END])
    assert tokenizer.encode(f"the{END}") == [*tokenizer.encode("the"), 256]
    assert tokenizer.decode(tokenizer.encode(f"the cat{END}é")) == f"the cat{END}é"
    assert 256 not in Tokenizer(*trained).encode(f"the{END}")


def test_overlapping_specials_are_matched_longest_first(trained):
    tokenizer = Tokenizer(*trained, [END, END + END])
    ids = tokenizer.encode(f"a{END}{END}b{END}")
    assert [tokenizer.decode([id]) for id in ids] == ["a", END + END, "b", END]
    assert tokenizer.vocab[len(trained[0])] == (END + END).encode()
    assert tokenizer.decode(ids) == f"a{END}{END}b{END}"


def test_the_given_vocabulary_is_left_alone(trained):
    vocab, merges = trained
    before = dict(vocab)
    Tokenizer(vocab, merges, ["<new>"])
    assert vocab == before


def test_bytes_that_are_no_text_become_replacements(trained):
    tokenizer = Tokenizer(*trained)
    assert tokenizer.decode([0xE6]) == "\ufffd"
    assert tokenizer.decode(list("日".encode())) == "日"


def test_members(trained):
    tokenizer = Tokenizer(*trained, [END])
    assert tokenizer.vocab == trained[0]
    assert tokenizer.merges == trained[1]
    assert tokenizer.special_tokens == [END]


def test_lines_of_a_file_have_the_ids_of_the_file(trained, corpus):
    tokenizer = Tokenizer(*trained, [END])
    text = corpus.read_text("utf-8")
    with open(corpus, encoding="utf-8") as file:
        assert list(tokenizer.encode_iterable(file)) == tokenizer.encode(text)


@pytest.mark.parametrize("specials", [None, [END], [END, END + END, "<|im_start|>"]])
def test_encoding_lines_takes_little_memory(trained, specials):
    tokenizer = Tokenizer(*trained, specials)
    tokenizer.encode("warm up")
    tracemalloc.start()
    count = sum(1 for _ in tokenizer.encode_iterable(f"the cat {n % 50} sat{END}\n" for n in range(20_000)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count > 100_000
    assert peak < 500_000  # the text alone has 600,000 bytes, its ids as a list some megabytes


def test_it_is_lazy(trained):
    def forever():
        while True:
            yield f"the cat{END} "

    stream = Tokenizer(*trained, [END]).encode_iterable(forever())
    assert len([next(stream) for _ in range(1000)]) == 1000


def test_from_json_and_lines(trained, tmp_path):
    vocab, merges = trained
    printable = {"".join(map(cs336.files._printable, [token])): id for id, token in vocab.items()}
    (tmp_path / "vocab.json").write_text(json.dumps(printable))
    lines = [" ".join(cs336.files._printable(part) for part in merge) for merge in merges]
    (tmp_path / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", [END])
    assert tokenizer.vocab == vocab
    assert tokenizer.merges == merges
    assert tokenizer.encode(f"the cat{END}") == Tokenizer(vocab, merges, [END]).encode(f"the cat{END}")


def test_from_pickles_of_plain_types(trained, tmp_path):
    for name, value in zip(("vocab", "merges"), trained, strict=True):
        (tmp_path / name).write_bytes(pickle.dumps(value))
    tokenizer = Tokenizer.from_files(str(tmp_path / "vocab"), str(tmp_path / "merges"))
    assert tokenizer.vocab == trained[0]
    (tmp_path / "merges").write_bytes(pickle.dumps([print]))
    with pytest.raises(FormatError, match="such a pickle can run anything"):
        Tokenizer.from_files(tmp_path / "vocab", tmp_path / "merges")


def test_gpt2_from_the_fixtures_form(shared):
    """The course's fixtures are GPT-2's two files under other names."""
    folder = shared / "tokenizers" / "gpt2"
    tokenizer = Tokenizer.from_files(folder / "encoder.json", folder / "vocab.bpe", [END, END + END])
    cases = json.loads((shared / "vectors" / "gpt2.json").read_text("utf-8"))["cases"]
    for case in cases:
        if END + END not in case["text"]:
            assert tokenizer.encode(case["text"]) == case["ids"]
    assert tokenizer.encode(f"Hi{END}{END}{END}") == [17250, 50257, 50256]
