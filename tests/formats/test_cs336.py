"""The CS336 form: in memory, as JSON and lines, and as pickles that are read without being run."""

import collections
import json
import os
import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigpt_tok.errors import FormatError
from minigpt_tok.formats import cs336, plain_pickle
from minigpt_tok.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(make):
    return make("cs336", 300, ("<|endoftext|>",))


def test_in_memory_and_back(tokenizer, hard_texts):
    vocab, merges = tokenizer.to_vocab_and_merges()
    assert list(vocab) == list(range(tokenizer.vocab_size))
    assert vocab[0] == b"\x00"
    assert vocab[256] == b"<|endoftext|>"
    assert merges == tokenizer.merges
    again = Tokenizer.from_vocab_and_merges(vocab, merges, ["<|endoftext|>"])
    assert again == tokenizer
    for text in hard_texts:
        assert again.encode(text, allowed_special="all") == tokenizer.encode(text, allowed_special="all")


def test_specials_that_the_vocabulary_lacks_stand_at_its_end(tokenizer):
    vocab, merges = tokenizer.to_vocab_and_merges()
    more = Tokenizer.from_vocab_and_merges(vocab, merges, ["<|endoftext|>", "<s>", "<t>", "<s>"])
    assert more.special_tokens == {"<|endoftext|>": 256, "<s>": len(vocab), "<t>": len(vocab) + 1}


def test_another_pattern_is_named(make):
    tokenizer = make("readable", 300, ())
    again = Tokenizer.from_vocab_and_merges(*tokenizer.to_vocab_and_merges(), pattern="digits1")
    assert again == tokenizer


@pytest.mark.parametrize(
    ("vocab", "merges", "named"),
    [
        ({}, [], "empty"),
        ({0: b"a", 2: b"b"}, [], "no token has id 1"),
        ({0: b"a", -1: b"b"}, [], "id -1"),
        ({0: b"a", "1": b"b"}, [], "id '1'"),
        ({0: b"a", True: b"b"}, [], "id True"),
        ({0: b"a", 1 << 60: b"b"}, [], "not a whole number from 0"),
        ({0: b"a", 1: b"a"}, [], "b'a' has the ids 0 and 1"),
        ({0: b"a", 1: b""}, [], "id 1 is b'', not bytes"),
        ({0: "a"}, [], "id 0 is 'a', not bytes"),
        ({0: b"a"}, [(b"a", b"b")], "b'b' is not in the vocabulary"),
        ({0: b"a"}, [(b"a", b"a")], "b'aa' is not in the vocabulary"),
        ({0: b"a"}, [(b"a",)], "not a pair of bytes"),
        ({0: b"a"}, [b"aa"], "not a pair of bytes"),
        ({0: b"a"}, [("a", "a")], "not a pair of bytes"),
        ({0: b"a"}, [(b"a", 97)], "not a pair of bytes"),
    ],
)
def test_what_cannot_be_is_refused(vocab, merges, named):
    with pytest.raises(FormatError, match=named):
        Tokenizer.from_vocab_and_merges(vocab, merges)


def test_characters_have_no_such_form(make):
    with pytest.raises(FormatError, match="character"):
        make("character", 60, ()).to_vocab_and_merges()


# Files


@pytest.fixture
def paths(tmp_path):
    return tmp_path / "vocab", tmp_path / "merges"


def test_json_and_lines_in_printable_characters(tokenizer, paths):
    vocab, merges = tokenizer.to_vocab_and_merges()
    cs336.save(*paths, vocab, merges)
    written = json.loads(paths[0].read_text("utf-8"))
    assert written["Ġ"] == 32
    assert written["<|endoftext|>"] == 256
    first = paths[1].read_text("utf-8").split("\n")[0].split(" ")
    assert len(first) == 2
    assert cs336.load(*paths) == (vocab, merges)


def test_a_special_may_stand_as_it_is_where_it_is_named(paths):
    paths[0].write_text(json.dumps({"a": 0, "<| end |>": 1, "日": 2}))
    paths[1].write_text("")
    vocab, _ = cs336.load(*paths, ["<| end |>", "日"])
    assert vocab == {0: b"a", 1: b"<| end |>", 2: "日".encode()}
    with pytest.raises(FormatError, match="name it as one"):
        cs336.load(*paths)


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_pickles_of_plain_types(tokenizer, paths, protocol):
    vocab, merges = tokenizer.to_vocab_and_merges()
    paths[0].write_bytes(pickle.dumps(vocab, protocol))
    paths[1].write_bytes(pickle.dumps(merges, protocol))
    assert cs336.load(*paths) == (vocab, merges)


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        (0, "[]", "not an object"),
        (0, "{", "not JSON"),
        (0, '{"a": "0"}', "the id of 'a' is '0'"),
        (0, '{"a": 0, "b": 0}', "'b' has the id 0, which another token has too"),
        (0, '{"日": 0}', "stands for no byte"),
        (0, pickle.dumps([1]), "a pickle of list, not of dict"),
        (1, "a b c\n", "merge 1"),
        (1, "日 a\n", "stands for no byte"),
        (1, pickle.dumps({}), "a pickle of dict, not of list"),
        (1, b"\xff", "not UTF-8"),
    ],
)
def test_broken_files_are_refused_by_their_name(paths, file, content, named):
    paths[0].write_text('{"a": 0}')
    paths[1].write_text("")
    paths[file].write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FormatError, match=named) as error:
        cs336.load(*paths)
    assert str(paths[file]) in str(error.value)


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


