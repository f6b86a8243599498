import dataclasses
import hashlib
import itertools
import json
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import safetensors.torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from minigpt_tok import __version__
from minigpt_tok.data.id_file import IdFile, read_metadata
from minigpt_tok.data.id_format import IdFileMetadata, header_of, id_dtype
from minigpt_tok.data.id_writer import IdFileWriter, write_id_file
from minigpt_tok.data.token_dataset import TokenDataset
from minigpt_tok.errors import DataError, FormatError

METADATA = IdFileMetadata(
    tokenizer_fingerprint="f" * 64, tokenizer_fingerprint_version=1, vocab_size=300, corpus="c é", split="train",
    separator="<|endoftext|>", separator_id=0, command="test",
)  # fmt: skip
DOCUMENTS = [("ab", np.array([5, 6, 0])), ("é", np.array([299, 0])), ("", np.array([0]))]


@pytest.fixture
def path(tmp_path):
    write_id_file(tmp_path / "train.safetensors", DOCUMENTS, METADATA)
    return tmp_path / "train.safetensors"


def test_the_safetensors_package_reads_it(path):
    tensors = load_file(path)
    assert tensors["ids"].dtype == np.uint16
    assert tensors["ids"].tolist() == [5, 6, 0, 299, 0, 0]
    assert tensors["document_ends"].dtype == tensors["document_bytes"].dtype == np.int64
    assert tensors["document_ends"].tolist() == [3, 5, 6]
    assert tensors["document_bytes"].tolist() == [2, 2, 0]
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    assert metadata["tokenizer_fingerprint"] == "f" * 64
    assert metadata["ids_sha256"] == hashlib.sha256(tensors["ids"].tobytes()).hexdigest()
    assert (metadata["n_tokens"], metadata["n_documents"], metadata["n_bytes"]) == ("6", "3", "4")
    assert (metadata["format_version"], metadata["tokenizer_fingerprint_version"]) == ("1", "1")
    assert (metadata["vocab_size"], metadata["corpus"], metadata["split"]) == ("300", "c é", "train")
    assert (metadata["separator"], metadata["separator_id"], metadata["command"]) == ("<|endoftext|>", "0", "test")
    assert metadata["package_version"] == __version__


def test_it_is_mapped_not_loaded(path):
    file = IdFile(path)
    assert file.ids.tolist() == [5, 6, 0, 299, 0, 0]
    assert not file.ids.flags.owndata
    assert not file.ids.flags.writeable
    assert file.ids.flags.aligned
    assert file.document_ends.flags.aligned
    assert file.metadata == dataclasses.replace(
        METADATA, n_tokens=6, n_documents=3, n_bytes=4,
        ids_sha256=hashlib.sha256(file.ids.tobytes()).hexdigest(), text_sha256=file.metadata.text_sha256,
    )  # fmt: skip
    assert [file.document(n).tolist() for n in range(3)] == [[5, 6, 0], [299, 0], [0]]
    assert file.document(1, with_separator=False).tolist() == [299]
    file.verify()
    for wrong in (3, -1):
        with pytest.raises(DataError, match="there is no document"):
            file.document(wrong)


def test_what_safetensors_writes_is_read_too(path, tmp_path):
    save_file(load_file(path), tmp_path / "again.safetensors", metadata=IdFile(path).metadata.to_strings())
    again = IdFile(tmp_path / "again.safetensors")
    again.verify()
    assert again.ids.tolist() == IdFile(path).ids.tolist()


# The layout


@pytest.mark.parametrize("vocab_size", [300, 70_000])
@pytest.mark.parametrize("n_tokens", range(8))
def test_all_tensors_are_aligned_whatever_the_number_of_ids_and_safetensors_reads_them(tmp_path, vocab_size, n_tokens):
    path = tmp_path / "x.safetensors"
    ids = np.arange(n_tokens) + vocab_size - 8
    write_id_file(path, [("é", ids), ("a", ids[:0])], dataclasses.replace(METADATA, vocab_size=vocab_size))
    file = IdFile(path)
    assert file.ids.tolist() == ids.tolist()
    assert (file.document_ends.tolist(), file.document_bytes.tolist()) == ([n_tokens, n_tokens], [2, 1])
    for array in (file.ids, file.document_ends, file.document_bytes):
        assert array.ctypes.data % 8 == 0
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert (8 + length) % 64 == 0
    header = json.loads(raw[8 : 8 + length])
    assert list(header) == ["__metadata__", "ids", "padding", "document_ends", "document_bytes"]
    assert header["document_ends"]["data_offsets"][0] % 8 == 0
    assert header["padding"]["shape"][0] < 8
    expected = {
        "ids": ids.tolist(), "padding": [0] * header["padding"]["shape"][0],
        "document_ends": [n_tokens, n_tokens], "document_bytes": [2, 1],
    }  # fmt: skip
    assert {name: tensor.tolist() for name, tensor in load_file(path).items()} == expected
    assert {name: tensor.tolist() for name, tensor in safetensors.torch.load_file(path).items()} == expected
    with safe_open(path, framework="np") as opened:
        assert {name: opened.get_tensor(name).tolist() for name in opened.keys()} == expected  # noqa: SIM118


