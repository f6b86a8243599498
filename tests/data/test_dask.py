"""A Dask cluster on this machine; skips where Dask is not installed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings

import pytest

from minigpt_tok import cluster as clusters
from minigpt_tok import train_tokenizer
from minigpt_tok.bpe import count_documents
from minigpt_tok.cluster import dask_executor
from minigpt_tok.data import engines, shards
from minigpt_tok.data.encode import encode_corpus
from minigpt_tok.errors import DataError

distributed = pytest.importorskip("distributed", reason="needs dask and distributed (extra dask)")


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=False
    ) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(engines, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(shards, "SHARD_BYTES", 100_000)


TEXTS = [f"{n} some text to encode, naïvely, and {n * n} more " * (n % 40) for n in range(1, 1500)]


def test_a_cluster_gives_the_same_bytes_though_a_worker_is_killed_midway(tmp_path, tokenizer, cluster, record_property):
    expected = encode_corpus(TEXTS, tokenizer, tmp_path / "here", workers=1)["train"].read_bytes()
    with dask_executor(cluster.scheduler_address) as (executor, threads):
        assert threads == 2
        path = encode_corpus(TEXTS, tokenizer, tmp_path / "all", executor=executor, workers=threads)["train"]
        assert path.read_bytes() == expected
        killed = []

        def kill_one(split, done, total):
            if not killed and done > 500_000:
                with distributed.Client(cluster, set_as_default=False) as client:
                    processes = client.run(os.getpid)
                killed.append(next(iter(processes.values())))
                os.kill(killed[0], signal.SIGKILL)

        path = encode_corpus(
            TEXTS, tokenizer, tmp_path / "killed", executor=executor, workers=threads, progress=kill_one
        )["train"]
        assert len(killed) == 1
        assert path.read_bytes() == expected
    record_property("summary", "Dask: 2 workers, one killed midway, the same bytes")


def test_a_cluster_counts_for_a_tokenizer_though_a_worker_is_killed_midway(cluster, monkeypatch, record_property):
    monkeypatch.setattr(count_documents, "COUNTED_TOGETHER", 5_000)
    expected = train_tokenizer(TEXTS, 400)
    killed = []

    def kill_one(stage, done, total):
        if not killed and stage == "bytes" and done > 300_000:
            with distributed.Client(cluster, set_as_default=False) as client:
                processes = client.run(os.getpid)
            killed.append(next(iter(processes.values())))
            os.kill(killed[0], signal.SIGKILL)

    with dask_executor(cluster.scheduler_address) as (executor, threads):
        tokenizer = train_tokenizer(TEXTS, 400, executor=executor, workers=threads, progress=kill_one)
    assert len(killed) == 1
    assert tokenizer.fingerprint == expected.fingerprint
    assert tokenizer.training.curve == expected.training.curve
    record_property("summary", "Dask: 2 workers count, one killed midway, the same tokenizer")


@pytest.mark.parametrize(
    ("ends", "said"),
    [("scheduler", "has ended or cannot be reached.*what is finished is kept"), ("workers", "no workers for 1 s")],
)
def test_a_cluster_that_is_gone_midway_is_said_and_not_waited_for(tmp_path, tokenizer, monkeypatch, ends, said):
    monkeypatch.setattr(clusters, "_LOOK_AGAIN", 0.1)
    monkeypatch.setattr(clusters, "_WAIT_FOR_WORKERS", 1 if ends == "workers" else 60)
    monkeypatch.setattr(clusters, "_CONNECT", 2)  # in which a client connects again, too
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        dask_executor(cluster.scheduler_address) as (executor, _),
    ):
        left = []

        def end(split, done, total):
            if not left and done > 500_000:
                left.append(cluster.close() if ends == "scheduler" else cluster.scale(0))

        with pytest.raises(DataError, match=said):
            encode_corpus(TEXTS, tokenizer, tmp_path / "out", executor=executor, workers=1, progress=end)
    assert len(left) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".train.unfinished"]
    expected = encode_corpus(TEXTS, tokenizer, tmp_path / "here", workers=1)["train"].read_bytes()
    assert encode_corpus(TEXTS, tokenizer, tmp_path / "out", workers=1)["train"].read_bytes() == expected


def test_a_scheduler_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(clusters, "_CONNECT", 0.5)
    with (
        pytest.raises(DataError, match=r"no Dask scheduler answers there"),
        dask_executor("tcp://127.0.0.1:9"),
    ):
        pass


def test_the_command_encodes_on_a_cluster(tmp_path, tokenizer, cluster, monkeypatch, capsys):
    from minigpt_tok.cli import main

    monkeypatch.chdir(tmp_path)
    tokenizer.save("t.json")
    (tmp_path / "a.txt").write_text("\n<|endoftext|>\n".join(TEXTS))
    for out, options in (("here", []), ("there", ["--engine", "dask", "--scheduler", cluster.scheduler_address])):
        monkeypatch.setattr(
            "sys.argv", ["minigpt-tok", "encode", "a.txt", "-t", "t.json", "-o", out, "--json", *options]
        )
        with pytest.raises(SystemExit) as exit:
            main()
        assert exit.value.code in (None, 0)
    for path in (tmp_path / "here").glob("*.safetensors"):
        assert (tmp_path / "there" / path.name).read_bytes() == path.read_bytes()


INTERRUPTED = """
import os, signal, sys, threading
import distributed
from minigpt_tok.cli import main

