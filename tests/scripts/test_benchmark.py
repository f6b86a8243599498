"""The benchmark's harness, on a vocabulary and texts of a few kilobytes, with contenders made for it."""

import argparse
import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from minigpt_tok import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))  # at the end: it has a file called test

from benchmarks import encode, goals, measure, peers, train, trainers  # noqa: E402
from benchmarks.jobs import documents_of, first_difference, flat_ids  # noqa: E402
from benchmarks.measure import Outcome, Result  # noqa: E402
from benchmarks.worker import scrubbed  # noqa: E402

PARAGRAPH = "It was the best of times, it was the worst of times; don't ask — 1859.\nIt was the age of wisdom.\n\n"
CONTENDERS = """
from benchmarks.peers import Calls
from minigpt_tok import Tokenizer

def right(vocabulary, threads):
    print("a package that talks")
    return Calls({"array": Tokenizer.load(vocabulary.json).encode})

def wrong(vocabulary, threads):
    return Calls({"array": lambda text: [*Tokenizer.load(vocabulary.json).encode(text)[:-1], 7]})

def broken(vocabulary, threads):
    raise OSError("cannot read /home/someone/secret.json")

def without(vocabulary, threads):
    return Calls({})
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the shared one, with a vocabulary of 400 ids under the name of GPT-2's."""
    folder = tmp_path_factory.mktemp("shared")
    data = folder / "data"
    for name in ("corpora/prose", "corpora/multilingual", "tokenizers/gpt2", "vectors"):
        (data / name).mkdir(parents=True)
    with gzip.open(data / "corpora/prose/gutenberg_100MB.txt.gz", "wt", encoding="utf-8", newline="") as file:
        file.write(PARAGRAPH * 200)
    tokenizer = train_tokenizer([PARAGRAPH * 200], 300)
    tokenizer.to_hf_json(data / "tokenizers/gpt2/tokenizer.json")
    tokenizer.to_tiktoken(data / "tokenizers/gpt2/r50k_base.tiktoken")
    case = {"text": "worst", "ids": tokenizer.encode("worst")}
    (data / "vectors/gpt2.json").write_text(json.dumps({"cases": [case, {"text": "<|x|>", "ids": [0]}]}))
    return folder


def parse(module, *given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(given)


@pytest.fixture(scope="module")
def encoded(small: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict]]:
    """One run of `encode`: its folder, and contenders by name."""
    with pytest.MonkeyPatch.context() as patch:
        modules = tmp_path_factory.mktemp("modules")
        (modules / "made_up.py").write_text(CONTENDERS)
        patch.syspath_prepend(modules)
        patch.setenv("PYTHONPATH", str(modules))
        patch.setitem(peers.PEERS, "absent", peers.Peer("absent", "no-such-package-here", lambda *_: None))
        out = tmp_path_factory.mktemp("out")
        names = ",".join(["minigpt-tok", "absent", *(f"made_up:{n}" for n in ("right", "wrong", "broken", "without"))])
        given = ["--quick", "--shared", str(small), "--contenders", names, "--out", str(out), "--rounds", "2"]
        chosen = ["--passes", "1", "--vocabularies", "gpt2", "--jobs", "array", "--texts", "prose"]
        encode.run(parse(encode, *given, *chosen))
    (job,) = json.loads((out / "encode.json").read_text(encoding="utf-8"))["jobs"]
    return out, {contender["name"]: contender for contender in job["contenders"]}


def test_right_contenders_are_timed_in_every_round(encoded):
    for name in ("minigpt-tok", "made_up:right"):
        contender = encoded[1][name]
        assert contender["status"] == "ok"
        assert len(contender["first"]) == len(contender["later"]) == 2
        assert all(second > 0 for sample in contender["first"] + contender["later"] for second in sample)


@pytest.mark.parametrize(
    ("name", "status", "note"),
    [
        ("made_up:wrong", "wrong", "is 7, not"),
        ("made_up:broken", "failed", "OSError: cannot read …"),
        ("made_up:without", "cannot", "has no such call"),
        ("absent", "missing", "no-such-package-here is not installed"),
    ],
)
def test_other_contenders_are_named_and_not_timed(encoded, name: str, status: str, note: str):
    contender = encoded[1][name]
    assert (contender["status"], contender["first"], contender["later"]) == (status, [], [])
    assert note in contender["note"]