@pytest.mark.parametrize("vocab_size", [300, 70_000])
def test_how_long_the_header_is_does_not_depend_on_what_is_known_at_the_end(vocab_size):
    begun = dataclasses.replace(METADATA, vocab_size=vocab_size)
    lengths = {
        len(header_of(dataclasses.replace(begun, n_tokens=a, n_documents=b, n_bytes=c, ids_sha256=d, text_sha256=e)))
        for a, b, c in itertools.product((0, 1, 12_345, 10**19 - 1), repeat=3)
        for d, e in (("", ""), ("f" * 64, "0" * 64))
    }
    assert len(lengths) == 1


def foreign(path, ours, order, padding=None):
    """A file as somebody else may lay it out: no padding unless it is given, and a header of any length."""
    tensors = {**load_file(ours), **({} if padding is None else {"padding": np.zeros(padding, dtype=np.uint8)})}
    header, data = {"__metadata__": IdFile(ours).metadata.to_strings()}, b""
    for name in order:
        raw = tensors[name].tobytes()
        dtype = {"uint8": "U8", "uint16": "U16", "int64": "I64"}[tensors[name].dtype.name]
        shape = list(tensors[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("order", [*itertools.permutations(("ids", "document_ends", "document_bytes"))])
@pytest.mark.parametrize("padding", [None, 0, 3, 7])
def test_the_tensors_may_stand_in_any_order_and_aligned_or_not(tmp_path, order, padding):
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    write_id_file(ours, [*DOCUMENTS, ("abc", np.array([1, 2, 3, 4, 0]))], METADATA)
    foreign(theirs, ours, order if padding is None else ("padding", *order), padding)
    read, expected = IdFile(theirs), IdFile(ours)
    read.verify()
    assert read.metadata == expected.metadata
    for name in ("ids", "document_ends", "document_bytes"):
        assert getattr(read, name).tolist() == getattr(expected, name).tolist()
    for packing in ("contiguous", "document", "best_fit"):
        ours_blocks, blocks = (TokenDataset(path, 3, packing=packing) for path in (ours, theirs))
        assert len(blocks) == len(ours_blocks) > 0
        for n in range(len(blocks)):
            for mine, other in zip(values_of(ours_blocks[n]), values_of(blocks[n]), strict=True):
                assert mine.tolist() == other.tolist()


def values_of(block):
    return list(block.values()) if isinstance(block, dict) else block


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1, "<u2"), (65_536, "<u2"), (65_537, "<u4"), (200_000, "<u4")])
def test_the_width_of_ids_follows_the_vocabulary(tmp_path, vocab_size, dtype):
    assert id_dtype(vocab_size) == np.dtype(dtype)
    metadata = dataclasses.replace(METADATA, vocab_size=vocab_size)
    write_id_file(tmp_path / "x.safetensors", [("a", np.array([vocab_size - 1]))], metadata)
    file = IdFile(tmp_path / "x.safetensors")
    assert file.ids.dtype == np.dtype(dtype)
    assert file.ids.tolist() == [vocab_size - 1]


