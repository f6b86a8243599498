"""Contenders in processes of their own, verified before anything is timed, then measured in interleaved rounds.

A round starts every contender once, A B C, A B C: a fresh process each, which loads the tokenizer (and calls it on one
letter), encodes a first time with empty caches, then some times more. So a busy moment of the machine hits all alike,
one runs at a time, and first passes have as many samples as there are rounds. The text is one `str`, the same object in
every pass.

For one thread the process is pinned to one core, and `RAYON_NUM_THREADS=1` and `TOKENIZERS_PARALLELISM=false` are set.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import peers, vocabularies
from benchmarks.jobs import JOBS
from benchmarks.peers import OURS, Peer
from benchmarks.texts import Text, Texts
from benchmarks.vocabularies import Vocabulary
from benchmarks.worker import scrubbed

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "tiktoken"


@dataclass
class Result:
    """One contender at one job.

    Attributes:
        name, version: of the contender.
        status: `ok`, or why there are no times: `missing`, `cannot`, `wrong` or `failed`.
        note: in a few words.
        bytes: of text in a pass.
        vectors, vectors_wrong: how many published vectors there are for the vocabulary, and got other ids.
        load: seconds until the tokenizer was ready, a sample for each round.
        first, later: (wall, CPU) seconds of every pass.
    """

    name: str
    version: str | None
    status: str
    note: str | None = None
    bytes: int = 0
    vectors: int = 0
    vectors_wrong: int = 0
    load: list[float] = field(default_factory=list)
    first: list[list[float]] = field(default_factory=list)
    later: list[list[float]] = field(default_factory=list)

    def seconds(self, phase: str, clock: str) -> float | None:
        """The median of `first` or `later` by the `wall` or `cpu` clock, if there is one."""
        samples = [sample[clock == "cpu"] for sample in getattr(self, phase)]
        return statistics.median(samples) if samples else None

    def speed(self, phase: str, clock: str) -> float | None:
        """Megabytes of text a second."""
        seconds = self.seconds(phase, clock)
        return self.bytes / 1e6 / seconds if seconds and self.bytes else None


@dataclass
class Outcome:
    """All contenders at one job."""

    job: str
    title: str
    text: str
    vocabulary: str
    threads: int
    reference: str
    results: list[Result]

    @property
    def clock(self) -> str:
        """By which contenders are compared: CPU time of one thread, which a busy machine disturbs less; else the wall."""
        return "cpu" if self.threads == 1 else "wall"

    def find(self, name: str) -> Result | None:
        """The result of a contender that was measured."""
        return next((result for result in self.results if result.name == name and result.status == "ok"), None)


@dataclass
class Session:
    """What all measurements of one run share; make one with `session`."""

    data: Path
    scratch: Path
    texts: Texts
    contenders: list[Peer]
    rounds: int
    passes: int
    budget: float
    timeout: float
    _vocabularies: dict[str, Vocabulary] = field(default_factory=dict)

    def vocabulary(self, name: str) -> Vocabulary:
        """A vocabulary, found once."""
        if name not in self._vocabularies:
            self._vocabularies[name] = vocabularies.find(name, self.data, self.scratch)
        return self._vocabularies[name]


@contextmanager
def session(arguments: Any) -> Iterator[Session]:
    """A session by the command line's options, with a temporary folder that goes with it."""
    data = shared_data(arguments.shared)
    names = arguments.contenders or list(peers.PEERS)
    try:
        contenders = [peers.find(name) for name in names]
    except (ValueError, ImportError, AttributeError) as error:
        raise SystemExit(str(error)) from None
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        scratch = Path(folder)
        yield Session(
            data=data,
            scratch=scratch,
            texts=Texts(data, scratch, quick=arguments.quick),
            contenders=contenders,
            rounds=arguments.rounds,
            passes=arguments.passes,
            budget=arguments.budget,
            timeout=arguments.timeout,
        )


def shared_data(given: Path | None) -> Path:
    """The folder with corpora and vocabularies."""
    shared = given or Path(os.environ.get("MINIGPT_TOK_SHARED") or ROOT.parent / "shared")
    data = shared / "data"
    if not (data / "corpora").is_dir():
        raise SystemExit(
            f"{data}: no corpora there; name the folder of shared data with --shared or MINIGPT_TOK_SHARED"
        )
    return data