def test_published_vectors_are_compared_but_for_those_with_special_tokens(encoded):
    assert (encoded[1]["minigpt-tok"]["vectors"], encoded[1]["minigpt-tok"]["vectors_wrong"]) == (1, 0)


def test_files_say_what_was_measured_and_nothing_about_where(encoded, small: Path):
    out, _ = encoded
    page = (out / "encode.md").read_text(encoding="utf-8")
    assert "| **minigpt-tok** |" in page
    assert "WRONG" in page
    assert (out / "encode.png").read_bytes().startswith(b"\x89PNG")
    for text in (page, (out / "encode.json").read_text(encoding="utf-8")):
        assert str(small) not in text
        assert str(out) not in text
        assert "/home" not in text


def test_training_is_compared_with_tokenizers_and_its_memory_watched(small: Path, tmp_path: Path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setattr(train, "MERGES_FILE", tmp_path / "merges.json")
    given = ["--quick", "--shared", str(small), "--contenders", "minigpt-tok", "--out", str(tmp_path), "--rounds", "1"]
    train.run(parse(train, *given, "--threads", "1", "--vocab-size", "300"))
    (job,) = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))["jobs"]
    assert [contender["note"] for contender in job["contenders"]] == ["merges equal to tokenizers' (whole)"]
    assert len(job["contenders"][0]["first"]) == 1
    if sys.platform == "linux":
        assert 0 < job["peak_memory"]["minigpt-tok"] < 200_000_000
    assert not (tmp_path / "merges.json").exists()  # kept for the whole text only


def test_merges_that_differ_are_wrong():
    trainer = trainers.TRAINERS["gigatoken"]
    status, note = train._judge_merges(trainer, {"sha256": "b"}, "a", set(), set())
    assert status == "wrong"
    assert "(whole)" in note
    assert train._judge_merges(trainer, {"sha256": "a"}, "a", set(), set())[0] == "ok"


def test_a_trainer_with_ties_of_its_own_learns_nearly_the_same_tokens():
    trainer = trainers.TRAINERS["rustbpe"]
    ours = {str(number) for number in range(100)}
    assert train._judge_merges(trainer, {}, None, {str(number) for number in range(3, 103)}, ours)[0] == "ok"
    assert train._judge_merges(trainer, {}, None, {str(number) for number in range(9, 109)}, ours)[0] == "wrong"


def test_parts_of_the_whole_have_the_pieces_of_the_whole():
    from minigpt_tok.bpe.pretokenize import get_pretokenizer

    text = PARAGRAPH * 100 + "  \n \n\n end \n"
    parts = list(trainers._parts_of_whole(text))
    assert len(parts) > 3
    assert "".join(parts) == text
    pieces = get_pretokenizer("gpt2").pieces
    assert [piece for part in parts for piece in pieces(part)] == pieces(text)


def test_the_hash_of_merges_tells_order_and_borders():
    hashes = {trainers.hash_of(m) for m in ([(b"a", b"b"), (b"c", b"d")], [(b"c", b"d"), (b"a", b"b")], [(b"ab", b"")])}
    assert len(hashes) == 3


def test_memory_before_and_after_a_call_does_not_count():
    def at(anonymous: int, files: int = 0, peak: int = 0) -> dict[str, int]:
        return {"RssAnon": anonymous, "RssFile": files, "VmHWM": peak}

    answer = {"started": 1.0, "ended": 3.0, "before": at(10, peak=10), "after": at(12, 5, 10)}
    seen = [(0.5, at(900)), (1.5, at(30, 40)), (2.5, at(20)), (3.5, at(800))]
    assert train.peak_of(answer, seen) == 20
    assert train.peak_of(answer | {"after": at(12, 5, 100)}, seen) == 50  # 60 that were no files, between two readings
    assert train.peak_of({}, seen) is None


def outcome(**seconds: float) -> Outcome:
    results = [Result(name, "1", "ok", bytes=10**6, later=[[9.0, value]]) for name, value in seconds.items()]
    return Outcome("array", "title", "prose", "gpt2", 1, "tiktoken", results)


