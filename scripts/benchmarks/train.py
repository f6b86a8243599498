"""Training a vocabulary of 32,768 on the prose, counting included, on one thread and on two: time, memory, and merges.

Each run is a fresh process. The first, in which memory is watched, is not timed: its merges are compared with those that
`tokenizers` learns from the same documents (the hash of which is kept in merges.json, since that takes long). Memory is
the most that the process held beyond what it held before the call, pages of files not counted. Our call is
`train_tokenizer(path, 32768)`.
"""

import argparse
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks import measure, trainers
from benchmarks.goals import Verdict, met
from benchmarks.measure import Outcome, Result, Session, session
from benchmarks.options import OUT, add_common
from benchmarks.peers import OURS, installed_version
from benchmarks.report import Report
from benchmarks.texts import Text
from benchmarks.trainers import DEFINITION, TRAINERS, Trainer

GOAL, LEAST = 0.7, 1.0  # of the best's time
MEMORY_GOAL, MEMORY_LEAST = 90, 150  # megabytes
RIVALS = ("gigatoken", "gigabpe")
NEARLY = 0.95  # of the tokens, for trainers with ties of their own
MERGES_FILE = OUT / "merges.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    add_common(parser)
    parser.add_argument("--vocab-size", type=int, help="32,768 unless given; 4,096 with --quick")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="(1 and 2)")


def run(arguments: argparse.Namespace) -> None:
    """Train, print the tables, write the files."""
    chosen = arguments.contenders or list(TRAINERS)
    if unknown := [name for name in chosen if name not in TRAINERS]:
        raise SystemExit(f"no trainer is called {', '.join(unknown)}; there are {', '.join(TRAINERS)}")
    arguments.contenders = [OURS]  # the session's contenders are encoders
    arguments.vocab_size = arguments.vocab_size or (4096 if arguments.quick else 32768)
    with session(arguments) as running, Report("train", arguments) as report:
        text = running.texts.get("prose")
        for threads in arguments.threads:
            outcome, memory = _compare(
                running, [TRAINERS[name] for name in chosen], text, arguments.vocab_size, threads
            )
            report.add(outcome, _verdicts(outcome, memory), extra={"peak_memory": memory})
        report.texts = running.texts.made()


def _compare(
    running: Session, chosen: list[Trainer], text: Text, vocab_size: int, threads: int
) -> tuple[Outcome, dict[str, int]]:
    """All trainers in rounds, and the peak memory of each, in bytes."""
    results: list[Result] = []
    memory: dict[str, int] = {}
    ours: set[str] = set()
    tasks: dict[str, dict[str, Any]] = {}
    for trainer in chosen:
        version = installed_version(trainer.package)
        result = Result(trainer.name, version, "ok", bytes=text.size)
        results.append(result)
        if version is None:
            result.status, result.note = "missing", f"{trainer.package} is not installed"
            continue
        task = {
            "mode": "train",
            "contender": trainer.name,
            "text": str(text.path),
            "vocab_size": vocab_size,
            "threads": threads,
            "cores": measure.cores(threads),
        }
        wanted = None if trainer.own_ties else _expected(running, text, vocab_size, trainer.documents)
        answer, peak = watched(task | {"do": "verify", "merges": vocab_size - 256}, timeout=running.timeout)
        if answer["status"] != "ok":
            result.status, result.note = answer["status"], answer.get("note")
            continue
        if peak is not None:
            memory[trainer.name] = peak
        learned = set(answer["tokens"])
        if trainer.name == OURS:
            ours = learned
        result.status, result.note = _judge_merges(trainer, answer, wanted, learned, ours)
        if result.status == "ok":
            tasks[trainer.name] = task
    for number in range(running.rounds):
        for result in results:
            if result.name in tasks and result.status == "ok" and number < TRAINERS[result.name].rounds:
                answer = measure.run(tasks[result.name] | {"do": "time"}, {}, timeout=running.timeout)
                if answer["status"] == "ok":
                    result.first.append(answer["first"])
                else:
                    result.status, result.note = answer["status"], answer.get("note")
    title = f"train {vocab_size:,}"
    return Outcome("train", title, text.name, "byte-level", threads, DEFINITION, results), memory


def _judge_merges(
    trainer: Trainer, answer: dict[str, Any], wanted: str | None, learned: set[str], ours: set[str]
) -> tuple[str, str | None]:
    """(status, note) by what was learned."""
    if trainer.own_ties:
        if not ours:
            return "ok", "ties of its own, not compared"
        alike = len(learned & ours) / max(len(ours), 1)
        return "ok" if alike >= NEARLY else "wrong", f"ties of its own: {alike:.2%} of our tokens"
    if wanted is None:
        return "ok", f"not compared: {DEFINITION} is not installed"
    if answer["sha256"] != wanted:
        return "wrong", f"merges are not those of {DEFINITION} on the same documents ({trainer.documents})"
    return "ok", f"merges equal to {DEFINITION}' ({trainer.documents})"