def interrupt(which):
    os.killpg(0, which)  # as a terminal does

def interrupted_start(which, moment):
    start = distributed.LocalCluster.__init__

    def started(self, *words, **options):
        if moment == "before":
            interrupt(which)
        elif moment == "midway":
            threading.Timer(0.3, interrupt, [which]).start()
        start(self, *words, **options)
        if moment == "after":
            interrupt(which)

    return started

if __name__ == "__main__":
    distributed.LocalCluster.__init__ = interrupted_start(getattr(signal, sys.argv.pop(1)), sys.argv.pop(1))
    main()
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
@pytest.mark.parametrize(("which", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("moment", ["before", "midway", "after"])
def test_a_cluster_that_is_interrupted_while_it_starts_is_ended(tmp_path, which, status, moment):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    words = ["train", "a.txt", "-n", "300", "--engine", "dask", "-o", "t.json"]
    (tmp_path / "program.py").write_text(INTERRUPTED, encoding="utf-8")
    program = [sys.executable, "program.py", which, moment, *words]
    process = subprocess.Popen(
        program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        said, wrong = process.communicate(timeout=60)  # which waits for all who hold the other end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, said, wrong) == (status, b"", b"")
    assert not (tmp_path / "t.json").exists()


def test_nobody_is_told_that_much_text_goes_with_a_call(cluster):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dask_executor(cluster.scheduler_address) as (executor, _):
            assert executor.submit(len, b"x" * (12 << 20)).result() == 12 << 20


def test_what_is_no_scheduler_is_said_and_nobody_waits_for_it():
    """A web server, say: Dask takes its answer for the length of a message, of some exabytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

        def answer():
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(1000)
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        program = "import sys; from minigpt_tok.cluster import dask_executor; dask_executor(sys.argv[1]).__enter__()"
        finished = subprocess.run([sys.executable, "-c", program, address], capture_output=True, text=True, timeout=15)
    assert f"DataError: {address}: no Dask scheduler answers there (" in finished.stderr
    assert "Exception ignored" not in finished.stderr


def test_a_cluster_that_cannot_start_is_said(monkeypatch):
    def fail(**options):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(distributed, "LocalCluster", fail)
    with (
        pytest.raises(DataError, match=r"could not be started on this machine \(RuntimeError: Nanny failed"),
        dask_executor(),
    ):
        pass
