"""Killed, damaged and half-written: whatever happens on the way, the id file comes out the same."""

import dataclasses
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from minigpt_tok.data import engines, shards
from minigpt_tok.data.corpora import Corpus, open_corpus
from minigpt_tok.data.decode import decode_documents
from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.data.id_file import IdFile, read_metadata
from minigpt_tok.data.id_format import IdFileMetadata
from minigpt_tok.data.id_writer import Mark
from minigpt_tok.data.shards import Shards, unfinished_folder
from minigpt_tok.errors import DataError, TokenizerMismatchError


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(engines, "BATCH_BYTES", 2_000)
    monkeypatch.setattr(shards, "SHARD_BYTES", 20_000)


@pytest.fixture(scope="module")
def many_texts():
    words = ["the", "cat", "sat", "na\u00efve", "\u65e5\u672c", "\n", "theory", "<|endoftext|>", "  "]
    dice = random.Random(0)
    return [" ".join(dice.choices(words, k=dice.randint(1, 400))) for _ in range(300)]


@pytest.fixture
def whole(tmp_path, tokenizer, many_texts):
    """The file as one undisturbed run makes it."""
    return encode_corpus(many_texts, tokenizer, tmp_path / "undisturbed", workers=1)["train"].read_bytes()


class StopError(Exception):
    pass


def stopped_after(n_documents, texts):
    class Texts:
        def __iter__(self):
            for n, text in enumerate(texts):
                if n == n_documents:
                    raise StopError
                yield text

    return Texts()


def encoded_documents(monkeypatch):
    """How many documents are encoded from here on."""
    count = [0]
    original = engines.encode_texts

    def counting(tokenizer, separator_id, texts):
        count[0] += len(texts)
        return original(tokenizer, separator_id, texts)

    monkeypatch.setattr(engines, "encode_texts", counting)
    return count


def test_shards_are_finished_one_by_one_and_only_the_rest_is_encoded_again(
    tmp_path, tokenizer, many_texts, whole, monkeypatch, caplog
):
    out = tmp_path / "out"
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, out, workers=1)
    folder = unfinished_folder(out / "train.safetensors")
    assert sorted(path.name for path in out.iterdir()) == [folder.name]
    finished = len((folder / "journal").read_text().splitlines())
    assert finished > 5
    assert f"{finished} finished shards in " in caplog.text
    count = encoded_documents(monkeypatch)
    path = encode_corpus(many_texts, tokenizer, out, workers=1)["train"]
    assert path.read_bytes() == whole
    assert 100 <= count[0] < 150
    assert [left.name for left in out.iterdir()] == ["train.safetensors"]


def test_another_text_is_noticed_in_its_shard_and_what_stands_before_it_is_kept(
    tmp_path, tokenizer, many_texts, monkeypatch, caplog
):
    with pytest.raises(StopError):
        encode_corpus(stopped_after(250, many_texts), tokenizer, tmp_path / "out", workers=1)
    changed = [*many_texts[:150], "something else", *many_texts[151:]]
    count = encoded_documents(monkeypatch)
    path = encode_corpus(changed, tokenizer, tmp_path / "out", workers=1)["train"]
    assert list(decode_documents(IdFile(path), tokenizer)) == changed
    assert 150 <= count[0] < 180
    assert "the text is another from shard" in caplog.text
    with pytest.raises(StopError):
        encode_corpus(stopped_after(250, many_texts), tokenizer, tmp_path / "shorter", workers=1)
    path = encode_corpus(many_texts[:100], tokenizer, tmp_path / "shorter", workers=1)["train"]
    assert list(decode_documents(IdFile(path), tokenizer)) == many_texts[:100]


@pytest.mark.parametrize("name", ["ids", "ends", "sizes", "journal", "plan.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty"])
def test_what_is_damaged_meanwhile_is_made_again(tmp_path, tokenizer, many_texts, whole, name, damage):
    out = tmp_path / "out"
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, out, workers=1)
    path = unfinished_folder(out / "train.safetensors") / name
    raw = path.read_bytes()
    middle = len(raw) // 2
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {
                "flip": raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :],
                "cut": raw[: middle + 1],
                "empty": b"",
            }[damage]
        )
    assert encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() == whole
    assert not unfinished_folder(out / "train.safetensors").exists()


