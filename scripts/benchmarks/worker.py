"""What runs in a contender's own process: one task, from standard input to standard output, as JSON.

    python -m benchmarks.worker < task.json

Modes: `expect` writes the ids that a reference gives, `verify` compares a contender's with them, `time` measures passes
over a text, and `latency` measures single calls.
"""

import gc
import json
import math
import mmap
import os
import re
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

SHORTEST = 0.1  # seconds of a later pass; shorter ones are repeated within the clock's two readings


def main() -> None:
    """Run the task, or say in a few words why it cannot be run."""
    out = os.dup(1)
    os.dup2(2, 1)  # what a package prints must not stand between the results
    task = json.load(sys.stdin)
    if task.get("cores") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, task["cores"])
    try:
        result = _MODES[task["mode"]](task)
    except Exception as error:
        result = {"status": "failed", "note": scrubbed(f"{type(error).__name__}: {error}")}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file)
    os._exit(0)  # at once: what packages do when Python ends is not what is measured


def scrubbed(message: str) -> str:
    """A message without paths, short enough for a table."""
    return re.sub(r"\S*[/\\]\S*", "…", message).partition("\n")[0][:200]


def timed(call: Callable[[Any], Any], argument: Any, times: int = 1) -> tuple[list[float], Any]:
    """([wall, CPU] seconds of each call, the result)."""
    gc.collect()
    result = None
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        result = call(argument)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return [wall / times, cpu / times], result


def claim_memory(size: int = 1 << 30) -> None:
    """Touch so many bytes and give them back to the system.

    A virtual machine takes free memory from under its system, and hands it out again page by page at the next touch, which
    may take longer than the job. Whoever comes first would pay for that, and those who use other cores' memory.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    free = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE
    with mmap.mmap(-1, min(size, free // 2), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


def _load(task: dict[str, Any]) -> Any:
    from benchmarks import peers
    from benchmarks.vocabularies import Vocabulary

    return peers.find(task["contender"]).load(Vocabulary(**task["vocabulary"]), task["threads"])


def _argument(task: dict[str, Any], id_type: str) -> Any:
    """What the job takes; see `jobs`."""
    import numpy as np
    from benchmarks.jobs import JOBS, documents_of
    from benchmarks.texts import read

    takes = JOBS[task["job"]].takes
    if takes == "text":
        return task["string"] if "string" in task else read(task["text"])
    if takes == "documents":
        return documents_of(read(task["text"]))
    ids = np.load(task["expected"])
    return ids.tolist() if takes == "id list" else ids.astype(id_type)


def _least(job: str, id_type: str) -> Any:
    """The smallest argument that a job has."""
    import numpy as np
    from benchmarks.jobs import JOBS

    least = {"text": "a", "documents": ["a"], "id list": [64], "id array": np.array([64], dtype=id_type)}
    return least[JOBS[job].takes]


def _expect(task: dict[str, Any]) -> dict[str, Any]:
    """Write the ids of the text or, one after another, of its documents."""
    import numpy as np
    from benchmarks.jobs import documents_of, flat_ids
    from benchmarks.texts import read

    encode = _load(task).by_job["array"]
    text = task["string"] if "string" in task else read(task["text"])
    parts = documents_of(text) if task["documents"] else [text]
    np.save(task["expected"], np.concatenate([flat_ids(encode(part)) for part in parts]))
    return {"status": "ok"}


def _verify(task: dict[str, Any]) -> dict[str, Any]:
    """Whether the result is the expected one: `ok`, `wrong`, or `cannot` where the contender has no such call."""
    import numpy as np
    from benchmarks.jobs import JOBS, first_difference, flat_ids
    from benchmarks.texts import read
    from benchmarks.vocabularies import read_vectors

    try:
        calls = _load(task)
    except LookupError as error:
        return {"status": "cannot", "note": scrubbed(str(error).strip("'"))}
    if task["job"] not in calls.by_job:
        return {"status": "cannot", "note": "has no such call"}
    found = calls.by_job[task["job"]](_argument(task, calls.id_type))
    expected = np.load(task["expected"])
    difference: str | None = None
    gives = JOBS[task["job"]].gives
    if gives == "ids":
        difference = first_difference(expected, flat_ids(found))
    elif gives == "count" and found != len(expected):
        difference = f"{found:,} ids, not {len(expected):,}"
    elif gives == "text" and found != read(task["text"]):
        difference = "another text"
    result = {"status": "wrong" if difference else "ok", "note": difference}
    vectors = task["vocabulary"]["vectors"]
    if "list" in calls.by_job and os.path.exists(vectors):
        cases = read_vectors(vectors)
        result["vectors"] = len(cases)
        result["vectors_wrong"] = sum(calls.by_job["list"](text) != ids for text, ids in cases)
    return result


def _time(task: dict[str, Any]) -> dict[str, Any]:
    """The first pass in this process, then later ones, until there are enough or they have taken long enough.

    Before it, a call on a single letter: what a package does when it is first used (imports, tables) is loading.
    """
    started = time.perf_counter()
    calls = _load(task)
    call = calls.by_job[task["job"]]
    call(_least(task["job"], calls.id_type))
    load = time.perf_counter() - started
    argument = _argument(task, calls.id_type)
    claim_memory()
    first, _ = timed(call, argument)
    later: list[list[float]] = []
    times = 1
    spent = 0.0
    while len(later) < task["passes"] and (not later or spent < task["seconds"]):
        seconds, _ = timed(call, argument, times)
        spent += seconds[0] * times
        if times == 1 and not later and seconds[0] < SHORTEST:
            times = math.ceil(SHORTEST / max(seconds[0], 1e-6))
            continue
        later.append(seconds)
    return {"status": "ok", "load": load, "first": first, "later": later}


def _latency(task: dict[str, Any]) -> dict[str, Any]:
    """Seconds of one call on a short string, the median of some hundred thousand."""
    call = _load(task).by_job[task["job"]]
    later = []
    for clock in (time.perf_counter, time.process_time):
        timer = timeit.Timer("call(text)", globals={"call": call, "text": task["string"]}, timer=clock)
        number, _ = timer.autorange()
        times = sorted(timer.repeat(task["passes"], number))
        later.append(times[len(times) // 2] / number)
    return {"status": "ok", "later": [later]}


def _train(task: dict[str, Any]) -> dict[str, Any]:
    from benchmarks import trainers

    return trainers.run(task)


_MODES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "expect": _expect,
    "verify": _verify,
    "time": _time,
    "latency": _latency,
    "train": _train,
}

if __name__ == "__main__":
    main()