@pytest.mark.parametrize("wrong", [300, 65_536 + 5, -1])
def test_ids_outside_the_vocabulary_are_refused_and_nothing_is_left(tmp_path, wrong):
    with pytest.raises(DataError, match=f"id {wrong} is outside the vocabulary of 300 ids"):
        write_id_file(tmp_path / "x.safetensors", [("a", np.array([1, wrong]))], METADATA)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_do_not_fit_together_are_refused(tmp_path):
    one = np.array([1])
    for arguments in ((one, one + 1, [b"a"]), (one, one, [b"a", b"b"]), (one, one, [])):
        with pytest.raises(DataError), IdFileWriter(tmp_path / "x.safetensors", METADATA) as file:
            file.write(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_fails_leaves_what_was_there(path):
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), IdFileWriter(path, METADATA) as file:  # noqa: PT012
        file.write(np.array([1]), np.array([1]), [b"x"])
        raise KeyboardInterrupt
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_ids_are_written_where_they_stay(tmp_path):
    with IdFileWriter(tmp_path / "x.safetensors", METADATA) as file:
        file.write(np.zeros(100_000, dtype=int), np.array([100_000]), [b"x"])
        [growing] = tmp_path.iterdir()
        assert growing.name.startswith(".")
        assert growing.stat().st_size > 190_000
        number = growing.stat().st_ino
    assert (tmp_path / "x.safetensors").stat().st_ino == number
    IdFile(tmp_path / "x.safetensors").verify()


def test_an_empty_file_is_a_file(tmp_path):
    write_id_file(tmp_path / "x.safetensors", [], METADATA)
    file = IdFile(tmp_path / "x.safetensors")
    assert len(file.ids) == len(file.document_ends) == file.metadata.n_documents == 0
    file.verify()
    assert load_file(tmp_path / "x.safetensors")["ids"].shape == (0,)


def test_writing_takes_memory_for_a_batch_and_reading_none(tmp_path):
    ids = np.arange(1_000_000) % 300
    tracemalloc.start()
    with IdFileWriter(tmp_path / "x.safetensors", METADATA) as file:
        for _ in range(20):
            file.write(ids, np.array([len(ids)]), [b"x"])
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    IdFile(tmp_path / "x.safetensors").verify()
    verified = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "x.safetensors").stat().st_size > 40_000_000
    assert written < 40_000_000
    assert verified < 20_000_000


@pytest.mark.parametrize("limit", [0, 1_000, 100_000, 2_000_000, 2_001_700])  # the last: all but the end of the index
def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path, limit):
    program = (
        "import resource, signal, sys, numpy as np\n"
        "from minigpt_tok.data.id_format import IdFileMetadata\n"
        "from minigpt_tok.data.id_writer import IdFileWriter\n"
        "m = IdFileMetadata(tokenizer_fingerprint='f', tokenizer_fingerprint_version=1, vocab_size=9, corpus='c', split='s')\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
        "with IdFileWriter(sys.argv[1], m) as file:\n"
        "    for _ in range(100): file.write(np.zeros(10_000, int), np.array([10_000]), [b'x'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "x.safetensors", str(limit)], capture_output=True, text=True
    )
    assert "DataError" in done.stderr
    assert "could not be written (File too large); nothing was left under that name" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_pickles_by_path_and_notices_another_file_there(path):
    file = IdFile(path)
    pickled = pickle.dumps(file)
    assert len(pickled) < 1000
    assert pickle.loads(pickled).ids.tolist() == file.ids.tolist()
    write_id_file(path, DOCUMENTS[:1], METADATA)
    with pytest.raises(DataError, match="was replaced while it was in use"):
        pickle.loads(pickled)
    assert file.ids.tolist() == [5, 6, 0, 299, 0, 0]  # the old file, still mapped


# Damage