def end_in_finish(monkeypatch, folder, step, then):
    """Have `finish` end at a step: half-way through one of its writes (from 0 on), or before a call of the system."""

    class Torn:
        def __init__(self, file, left):
            self.file, self.left = file, left

        def write(self, raw):
            if self.left == 0:
                self.file.write(raw[: len(raw) // 2])
                self.file.flush()
                then()
            self.left -= 1
            return self.file.write(raw)

        def __getattr__(self, name):
            return getattr(self.file, name)

    if isinstance(step, int):
        complete = shards.complete
        monkeypatch.setattr(shards, "complete", lambda file, *others: complete(Torn(file, step), *others))
    else:
        original = getattr(os, step)

        def call(file, *others):
            if (folder / "ids").exists() and os.path.samestat(os.stat(file), os.stat(folder / "ids")):
                then()
            return original(file, *others)

        monkeypatch.setattr(os, step, call)


@pytest.mark.parametrize("step", [0, 1, 2, 3, "fsync", "replace"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("then", ["same", "changed"])
def test_a_run_that_ends_while_the_file_is_completed_goes_on_there(
    tmp_path, tokenizer, many_texts, whole, monkeypatch, step, how, then
):
    out = tmp_path / "out"
    folder = unfinished_folder(out / "train.safetensors")

    def end():
        if how == "killed":  # nothing is tidied up any more
            shutil.copytree(folder, tmp_path / "as it was")
        raise StopError

    with monkeypatch.context() as patch:
        end_in_finish(patch, folder, step, end)
        with pytest.raises(StopError):
            encode_corpus(many_texts, tokenizer, out, workers=1)
    if how == "killed":
        shutil.rmtree(folder)
        shutil.move(tmp_path / "as it was", folder)
    assert [path.name for path in out.iterdir()] == [folder.name]
    count = encoded_documents(monkeypatch)
    if then == "same":
        assert encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() == whole
        assert count[0] == 0
    else:
        changed = [*many_texts[:-30], "short"]
        path = encode_corpus(changed, tokenizer, out, workers=1)["train"]
        assert list(decode_documents(IdFile(path), tokenizer)) == changed
        IdFile(path).verify()
        assert 0 < count[0] < 60
    assert [path.name for path in out.iterdir()] == ["train.safetensors"]


def test_ids_are_written_where_they_stay_and_the_disk_holds_them_once(tmp_path, tokenizer, many_texts, monkeypatch):
    most = 0
    files = set()
    complete, end_shard = shards.complete, Shards._end_shard
    out = tmp_path / "out"

    def look():
        nonlocal most
        found = [path.stat() for path in out.rglob("*") if path.is_file()]
        most = max(most, sum(one.st_size for one in found))
        files.update(one.st_ino for one in found)

    monkeypatch.setattr(shards, "complete", lambda *arguments: (complete(*arguments), look()))
    monkeypatch.setattr(Shards, "_end_shard", lambda self: (end_shard(self), look()))
    path = encode_corpus(many_texts * 5, tokenizer, out, workers=1)["train"]
    metadata = read_metadata(path)
    assert metadata.n_tokens > 100_000
    journal_and_index = 600 * (metadata.n_bytes // 20_000 + 2) + 16 * metadata.n_documents
    assert path.stat().st_size <= most < path.stat().st_size + journal_and_index
    assert path.stat().st_ino in files
    assert len(files) == 6


def test_what_an_older_version_began_is_begun_anew(tmp_path, tokenizer, many_texts, whole, caplog):
    out = tmp_path / "out"
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, out, workers=1)
    folder = unfinished_folder(out / "train.safetensors")
    plan = json.loads((folder / "plan.json").read_text())
    del plan["sha256"]
    plan["version"] = 1
    (folder / "plan.json").write_text(json.dumps({**plan, "sha256": shards._plan_digest(plan)}))
    (folder / "ids").unlink()
    for name in ("000000.ids", "000001.ids", "whole", "writing", "moving"):
        (folder / name).write_bytes(b"older")
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, out, workers=1)
    assert "begun anew" in caplog.text
    assert sorted(os.listdir(folder)) == ["ends", "ids", "journal", "lock", "plan.json", "sizes"]
    assert encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() == whole


def test_what_stands_behind_the_last_finished_shard_is_nobodys(tmp_path, tokenizer, many_texts, whole):
    out = tmp_path / "out"
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, out, workers=1)
    folder = unfinished_folder(out / "train.safetensors")
    for name in ("ids", "ends", "sizes"):
        with open(folder / name, "ab") as file:
            file.write(b"\xff" * 100_001)
    (folder / "journal").write_bytes((folder / "journal").read_bytes() + b'{"n_tokens": 12')
    assert encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() == whole


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Mark)])
@pytest.mark.parametrize("change", ["less", "more"])
def test_what_the_journal_says_wrongly_is_not_believed(
    tmp_path, tokenizer, many_texts, whole, monkeypatch, key, change
):
    out = tmp_path / "out"
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, out, workers=1)
    journal = unfinished_folder(out / "train.safetensors") / "journal"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    value = lines[3][key]
    if isinstance(value, int):
        lines[3][key] = 10**30 if change == "more" else value // 9
    else:
        lines[3][key] = value[::-1] if change == "more" else ""
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(StopError):  # it is not looked at yet
        encode_corpus(stopped_after(3, many_texts), tokenizer, out, workers=1)
    count = encoded_documents(monkeypatch)
    assert encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() == whole
    assert 200 < count[0] < 300


