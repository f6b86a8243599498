"""The character tutorial's program: what it prints, writes, checks and refuses."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minigpt_tok.compat.character import BPETokenizer

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_bpe_tokenizer.py"
TRAIN = "the cat sat on the mat. the cat ate the rat. " * 30 + "Artificial intelligence and machine learning\n"


def load_script():
    spec = importlib.util.spec_from_file_location("build_bpe_tokenizer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the program in a folder of its own, within this process."""
    monkeypatch.chdir(tmp_path)
    main = load_script().main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        try:
            status = main()
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "data" / "processed"
    folder.mkdir(parents=True)
    for split, text in {"train": TRAIN, "val": "a zebra ate\n", "test": "the dog, é\r\n"}.items():
        (folder / f"wikitext2_{split}_clean.txt").write_bytes(text.encode())
    return folder


def tensors(folder):
    import torch

    return {split: torch.load(folder / f"{split}_ids.pt", weights_only=True) for split in ("train", "val", "test")}


def test_defaults(run, texts, tmp_path):
    status, _, err = run()
    assert (status, err) == (0, "")
    tokenizer = BPETokenizer.from_file(tmp_path / "tokenizer" / "bpe_tokenizer.json")
    assert {"z", "b", ",", "é"} <= set(tokenizer.base_tokens)
    assert "\r" not in tokenizer.base_tokens
    written = tensors(tmp_path / "data" / "encoded_bpe")
    import torch

    assert all(tensor.dtype == torch.long and tensor.dim() == 1 for tensor in written.values())
    assert tokenizer.decode(written["train"]) == TRAIN
    assert tokenizer.decode(written["test"]) == "the dog, é\n"
    assert sorted(path.name for path in (tmp_path / "data" / "encoded_bpe").iterdir()) == [
        *("test_ids.pt", "tokenizer_fingerprint.json", "train_ids.pt", "val_ids.pt")
    ]


def test_everything_is_printed(run, texts):
    _, out, _ = run("--target-vocab-size", 150, "--training-characters", 1000)
    for line in (
        f"Train characters: {len(TRAIN):,}",
        "Validation characters: 12",
        "Test characters: 11",
        "Training characters: 1,000",
        r"Initial characters: \d+",
        r"Base vocabulary: \d+",
        r"Merge +1: 'a' \+ 't' -> 'at' \| count \d+ \| sequence length \d+ \| vocabulary \d+",
        r"Merge +20: ",
        r"Stopped: .+",
        r"Final vocabulary: \d+",
        r"Final sequence length: \d+",
        r"Fingerprint: [0-9a-f]{64}",
        r"Reload test: passed",
        rf"Train: passed \({len(TRAIN):,} characters -> [\d,]+ tokens\)",
        r"Validation: passed \(12 characters -> \d+ tokens\)",
        r"Train: shape \(\d+,\), min \d+, max \d+",
        rf"Train: {len(TRAIN):,} character tokens, [\d,]+ BPE tokens, compression factor \d+\.\d\dx, reduction \d+\.\d\d%",
        r"Text: Artificial intelligence and machine learning",
        r"Tokens: \['A', ",
        r"Ids: \[\d+, ",
        r"Decoded: Artificial intelligence and machine learning",
    ):
        assert re.search("^" + line, out, re.MULTILINE), line
    assert not re.search(r"^Merge +21: ", out, re.MULTILINE)
    longest = out.split("Longest learned tokens")[1].split("Sample")[0]
    rows = re.findall(r"^ *(\d+)  ('.*')$", longest, re.MULTILINE)
    assert 0 < len(rows) <= 30
    assert [len(row[1]) for row in rows] == sorted((len(row[1]) for row in rows), reverse=True)


def test_every_hundredth_merge_is_printed(run, texts):
    words = " ".join(f"w{number}x{number * 7919}" for number in range(3000))
    (texts / "wikitext2_train_clean.txt").write_text(words)
    _, out, _ = run("--target-vocab-size", 260)
    assert re.search(r"^Merge +100: ", out, re.MULTILINE)
    assert re.search(r"^Merge +200: ", out, re.MULTILINE)
    assert not re.search(r"^Merge +101: ", out, re.MULTILINE)
    assert "Left out: the texts have none of the characters 'A'" in out


def test_it_learns_from_the_beginning_of_train_alone(run, texts, tmp_path):
    run("--training-characters", 100)
    first = BPETokenizer.from_file("tokenizer/bpe_tokenizer.json")
    base = sorted(set(TRAIN) | set("a zebra ate\n") | set("the dog, é\n"))
    assert first.merges == BPETokenizer.train(TRAIN[:100], 500, base_tokens=base, verbose=False).merges
    assert first.base_tokens == base


def test_it_may_run_again_with_other_options(run, texts, tmp_path):
    assert run("--target-vocab-size", 60)[0] == 0
    assert run("--target-vocab-size", 40)[0] == 0
    note = json.loads(Path("data/encoded_bpe/tokenizer_fingerprint.json").read_text())
    assert note["tokenizer_fingerprint"] == BPETokenizer.from_file("tokenizer/bpe_tokenizer.json").fingerprint()
    assert note["vocab_size"] == 40


def test_ids_of_characters_are_not_overwritten(run, texts, tmp_path):
    folder = tmp_path / "data" / "encoded"
    folder.mkdir()
    (folder / "val_ids.pt").write_bytes(b"ids of characters")
    status, out, err = run("--encoded-output-dir", folder)
    assert status == 1
    assert out == ""
    assert "val_ids.pt: was not written by this program" in err
    assert (folder / "val_ids.pt").read_bytes() == b"ids of characters"
    assert not Path("tokenizer").exists()


def test_another_file_in_the_tokenizers_place_is_not_overwritten(run, texts):
    Path("notes.json").write_text('{"mine": 1}')
    status, _, err = run("--tokenizer-output", "notes.json")
    assert status == 1
    assert "notes.json: is no character tokenizer" in err
    assert Path("notes.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (
            lambda folder: (folder / "wikitext2_val_clean.txt").unlink(),
            "wikitext2_val_clean.txt: there is no such file",
        ),
        (lambda folder: shutil.rmtree(folder), "wikitext2_train_clean.txt: there is no such file"),
        (lambda folder: (folder / "wikitext2_test_clean.txt").write_bytes(b"ab\xff"), "not UTF-8 at byte 2"),
        (lambda folder: (folder / "wikitext2_train_clean.txt").write_bytes(b""), "nothing to train on"),
    ],
)
def test_what_cannot_be_read_is_one_message_and_writes_nothing(run, texts, break_it, message):
    break_it(texts)
    status, _, err = run()
    assert status == 1
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not Path("tokenizer").exists()
    assert not Path("data/encoded_bpe").exists()


def test_a_vocabulary_below_the_characters_is_refused(run, texts):
    status, _, err = run("--target-vocab-size", 5)
    assert status == 1
    assert "--target-vocab-size is 5" in err


@pytest.mark.parametrize("option", ["--target-vocab-size", "--training-characters", "--minimum-pair-frequency"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5"])
def test_numbers_that_cannot_be_are_wrong_usage(run, texts, option, value):
    status, _, err = run(option, value)
    assert status == 2
    assert option in err


def test_an_empty_split_is_encoded_too(run, texts, tmp_path):
    (texts / "wikitext2_val_clean.txt").write_bytes(b"")
    status, out, _ = run()
    assert status == 0
    assert "Validation: shape (0,), empty" in out
    assert len(tensors(tmp_path / "data" / "encoded_bpe")["val"]) == 0


def test_a_held_out_text_that_is_the_training_text_is_warned_of(run, texts):
    shutil.copy(texts / "wikitext2_train_clean.txt", texts / "wikitext2_val_clean.txt")
    status, _, err = run()
    assert status == 0
    assert "warning: validation is the same text as train" in err


def test_a_full_disk_leaves_no_half_of_the_ids(run, texts, monkeypatch, tmp_path):
    import torch

    assert run("--target-vocab-size", 60)[0] == 0
    before = {path: path.read_bytes() for path in Path("data/encoded_bpe").iterdir()}
    save = torch.save
    written = []

    def full(tensor, path):
        written.append(path)
        if len(written) == 2:
            raise OSError(28, "No space left on device", str(path))
        save(tensor, path)

    monkeypatch.setattr(torch, "save", full)
    status, _, err = run("--target-vocab-size", 70)
    assert status == 1
    assert "No space left on device" in err
    assert {path: path.read_bytes() for path in Path("data/encoded_bpe").iterdir()} == before


def test_it_runs_from_anywhere_and_explains_itself(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    for option, default in {
        "--processed-dir": "data/processed",
        "--tokenizer-output": "tokenizer/bpe_tokenizer.json",
        "--encoded-output-dir": "data/encoded_bpe",
        "--target-vocab-size": "500",
        "--training-characters": "500000",
        "--minimum-pair-frequency": "2",
    }.items():
        assert option in done.stdout
        assert f"({default})" in done.stdout.replace("\n", "")


# The published rows, on WikiText-2, word level


@pytest.fixture(scope="module")
def wikitext(shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wikitext-2")
    for name, split in {"train": "train", "valid": "val", "test": "test"}.items():
        shutil.copy(shared / "corpora" / "wikitext-2" / f"{name}.txt", folder / f"wikitext2_{split}_clean.txt")
    return folder


def test_the_published_row_of_300_ids(run, wikitext):
    status, out, _ = run("--processed-dir", wikitext, "--training-characters", 100_000, "--target-vocab-size", 300)
    assert status == 0
    assert "Fingerprint: 263964a61ecf6adfe4fd3a971383bb13fb5fd7627b4da4ea93a7801badd4cd81" in out
    assert "Merge   17: 'a' + 'l' -> 'al'" in out
    for tokens in ("8,554,729", "884,573", "992,014"):
        assert f"-> {tokens} tokens)" in out


def test_the_published_fingerprint_of_500_ids(wikitext):
    read = {split: (wikitext / f"wikitext2_{split}_clean.txt").read_text("utf-8") for split in ("train", "val", "test")}
    base = sorted(set().union(*read.values()))
    tokenizer = BPETokenizer.train(read["train"][:500_000], 500, base_tokens=base, verbose=False)
    assert tokenizer.fingerprint() == "21201a84c2c398558a3dbc1b7d28ab7d232bf9dcc35ef141a9996a274cc98e0f"
    assert len(tokenizer.merges) == 217
    assert [len(tokenizer.encode(read[split])) for split in ("val", "test")] == [519_689, 577_127]


@pytest.mark.slow
def test_the_published_row_of_the_defaults(run, wikitext):
    status, out, _ = run("--processed-dir", wikitext)
    assert status == 0
    assert "Fingerprint: 21201a84c2c398558a3dbc1b7d28ab7d232bf9dcc35ef141a9996a274cc98e0f" in out
    for tokens in ("5,181,348", "519,689", "577,127"):
        assert f"-> {tokens} tokens)" in out
    assert "compression factor 2.08x, reduction 51.94%" in out