def _expected(running: Session, text: Text, vocab_size: int, documents: str) -> str | None:
    """The hash of the merges that `tokenizers` learns; from the file of known ones, or computed (and kept, for a whole text)."""
    known = json.loads(MERGES_FILE.read_text(encoding="utf-8")) if MERGES_FILE.exists() else []
    key = {"text_sha256": text.sha256, "vocab_size": vocab_size, "documents": documents}
    for entry in known:
        if all(entry[name] == value for name, value in key.items()):
            return str(entry["sha256"])
    version = installed_version(DEFINITION)
    if version is None:
        return None
    task = {"mode": "train", "do": "expect", "text": str(text.path), "threads": os.cpu_count() or 1}
    answer = measure.run(task | key, {}, timeout=3600)
    if answer["status"] != "ok":
        raise SystemExit(f"the merges of {DEFINITION} could not be computed: {answer.get('note')}")
    entry = {"text": text.name, "bytes": text.size} | key | {"merges": answer["merges"], "sha256": answer["sha256"]}
    known.append(entry | {"made_with": f"{DEFINITION} {version}"})
    if text.size > 50_000_000:
        MERGES_FILE.parent.mkdir(parents=True, exist_ok=True)
        MERGES_FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return str(answer["sha256"])


def watched(
    task: dict[str, Any], *, timeout: float, sleep: Callable[[float], None] = time.sleep
) -> tuple[dict[str, Any], int | None]:
    """A task's answer, and the peak of memory (bytes) between its `started` and `ended` beyond what it held before.

    The memory that no file stands behind is read some hundred times a second. A peak between two readings is found by
    the kernel's own record of all memory, less the most of files that was seen. `None` where the system tells neither.
    """
    seen: list[tuple[float, dict[str, int]]] = []
    with measure.start(task, {}) as process:
        ended = threading.Event()

        def watch() -> None:
            while not ended.is_set():
                try:
                    seen.append((time.monotonic(), trainers.memory_of(process.pid)))
                except (OSError, ValueError):
                    return
                sleep(0.002)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            out, err = process.communicate(json.dumps(task), timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"status": "failed", "note": f"took more than {timeout:.0f} s"}, None
        except BaseException:
            process.kill()
            raise
        finally:
            ended.set()
            watcher.join()
    answer = measure.answer_of(process.returncode, out, err)
    return answer, peak_of(answer, seen)


def peak_of(answer: dict[str, Any], seen: list[tuple[float, dict[str, int]]]) -> int | None:
    """The peak within a call, from readings with their times; see `watched`."""
    if not answer.get("before"):
        return None
    during = [
        memory for at, memory in seen if answer["started"] <= at <= answer["ended"] and memory.keys() >= {"RssAnon"}
    ] + [answer["after"]]
    peak = max(memory["RssAnon"] for memory in during)
    if answer["after"]["VmHWM"] > answer["before"]["VmHWM"]:
        peak = max(peak, answer["after"]["VmHWM"] - max(memory["RssFile"] for memory in during))
    return int(peak - answer["before"]["RssAnon"])


def _verdicts(outcome: Outcome, memory: dict[str, int]) -> list[Verdict]:
    clock = outcome.clock
    what = f"{outcome.title}, {outcome.threads} thread{'s' * (outcome.threads > 1)}"
    wanted = f"{GOAL:g} × the time of the best of {' and '.join(RIVALS)}; at least {LEAST:g} ×"
    ours = outcome.find(OURS)
    times = {name: result.seconds("first", clock) for name in RIVALS if (result := outcome.find(name))}
    known = {name: seconds for name, seconds in times.items() if seconds}
    verdicts = []
    mine = ours.seconds("first", clock) if ours else None
    if not mine or not known:
        verdicts.append(Verdict(what, "not measured", wanted, "unknown"))
    else:
        best = min(known, key=lambda name: known[name])
        ratio = mine / known[best]
        met_ = met(goal=ratio <= GOAL, least=ratio <= LEAST)
        verdicts.append(Verdict(what, f"{ratio:.2f} × {best}", wanted, met_))
    wanted = f"{MEMORY_GOAL} MB; at least {MEMORY_LEAST} MB"
    if OURS in memory:
        megabytes = memory[OURS] / 1e6
        met_ = met(goal=megabytes <= MEMORY_GOAL, least=megabytes <= MEMORY_LEAST)
        verdicts.append(Verdict(f"{what}, peak memory", f"{megabytes:.0f} MB", wanted, met_))
    return verdicts