# The disk takes what there is while more is written


@pytest.mark.parametrize("shard_bytes", [20_000, 1 << 30])  # of many shards, or of one, after which nothing is written
def test_a_disk_that_refuses_meanwhile_is_said(tmp_path, tokenizer, many_texts, whole, monkeypatch, shard_bytes):
    def refuse(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    out = tmp_path / "out"
    monkeypatch.setattr(shards, "SHARD_BYTES", shard_bytes)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "_to_disk", refuse)
        with pytest.raises(
            DataError, match=r"could not be written.*See to that and run the same command again"
        ) as error:
            encode_corpus(many_texts, tokenizer, out, workers=1)
    assert os.strerror(errno.EIO) in str(error.value)
    assert not (out / "train.safetensors").exists()
    assert encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() == whole


@pytest.mark.parametrize("documents", [None, 250])  # all, or stopped before the end
def test_the_disk_is_asked_once_at_a_time_and_about_an_open_file(
    tmp_path, tokenizer, many_texts, whole, monkeypatch, documents
):
    at_once, flushed = [], []

    def slow(descriptor):
        before = os.fstat(descriptor)
        at_once.append(1)
        assert len(at_once) == 1
        time.sleep(0.02)
        at_once.pop()
        flushed.append(os.path.samestat(before, os.fstat(descriptor)))

    monkeypatch.setattr(shards, "_to_disk", slow)
    out = tmp_path / "out"
    if documents is None:
        assert encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() == whole
    else:
        with pytest.raises(StopError):
            encode_corpus(stopped_after(documents, many_texts), tokenizer, out, workers=1)
    assert flushed
    assert all(flushed)
    assert not at_once


def test_another_tokenizers_unfinished_work_is_not_given_up_unasked(
    tmp_path, tokenizer, other_tokenizer, many_texts, caplog
):
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, tmp_path, workers=1)
    with pytest.raises(TokenizerMismatchError, match="overwrite=True"):
        encode_corpus(many_texts, other_tokenizer, tmp_path)
    path = encode_corpus(many_texts, other_tokenizer, tmp_path, overwrite=True)["train"]
    assert read_metadata(path).tokenizer_fingerprint == other_tokenizer.fingerprint
    assert "begun anew" in caplog.text


def test_documents_with_other_borders_are_another_text(tmp_path, tokenizer, many_texts):
    out = tmp_path / "out"
    with pytest.raises(StopError):
        encode_corpus(stopped_after(200, many_texts), tokenizer, out, workers=1)
    moved = list(many_texts)
    moved[0], moved[1] = many_texts[0] + many_texts[1][:1], many_texts[1][1:]
    assert "".join(moved) == "".join(many_texts)
    expected = encode_corpus(moved, tokenizer, tmp_path / "undisturbed", workers=1)["train"].read_bytes()
    assert encode_corpus(moved, tokenizer, out, workers=1)["train"].read_bytes() == expected
    assert (
        encode_corpus(many_texts, tokenizer, out, workers=1)["train"].read_bytes() != expected
    )  # the finished file, too


def test_a_shard_just_finished_is_at_no_moment_one_that_an_earlier_run_left(
    tmp_path, tokenizer, many_texts, monkeypatch
):
    """Documents are read in another thread, which would hold back, or drop, what an earlier run has left."""
    left = []

    class Watched(list):
        def append(self, line):
            left.append(self.shards.finished_left)
            super().append(line)
            left.append(self.shards.finished_left)

    enter = Shards.__enter__

    def watched(self):
        enter(self)
        self.finished = Watched(self.finished)
        self.finished.shards = self
        return self

    monkeypatch.setattr(Shards, "__enter__", watched)
    encode_corpus(many_texts, tokenizer, tmp_path, workers=1)
    assert len(left) > 10
    assert not any(left)