@pytest.mark.parametrize(
    "value",
    [
        Runs(),
        [Runs()],
        "text",
        {0: "text"},
        1.5,
        {1},
        frozenset([1]),
        bytearray(b"a"),
        None,
        True,
        collections.OrderedDict({0: b"a"}),
        collections.Counter("a"),
        collections.defaultdict(list),
        len,
        Exception,
        complex(1, 2),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_of_other_types_are_refused_and_nothing_runs(tmp_path, monkeypatch, value, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(FormatError, match="instruction"):
        plain_pickle.load(tmp_path / "p")
    assert not (tmp_path / "ran").exists()


def test_instructions_that_only_allocate_are_refused(tmp_path):
    for program in (
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",  # BYTEARRAY8 of a terabyte
        b"\x80\x05]r\xff\xff\xff\x7f.",  # LONG_BINPUT far beyond
        b"\x80\x05\x8e" + struct.pack("<Q", 1 << 40) + b".",  # BINBYTES8 of a terabyte that is not there
        b"\x80\x05" + b"(" * 10,
        b"\x80\x05.",
        b"\x80",
        b"\x80\xff]. ",
    ):
        (tmp_path / "p").write_bytes(program)
        with pytest.raises(FormatError, match="pickle"):
            plain_pickle.load(tmp_path / "p")


PLAIN = st.recursive(
    st.integers() | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner, inner, inner)
        | st.tuples(inner)
        | st.dictionaries(st.integers() | st.binary(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=PLAIN, protocol=st.sampled_from([3, 4, 5]))
def test_all_plain_values_come_through(tmp_path_factory, value, protocol):
    path = tmp_path_factory.getbasetemp() / "plain.pickle"
    path.write_bytes(pickle.dumps(value, protocol))
    assert plain_pickle.load(path) == value


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_pickles_are_refused_or_plain(tmp_path_factory, data):
    whole = pickle.dumps({0: b"a", 1: [(b"b", b"c"), (b"b", b"d")]})
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = data.draw(
        st.sampled_from([whole[:place], whole[:place] + data.draw(st.binary(min_size=1, max_size=2)) + whole[place:]])
        | st.binary(max_size=1).map(lambda byte: whole[:place] + byte + whole[place + 1 :])
    )
    path = tmp_path_factory.getbasetemp() / "damaged.pickle"
    path.write_bytes(damaged)
    try:
        value = plain_pickle.load(path)
    except FormatError:
        return

    seen = set()

    def plain(value):
        if type(value) in (int, bytes) or id(value) in seen:  # a damaged pickle may contain itself
            return True
        seen.add(id(value))
        parts = [*value, *value.values()] if type(value) is dict else value
        return type(value) in (dict, list, tuple) and all(map(plain, parts))

    assert plain(value)


def nested(kind, levels=20_000):
    """A pickle of lists in lists, or tuples in tuples."""
    return b"\x80\x04" + (b"]" * levels + b"a" * (levels - 1) if kind is list else b")" + b"\x85" * levels) + b"."


@pytest.mark.parametrize("kind", [list, tuple])
def test_deep_nesting_is_one_error_too(paths, kind):
    paths[0].write_bytes(pickle.dumps({0: b"a"}))
    inner = nested(kind)[2:-1]
    paths[1].write_bytes(b"\x80\x04](" + inner + b"e.")
    with pytest.raises(FormatError, match=r"merge 0 is .* not a pair of bytes"):
        Tokenizer.from_vocab_and_merges(*cs336.load(*paths))
    paths[0].write_bytes(b"\x80\x04}(K\x00" + inner + b"u.")
    with pytest.raises(FormatError, match=r"id 0 is .*, not bytes"):
        Tokenizer.from_vocab_and_merges(plain_pickle.load(paths[0]), [])


def test_a_pickle_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_pickle, "LARGEST_PICKLE", 10)
    (tmp_path / "p").write_bytes(pickle.dumps({0: b"a" * 20}))
    with pytest.raises(FormatError, match="larger than 10 bytes"):
        plain_pickle.load(tmp_path / "p")