def rebuilt(path, change):
    """The file with its header changed by a function of the parsed header and the data."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), bytearray(raw[8 + length :])
    header = change(header, data) or header
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def set_at(*keys, value):
    def change(header, data):
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = value

    return change


def without(*keys):
    def change(header, data):
        for key in keys[:-1]:
            header = header[key]
        del header[keys[-1]]

    return change


def poke(offset, value):
    def change(header, data):
        data[offset : offset + 8] = int(value).to_bytes(8, "little", signed=True)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("__metadata__", "format", value="pt"), "no id file of this package"),
        (without("__metadata__"), "no id file of this package"),
        (set_at("__metadata__", value=["x"]), "metadata are not strings"),
        (set_at("__metadata__", "n_tokens", value=6), "metadata are not strings"),
        (set_at("__metadata__", "format_version", value="2"), "id file version 2"),
        (without("__metadata__", "vocab_size"), "its metadata lack vocab_size"),
        (set_at("__metadata__", "vocab_size", value="many"), "vocab_size is 'many', not a number"),
        (set_at("__metadata__", "n_tokens", value="-6"), "n_tokens is '-6', not a number"),
        (set_at("__metadata__", "n_tokens", value="9" * 5000), "not a number"),
        (set_at("__metadata__", "n_tokens", value="7"), "ids is announced as"),
        (set_at("__metadata__", "vocab_size", value="70000"), "ids is announced as"),
        (set_at("__metadata__", "n_bytes", value="5"), "its documents have 4 bytes and its metadata say 5"),
        (without("document_ends"), r"its tensors are document_bytes, ids"),
        (set_at("extra", value={"dtype": "U8", "shape": [0], "data_offsets": [64, 64]}), "its tensors are"),
        (set_at("ids", value=[]), "ids is announced as"),
        (set_at("ids", "dtype", value="I64"), "ids is announced as"),
        (set_at("ids", "shape", value=[2, 3]), "ids is announced as"),
        (set_at("ids", "data_offsets", value=[0, 11]), "has the offsets"),
        (set_at("ids", "data_offsets", value=[2, 14]), "ids begins at byte 2 of the data, not at 0"),
        (set_at("document_ends", "data_offsets", value=[18, 42]), "begins at byte 18 of the data, not at 16"),
        (set_at("document_ends", "data_offsets", value=[12, 36]), "begins at byte"),
        (set_at("ids", "data_offsets", value=["0", "12"]), "has the offsets"),
        (set_at("ids", "data_offsets", value=[-12, 0]), "begins at byte"),
        (set_at("padding", value=[]), "padding is announced as"),
        (set_at("padding", "dtype", value="I8"), "padding is announced as"),
        (set_at("padding", "shape", value=[2, 2]), "padding is announced as"),
        (set_at("padding", "shape", value=[3]), "padding has the offsets"),
        (set_at("padding", "data_offsets", value=[12, 15]), "padding has the offsets"),
        (set_at("padding", value={"dtype": "U8", "shape": [8], "data_offsets": [12, 20]}), "padding is announced as"),
        (set_at("padding", value={"dtype": "U8", "shape": [0], "data_offsets": [12, 12]}), "begins at byte 16"),
        (without("padding"), "begins at byte 16 of the data, not at 12"),
        (lambda header, data: data.append(0), "it has 65 bytes of data and announces 64"),
        (lambda header, data: data.pop() and None, "cut short, it has 63 bytes"),
        (lambda header, data: [header], "no JSON object"),
        (poke(24, 2), "document ends are not in order"),
        (poke(16, -1), "document ends are not in order"),
        (poke(32, 5), "its documents end at 5 of 6 ids"),
        (poke(40, -1), "negative size"),
        (poke(40, 3), "its documents have 5 bytes"),
    ],
)  # fmt: skip
def test_every_damage_is_one_clear_error(path, change, message):
    rebuilt(path, change)
    with pytest.raises(FormatError, match=message) as error:
        IdFile(path)
    assert str(path) in str(error.value)


def test_a_change_of_an_id_is_found_by_verifying(path):
    rebuilt(path, lambda header, data: data.__setitem__(0, 7))
    with pytest.raises(FormatError, match="ids hash to"):
        IdFile(path).verify()
    rebuilt(path, lambda header, data: data.__setitem__(slice(0, 2), b"\xff\xff"))
    with pytest.raises(FormatError, match="it has the id 65535 and a vocabulary of 300"):
        IdFile(path).verify()


def test_cut_anywhere_it_is_refused(path):
    raw = path.read_bytes()
    for size in [*range(40), *range(40, len(raw), 37), len(raw) - 1]:
        path.write_bytes(raw[:size])
        with pytest.raises(FormatError):
            IdFile(path)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"\xff" * 8, (1 << 40).to_bytes(8, "little") + b"{}", (4).to_bytes(8, "little") + b"[[[[",
            (20_000).to_bytes(8, "little") + b"[" * 20_000, (2).to_bytes(8, "little") + b"\xff\xfe", b"PK\x03\x04" * 9,
            (16).to_bytes(8, "little") + b'{"a": 1, "a": 2}'],
)  # fmt: skip
def test_what_is_no_id_file_is_refused(tmp_path, raw):
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(FormatError, match="no id file"):
        IdFile(tmp_path / "x")


def test_metadata_can_be_read_of_a_file_that_was_cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])
    assert read_metadata(path).tokenizer_fingerprint == "f" * 64


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        IdFile(tmp_path / "x")