def test_two_runs_do_not_write_the_same_file(tmp_path, tokenizer, many_texts):
    metadata = IdFileMetadata(
        tokenizer_fingerprint="0" * 64, tokenizer_fingerprint_version=1, vocab_size=300, corpus="c", split="train"
    )
    path = tmp_path / "train.safetensors"
    with Shards(path, metadata), pytest.raises(DataError, match="another run"), Shards(path, metadata):
        pass
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_and_what_is_finished_is_kept(tmp_path, tokenizer, many_texts, whole, monkeypatch):
    limit = [8]
    end_shard = Shards._end_shard

    def full(self):
        limit[0] -= 1
        if limit[0] == 0:
            with self._clear_errors():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        end_shard(self)

    monkeypatch.setattr(Shards, "_end_shard", full)
    with pytest.raises(DataError, match=r"No space left.*Free some space and run the same command again"):
        encode_corpus(many_texts, tokenizer, tmp_path / "out", workers=1)
    assert not list((tmp_path / "out").glob("*.safetensors"))
    monkeypatch.setattr(Shards, "_end_shard", end_shard)
    assert encode_corpus(many_texts, tokenizer, tmp_path / "out", workers=1)["train"].read_bytes() == whole


def test_a_folder_that_cannot_be_written_to_is_not_called_full(tmp_path, tokenizer, many_texts, monkeypatch):
    def refuse(self):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Shards, "_resume", refuse)
    with pytest.raises(DataError, match="could not be written") as error:
        encode_corpus(many_texts, tokenizer, tmp_path / "out", workers=1)
    assert os.strerror(errno.EROFS) in str(error.value)
    assert "Free some space" not in str(error.value)


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
def test_a_file_that_the_system_does_not_let_grow(tmp_path, tokenizer, many_texts):
    """A real refusal by the system, at any place."""
    tokenizer.save(tmp_path / "t.json")
    (tmp_path / "run.py").write_text(
        "import resource, signal, sys\n"
        "from minigpt_tok import Tokenizer, encode_corpus\n"
        "from minigpt_tok.data import engines, shards\n"
        "from minigpt_tok.errors import DataError\n"
        "engines.BATCH_BYTES, shards.SHARD_BYTES = 2000, 20000\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "tokenizer = Tokenizer.load('t.json')\n"
        "texts = ['some text to encode ' * 30] * 1000\n"
        "whole = encode_corpus(texts, tokenizer, 'again', workers=1)['train']\n"
        "for limit in (500, 3000, 20000, 60000, whole.stat().st_size - 1):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        encode_corpus(texts, tokenizer, 'out', workers=1)\n"
        "    except DataError as error:\n"
        "        print('refused', error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "encode_corpus(texts, tokenizer, 'out', workers=1)\n"
    )
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused") == 5
    assert (tmp_path / "out/train.safetensors").read_bytes() == (tmp_path / "again/train.safetensors").read_bytes()


# Killed at random moments

RUN = """
import sys
from minigpt_tok import Tokenizer, encode_corpus
from minigpt_tok.data import engines, shards
from minigpt_tok.data.corpora import open_corpus
engines.BATCH_BYTES, engines._INLINE_SECONDS, shards.SHARD_BYTES = 20_000, 0.0, 100_000
class Texts:
    def __iter__(self):
        for n in range(10_000):
            yield f"{n} some text to encode, and {n * n} more " * (n % 70)
if __name__ == "__main__":
    workers = None if sys.argv[2] == "threads" else int(sys.argv[2])
    print("ready", flush=True)
    corpus = open_corpus(Texts(), fractions={"train": 0.6, "test": 0.4})
    encode_corpus(corpus, Tokenizer.load("t.json"), sys.argv[1], workers=workers)
"""