@pytest.mark.parametrize(
    ("ours", "met"), [(0.4, "goal"), (0.5, "least"), (0.6, "least"), (0.7, "no")]
)  # against 0.5 of the best peer
def test_goals_are_ratios_of_speeds(ours: float, met: str):
    measured = outcome(slow=2.0, best=0.5, **{"minigpt-tok": ours})
    (verdict,) = goals.judge(measured, goals.Goal(1.25, 0.8), ("later",))
    assert verdict.met == met
    assert verdict.figure.endswith("× best")


def test_being_behind_another_peer_is_not_enough_where_we_should_be_ahead():
    measured = outcome(rival=0.5, other=0.55, **{"minigpt-tok": 0.6})
    goal = goals.Goal(1.25, 0.8, against="rival", ahead_of_others=True)
    (verdict,) = goals.judge(measured, goal, ("later",))
    assert (verdict.met, verdict.figure) == ("no", "0.83 × rival, behind other")


def test_what_was_not_measured_is_not_judged():
    (verdict,) = goals.judge(outcome(best=1.0), goals.Goal(1, 1), ("later",))
    assert verdict.met == "unknown"


def test_documents_are_the_text_in_parts_of_some_length():
    text = PARAGRAPH * 99 + "end"
    documents = documents_of(text, 500)
    assert "".join(documents) == text
    assert all(len(document) >= 500 and document.endswith("\n\n") for document in documents[:-1])
    assert documents_of("") == []


@pytest.mark.parametrize(
    "given",
    [
        [1, 2, 70000],
        [[1], [], [2, 70000]],
        np.array([1, 2, 70000]),
        np.array([1, 2, 70000], dtype="<u4").tobytes(),
        [np.array([1, 2]), np.array([70000])],
    ],
)
def test_ids_are_found_in_whatever_they_come_in(given):
    ids = flat_ids(given)
    assert ids.dtype == np.uint32
    assert ids.tolist() == [1, 2, 70000]


def test_a_difference_is_told_by_its_first_place():
    assert first_difference(np.array([1, 2, 3]), np.array([1, 2, 3])) is None
    assert first_difference(np.array([1, 2, 3]), np.array([1, 5, 9])) == "id 1 is 5, not 2"
    assert first_difference(np.array([1, 2, 3]), np.array([1, 2])) == "2 ids, not 3"


def test_messages_lose_their_paths():
    assert scrubbed("FileNotFoundError: /home/me/x.json is gone\nmore") == "FileNotFoundError: … is gone"


def test_a_process_that_ends_without_a_word_has_failed():
    answer = measure.answer_of(-11, "", "Traceback\nSegmentation fault at /usr/lib/x\n")
    assert answer == {"status": "failed", "note": "ended with -11: Segmentation fault at …"}


def test_an_unknown_contender_is_refused():
    with pytest.raises(ValueError, match="no contender is called nonsense"):
        peers.find("nonsense")
    with pytest.raises(SystemExit, match="no corpora there"):
        measure.shared_data(Path("nowhere"))


def test_every_contender_is_in_the_pins_or_is_ours():
    pins = (ROOT / "requirements" / "bench.txt").read_text().lower()
    measured = {peer.package for peer in peers.PEERS.values()} | {t.package for t in trainers.TRAINERS.values()}
    assert [package for package in measured - {peers.OURS} if f"\n{package.lower()}==" not in pins] == []


def test_all_subcommands_can_be_asked_for_help(capsys, monkeypatch):
    import benchmark

    for name in ("encode", "train", "decode", "latency", "threads", "fit"):
        monkeypatch.setattr(sys, "argv", ["benchmark.py", name, "--help"])
        with pytest.raises(SystemExit, match="0"):
            benchmark.main()
    assert "--steps" in capsys.readouterr().out


def test_threads_are_judged_by_the_wall():
    from benchmarks import threads

    def measured(**walls: float) -> Outcome:
        results = [Result(name, "1", "ok", bytes=10**6, later=[[wall, 9.0]]) for name, wall in walls.items()]
        return Outcome("documents_to_arrays", "title", "prose", "gpt2", 2, "tiktoken", results)

    one = measured(**{"minigpt-tok": 1.0})
    for ours, rival, met in ((0.5, 0.6, "goal"), (0.5, 0.4, "least"), (0.55, 0.6, "least"), (0.7, 0.9, "no")):
        assert threads.verdict(one, measured(gigatoken=rival, **{"minigpt-tok": ours})).met == met
    assert threads.verdict(one, SimpleNamespace(**measured().__dict__, find=lambda _: None)).met == "unknown"