def compare(
    session: Session, job: str, text_name: str, vocabulary: str, *, threads: int = 1, string: str | None = None
) -> Outcome:
    """Verify, then time, every contender of a session at one job.

    Args:
        session: whose contenders, texts and rounds.
        job: one of `jobs.JOBS`.
        text_name: of the text; a title only, where a `string` is given.
        vocabulary: `gpt2` or `cl100k`.
        threads: that contenders may use.
        string: a short text, whose single calls are measured in place of passes.
    """
    where = session.vocabulary(vocabulary)
    tasks: dict[str, dict[str, Any]] = {}
    results = []
    reference = _reference(session)
    for peer in session.contenders:
        result = Result(peer.name, peer.version, "ok")
        results.append(result)
        if result.version is None:
            result.status, result.note = "missing", f"{peer.package} is not installed"
            continue
        text = None if string else session.texts.get(text_name, peer.limits.get(job))
        task: dict[str, Any] = {
            "contender": peer.name,
            "job": job,
            "vocabulary": where.to_plain(),
            "threads": threads,
            "cores": cores(threads),
            "passes": session.passes,
            "seconds": session.budget / 10,
        }
        task |= {"string": string} if text is None else {"text": str(text.path)}
        result.bytes = text.size if text else len(str(string).encode("utf-8"))
        task["expected"] = str(_expected(session, task, reference, text))
        answer = run(task | {"mode": "verify"}, peer.environment, timeout=session.timeout)
        result.status, result.note = answer["status"], answer.get("note")
        result.vectors, result.vectors_wrong = answer.get("vectors", 0), answer.get("vectors_wrong", 0)
        if result.status == "ok" and reference == OURS and result.vectors_wrong:
            # Without the reference, the published ids decide.
            result.status, result.note = "wrong", f"{result.vectors_wrong} of {result.vectors} published vectors"
        if result.status == "ok":
            tasks[peer.name] = task
    _time_in_rounds(session, tasks, results, "latency" if string else "time")
    title = JOBS[job].title
    return Outcome(job, title, text_name, vocabulary, threads, reference, results)


def _time_in_rounds(session: Session, tasks: dict[str, dict[str, Any]], results: list[Result], mode: str) -> None:
    spent = dict.fromkeys(tasks, 0.0)
    for number in range(session.rounds):
        for result in results:
            if result.name not in tasks or result.status != "ok":
                continue
            if number >= 2 and spent[result.name] * (number + 1) / number > session.budget:
                continue  # two rounds are enough for those that take so long
            peer = next(peer for peer in session.contenders if peer.name == result.name)
            started = time.perf_counter()
            answer = run(tasks[result.name] | {"mode": mode}, peer.environment, timeout=session.timeout)
            spent[result.name] += time.perf_counter() - started
            if answer["status"] != "ok":
                result.status, result.note = answer["status"], answer.get("note")
                continue
            result.later += answer["later"]
            if "first" in answer:
                result.first.append(answer["first"])
                result.load.append(answer["load"])


def run(task: dict[str, Any], environment: dict[str, str], *, timeout: float) -> dict[str, Any]:
    """Give a task to a process of its own and wait for what it says."""
    with start(task, environment) as process:
        try:
            out, err = process.communicate(json.dumps(task), timeout=timeout)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                return {"status": "failed", "note": f"took more than {timeout:.0f} s"}
            raise
    return answer_of(process.returncode, out, err)


def start(task: dict[str, Any], environment: dict[str, str]) -> subprocess.Popen[str]:
    """The process for a task, which waits to read it."""
    threads = str(task["threads"])
    paths = [str(ROOT / "scripts"), *([str(ROOT)] if str(ROOT) in sys.path else []), os.environ.get("PYTHONPATH", "")]
    variables = {
        "RAYON_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false" if threads == "1" else "true",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUTF8": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | variables | environment,
        encoding="utf-8",
        errors="replace",
    )


def answer_of(returncode: int, out: str, err: str) -> dict[str, Any]:
    """What a process said, or how it ended instead."""
    try:
        return dict(json.loads(out))
    except ValueError:
        last = (err.strip().splitlines() or [""])[-1]
        return {"status": "failed", "note": scrubbed(f"ended with {returncode}: {last}")}


def cores(threads: int) -> list[int]:
    """The cores to be pinned to: the last ones, where the system lets a process choose."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    if threads > len(cores):
        raise SystemExit(f"{threads} threads were asked for, and this process may use {len(cores)} cores")
    return cores[-threads:]


def _reference(session: Session) -> str:
    """Whose ids are taken for right: tiktoken's, or ours where it is missing and published vectors decide about us."""
    return REFERENCE if peers.installed_version(REFERENCE) is not None else OURS


def _expected(session: Session, task: dict[str, Any], reference: str, text: Text | None) -> Path:
    """The file with the ids that are right for a task, made by the reference when it is first needed."""
    documents = JOBS[task["job"]].takes == "documents"
    vocabulary = task["vocabulary"]["name"]
    stem = text.path.stem if text else f"string-{len(task['string'])}"
    path = session.scratch / f"{vocabulary}-{stem}-{'documents' if documents else 'whole'}.npy"
    if not path.exists():
        given = {"contender": reference, "mode": "expect", "documents": documents, "expected": str(path), "threads": 1}
        answer = run(task | given, {}, timeout=session.timeout)
        if answer["status"] != "ok":
            raise SystemExit(f"the reference ids could not be made: {answer.get('note')}")
    return path


def best_peer(results: Iterable[Result], phase: str, clock: str) -> Result | None:
    """The fastest that was measured, but for our own."""
    measured = [
        result
        for result in results
        if result.status == "ok" and not result.name.startswith(OURS) and result.seconds(phase, clock)
    ]
    # By speed, not by seconds: slow ones got less text.
    return max(measured, key=lambda result: result.speed(phase, clock) or 0, default=None)