def killed_runs(tmp_path, tokenizer, kills, seed, modes):
    """Kill runs again and again, each going on where the last was killed; (kills, finished encodings, shards kept)."""
    tokenizer.save(tmp_path / "t.json")
    (tmp_path / "run.py").write_text(RUN)

    def start(out, workers):
        return subprocess.Popen(
            [sys.executable, "run.py", out, workers], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    begun = start("undisturbed", "1")
    assert begun.stdout.readline() == b"ready\n"
    started = time.monotonic()
    assert begun.wait(300) == 0
    begun.stdout.close()
    seconds = time.monotonic() - started
    expected = {path.name: path.read_bytes() for path in (tmp_path / "undisturbed").iterdir()}
    assert set(expected) == {"train.safetensors", "test.safetensors"}
    dice = random.Random(seed)
    done = kept = rounds = 0
    while done < kills:
        rounds += 1
        out = f"out{rounds}"
        while True:
            run = start(out, dice.choice(modes))
            assert run.stdout.readline() == b"ready\n"
            wait = dice.random() * seconds * 0.7 if done < kills else None
            try:
                run.wait(wait)
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
            status = run.wait(300)
            run.stdout.close()
            for path in (tmp_path / out).glob("*.safetensors"):
                assert path.read_bytes() == expected[path.name]  # under its final name it is whole, at every moment
            if status == 0:
                break
            assert status == -signal.SIGKILL
            done += 1
            kept += sum(len(p.read_bytes().splitlines()) for p in (tmp_path / out).glob(".*/journal"))
        assert {path.name: path.read_bytes() for path in (tmp_path / out).iterdir()} == expected
        shutil.rmtree(tmp_path / out)
    return done, rounds, kept


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_few_kills_change_no_byte(tmp_path, tokenizer, record_property):
    done, rounds, kept = killed_runs(tmp_path, tokenizer, 3, seed=1, modes=["threads"])
    assert kept > 0
    record_property(
        "summary", f"encode killed {done} times over {rounds} encodings, {kept} finished shards kept in all"
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_fifty_kills_change_no_byte(tmp_path, tokenizer, record_property):
    done, rounds, kept = killed_runs(tmp_path, tokenizer, 50, seed=2, modes=["threads", "1", "2", "3"])
    assert done >= 50
    record_property(
        "summary", f"encode killed {done} times over {rounds} encodings, {kept} finished shards kept in all"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_local_worker_that_is_killed_costs_only_its_batches(tmp_path, tokenizer, many_texts, monkeypatch):
    monkeypatch.setattr(engines, "_INLINE_SECONDS", 0.0)
    texts = many_texts * 5
    expected = encode_corpus(texts, tokenizer, tmp_path / "one", workers=1)["train"].read_bytes()
    pools = []
    start = engines.local_processes
    monkeypatch.setattr(engines, "local_processes", lambda workers: pools.append(start(workers)) or pools[-1])
    killed = []

    def kill_one(split, done, total):
        if len(killed) < 2 and done > (1 + len(killed)) * 300_000:
            process = next(iter(pools[-1]._processes.values()))
            process.kill()
            killed.append(process)

    path = encode_corpus(texts, tokenizer, tmp_path / "two", workers=2, progress=kill_one)["train"]
    assert len(killed) == 2
    assert len(pools) == 3
    assert path.read_bytes() == expected


def test_batches_end_where_shards_do(tmp_path, tokenizer, many_texts, monkeypatch):
    journals = []
    finish = Shards.finish

    def finish_and_look(self):
        finish(self)
        journals.append([(line.n_documents, line.n_bytes) for line in self.finished])

    monkeypatch.setattr(Shards, "finish", finish_and_look)
    for batch_bytes in (100, 2_000, 7_777, 1_000_000):
        monkeypatch.setattr(engines, "BATCH_BYTES", batch_bytes)
        encode_corpus(many_texts, tokenizer, tmp_path / str(batch_bytes), workers=1)
    assert all(journal == journals[0] for journal in journals)
    assert len(journals[0]) > 5


def test_splits_by_hash_are_encoded_in_one_reading_and_go_on_each_from_its_own_shards(
    tmp_path, tokenizer, many_texts, monkeypatch
):
    shares = {"train": 0.5, "validation": 0.3, "test": 0.2}
    apart = open_corpus(many_texts, fractions=shares)
    as_own = Corpus(apart.name, apart.splits, apart.documents)
    expected = {s: p.read_bytes() for s, p in encode_corpus(as_own, tokenizer, tmp_path / "own", workers=1).items()}
    assert set(expected) == set(shares)

    class Counted:
        readings = 0

        def __init__(self, stop_at=None):
            self.stop_at = stop_at

        def __iter__(self):
            Counted.readings += 1
            return iter(stopped_after(self.stop_at, many_texts))

    with pytest.raises(StopError):
        encode_corpus(open_corpus(Counted(200), fractions=shares), tokenizer, tmp_path / "out", workers=1)
    left = {path.parent.name: len(path.read_bytes().splitlines()) for path in (tmp_path / "out").glob(".*/journal")}
    assert len(left) == 3
    assert min(left.values()) > 0
    Counted.readings = 0
    count = encoded_documents(monkeypatch)
    files = encode_corpus(open_corpus(Counted(), fractions=shares), tokenizer, tmp_path / "out", workers=1)
    assert {split: path.read_bytes() for split, path in files.items()} == expected
    assert Counted.readings == 1
    assert 100 <= count[0] < 200
    files["validation"].unlink()
    files["test"].unlink()
    encode_corpus(open_corpus(Counted(), fractions=shares), tokenizer, tmp_path / "out", workers=1)
    assert {split: path.read_bytes() for split, path in files.items()} == expected
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == []
