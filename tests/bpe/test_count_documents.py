"""Where documents are cut into what is counted at a time, and that it changes nothing."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.bpe import count_documents
from minigpt_tok.bpe.added import Matcher
from minigpt_tok.bpe.count_documents import CountedDocuments, chunks, segments
from minigpt_tok.bpe.counting import PieceCounter
from minigpt_tok.bpe.model import AddedToken
from minigpt_tok.bpe.patterns import PATTERNS
from minigpt_tok.bpe.pretokenize import get_pretokenizer
from minigpt_tok.bpe.recipes import get_recipe
from minigpt_tok.bpe.trainer import train_model
from minigpt_tok.errors import CorpusError
from minigpt_tok.files import MappedText

WORDS = [
    "the",
    " cat",
    " sat",
    "'s",
    " 1234",
    "\n\n",
    "  ",
    "é",
    "日本",
    " x",
    "\U0001f600",
    "e\u0301",
    "\u00a0",
    "!",
    "\r\n",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)


@pytest.fixture
def small_chunks(monkeypatch):
    """Files are cut after some bytes, not megabytes; short parts are less than that."""
    monkeypatch.setattr(count_documents, "SHORT", 5)
    monkeypatch.setattr(PieceCounter, "chunk_bytes", 12)
    monkeypatch.setattr(count_documents, "_LOOK", 4)


def mapped(folder, text, name="text"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return MappedText(path)


# Chunks


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(sorted(PATTERNS)), st.integers(1, 40))
def test_the_pieces_of_the_chunks_are_those_of_the_text(text, pattern, size):
    pretokenizer = get_pretokenizer(pattern)
    raw = text.encode()
    found = list(chunks(memoryview(raw), 0, len(raw), pretokenizer, size))
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(raw)
    parts = [raw[start:end].decode() for start, end in found]
    assert [piece for part in parts for piece in pretokenizer.pieces(part)] == pretokenizer.pieces(text)


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_ordinary_text_is_cut_about_where_that_is_wanted(pattern):
    text = memoryview(b"the cat sat on the mat, and more. " * 100)
    sizes = [end - start for start, end in chunks(text, 7, len(text) - 7, get_pretokenizer(pattern), 500)]
    assert len(sizes) == 7
    assert max(sizes) <= 500
    assert min(sizes[:-1]) > 480


@pytest.mark.parametrize("pattern", ["none", r"[a-z]+| "])
def test_a_pattern_without_certain_cuts_has_one_chunk(pattern):
    text = memoryview(b"the cat sat " * 100)
    pretokenizer = get_pretokenizer(pattern)
    assert list(chunks(text, 3, 900, pretokenizer, 10)) == [(3, 900)]


def test_a_text_without_a_certain_cut_is_looked_through_once():
    """Twice as much each time: linear in all."""
    text = memoryview(b" " * 3_000_000)
    assert list(chunks(text, 0, len(text), get_pretokenizer("gpt2"), 1000)) == [(0, len(text))]


def test_what_is_not_utf8_is_not_cut():
    text = b"the cat " * 10 + b"\xff" + b" sat on the mat" * 10
    parts = list(chunks(memoryview(text), 0, len(text), get_pretokenizer("gpt2"), 20))
    assert parts[-1][1] == len(text)
    assert any(start <= 80 < end - 20 for start, end in parts)


# Segments


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["<s>", "<s><t>", "é", "a b", "<", "s>"]), max_size=12).map("".join))
def test_segments_are_what_lies_between_added_tokens(text):
    specials = ("<s><t>", "<s>", "a b")
    matcher = Matcher(AddedToken(content=token, id=0) for token in specials)
    raw = memoryview(text.encode())
    found = [str(raw[start:end], "utf-8") for start, end in segments(raw, specials)]
    assert found == [part for part in matcher.parts(text) if isinstance(part, str)]
    assert found == [part for part in re.split("|".join(map(re.escape, specials)), text) if part]


def test_without_specials_there_is_one_segment_or_none():
    assert list(segments(memoryview(b"ab"), ())) == [(0, 2)]
    assert list(segments(memoryview(b""), ())) == []


# Files


@pytest.mark.parametrize("specials", [(), ("<s>",), ("<s>", " cat", "<s> x")])
@pytest.mark.parametrize("recipe", ["hf", "readable"])
def test_a_file_counts_as_its_text_does(small_chunks, tmp_path, recipe, specials):
    rng = random.Random(recipe)
    texts = ["".join(rng.choices([*WORDS, "<s>", "<s>"], k=rng.randint(1, 200))) for _ in range(12)]
    files = [mapped(tmp_path, text, str(number)) for number, text in enumerate(texts)]
    recipe = get_recipe(recipe, min_frequency=1)
    model, record = train_model(texts, 500, recipe, specials)
    from_files, its_record = train_model(files, 500, recipe, specials)
    in_turn, _ = train_model(
        [file if n % 3 else text for n, (file, text) in enumerate(zip(files, texts, strict=True))],
        500,
        recipe,
        specials,
    )
    assert from_files == in_turn == model
    for name in ("documents", "bytes", "distinct_pieces", "base_tokens", "curve"):
        assert getattr(its_record, name) == getattr(record, name)


@pytest.mark.parametrize("specials", [(), ("<s>",)])
@pytest.mark.parametrize("where", [0, 3, 100, 250])
def test_what_is_not_utf8_is_named_by_its_place_in_the_file(small_chunks, tmp_path, where, specials):
    text = b"the cat sat on <s> the mat " * 20
    broken = mapped(tmp_path, text[:where] + b"\xe6" + text[where:])
    with pytest.raises(CorpusError, match=f"not UTF-8 at byte {where}[^0-9]"):
        train_model([broken], 300, get_recipe("hf"), specials)


def test_a_file_that_ends_in_the_midst_of_a_character_is_not_utf8(small_chunks, tmp_path):
    with pytest.raises(CorpusError, match="not UTF-8 at byte 18;"):
        train_model([mapped(tmp_path, b"the cat sat on the" + "日".encode()[:2])], 300, get_recipe("hf"))


def test_empty_files_are_documents_with_nothing_in_them(tmp_path):
    empty = mapped(tmp_path, "")
    with pytest.raises(CorpusError, match="only empty documents"):
        train_model([empty], 300, get_recipe("hf"))
    assert train_model([empty, "ab"], 300, get_recipe("hf"))[1].documents == 2


def test_a_long_file_is_never_decoded_whole(tmp_path, monkeypatch):
    """Also where specials are looked for."""
    text = "the cat sat on the mat <s> " * 400
    longest = []
    monkeypatch.setattr(count_documents, "SHORT", 5)
    monkeypatch.setattr(PieceCounter, "chunk_bytes", 1000)
    monkeypatch.setattr(PieceCounter, "add", lambda self, texts: longest.extend(map(len, texts)))
    for specials in ((), ("<s>",), ("no such token",)):
        longest.clear()
        matcher = Matcher(AddedToken(content=token, id=0) for token in specials)
        counted = CountedDocuments(PieceCounter(get_recipe("hf")), [mapped(tmp_path, text)], matcher, None)
        assert counted.bytes == len(text)
        assert sum(longest) == len(text.replace(*specials, "") if specials == ("<s>",) else text)
        assert max(longest) <= 1000


# Progress


def test_chunks_and_bytes_are_told(small_chunks, tmp_path):
    told = []
    text = "the cat sat on the mat " * 20
    counter = PieceCounter(get_recipe("hf"))
    counted = CountedDocuments(
        counter, [text, mapped(tmp_path, text), ""], Matcher(()), lambda *step: told.append(step)
    )
    numbers = [done for stage, done, _ in told if stage == "chunks"]
    sizes = [done for stage, done, _ in told if stage == "bytes"]
    assert numbers == list(range(1, counted.chunks + 1))
    assert sizes == sorted(sizes)
    assert sizes[0] == len(text)  # the first document, before the file
    assert sizes[-1] == counted.bytes == 2 * len(text)
    assert len(sizes) > 20
