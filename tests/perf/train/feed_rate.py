"""Rows of a plan as batches on one CPU core, against what a pod eats; run by hand.

    python tests/perf/train/feed_rate.py [--rows-in-corpus 8192] [--ray]

Rows of 4,096 tokens (a corpus of random documents, packed, made first), batches of 64 rows, one process pinned to one
core. Each round fetches batches at row 0 and at row 10^10 in turn, so both see the same machine; rates are tokens a
second of CPU time and of wall time. ``--ray`` also times the stream that a trainer's worker gets from Ray Data: the CPU
time of every process of a private cluster, all on that core. The last line is JSON; exit 1 where the fetch path misses
50 x 85K tokens per CPU-second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from lemur_ray.corpus.manifest import row_folder  # noqa: E402
from lemur_ray.corpus.rows import RowWriter  # noqa: E402
from lemur_ray.plan.fetch import PlanReader  # noqa: E402
from lemur_ray.plan.plan import Plan, PlanSource  # noqa: E402

NEEDED = 85_000
"""Tokens per second of the paper's pod: 90B tokens in 12.3 days."""
TARGET = 50 * NEEDED
SEQ_LEN, VOCAB, BATCH = 4096, 32_000, 64
FAR = 10**10
RAY_WARM, RAY_BATCHES = 24, 160
"""Batches before the measurement of Ray Data's stream, and in it."""
SOURCES = (("code", 10.0), ("text", 1.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows-in-corpus", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=8, help="of one turn")
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        plan = make_corpus(folder, options.rows_in_corpus)
        summary: dict[str, Any] = {"seq_len": SEQ_LEN, "batch_rows": BATCH, **fetch_rates(plan, folder, options)}
        summary["first_batch_ms"] = first_batches(plan, folder)
        if options.ray:
            summary |= ray_rates(plan, folder)
    summary["times_the_pod"] = round(summary["fetch_cpu"][1] / NEEDED, 1)
    print(json.dumps(summary))
    return 0 if summary["fetch_cpu"][1] >= TARGET else 1


def make_corpus(folder: Path, rows: int) -> Plan:
    """Two sources of rows of several documents each, and a plan that reaches past row 10^10."""
    rng = np.random.default_rng(0)
    sources = []
    for name, weight in SOURCES:
        count = rows if name == "code" else rows // 4
        with RowWriter(row_folder(folder, name), SEQ_LEN, vocab_size=VOCAB) as writer:
            for _ in range(count):
                cuts = np.sort(rng.choice(np.arange(1, SEQ_LEN), 4, replace=False))
                writer.write(np.split(rng.integers(0, VOCAB, SEQ_LEN), cuts))
        sources.append(PlanSource(name, name, count, weight, 2.0 * (FAR + 10**6) / count))
    return Plan(tuple(sources), seed=0, num_rows=FAR + 10**6)


def fetch_rates(plan: Plan, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second at row 0 and at row 10^10, in turn."""
    reader = PlanReader(plan, folder)
    rates: dict[str, list[float]] = {name: [] for name in ("near_cpu", "near_wall", "far_cpu", "far_wall")}
    at = {"near": 0, "far": FAR}
    for turn in range(options.rounds + 1):
        for place in at:
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(options.batches):
                reader.fetch(np.arange(at[place], at[place] + BATCH))
                at[place] += BATCH
            tokens = options.batches * BATCH * SEQ_LEN
            if turn:  # the first turn maps the files
                rates[f"{place}_cpu"].append(tokens / (time.process_time() - cpu))
                rates[f"{place}_wall"].append(tokens / (time.perf_counter() - wall))
    both = {"fetch_cpu": rates["near_cpu"] + rates["far_cpu"], "fetch_wall": rates["near_wall"] + rates["far_wall"]}
    return {name: spread(values) for name, values in {**both, **rates}.items()}


def first_batches(plan: Plan, folder: Path) -> dict[str, float]:
    """Milliseconds of CPU time from opening a reader to its first batch, at row 0 and at row 10^10: the best of 5."""
    out = {}
    for name, start in (("row 0", 0), (f"row {FAR}", FAR)):
        times = []
        for _ in range(5):
            began = time.process_time()
            PlanReader(plan, folder).fetch(np.arange(start, start + BATCH))
            times.append(time.process_time() - began)
        out[name] = round(1000 * min(times), 1)
    return out


def spread(values: list[float]) -> list[int]:
    """Smallest, median, largest."""
    return [round(f(values)) for f in (min, statistics.median, max)]


def ray_rates(plan: Plan, folder: Path) -> dict[str, Any]:
    """What ``iter_batches`` of a rank gives at row 0 and at row 10^10: tokens per CPU-second of the whole cluster and
    of the consumer once the stream runs, and the seconds to the first batch, starts of processes included."""
    import ray

    from lemur_ray.plan.feed import rank_dataset
    from lemur_ray.plan.fetch import RankRows

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    temp = tempfile.mkdtemp(prefix="lf-", dir="/tmp")
    ray.init(address="local", num_cpus=1, include_dashboard=False, _temp_dir=temp, log_to_driver=False,
             logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})  # fmt: skip
    reader, out = PlanReader(plan, folder), dict[str, Any]()
    for name, start in (("near", 0), ("far", FAR)):
        rows = RankRows(start, start + 10**5 // BATCH * BATCH, BATCH)
        began = time.perf_counter()
        cpu, own, wall, first = cluster_cpu(), 0.0, 0.0, 0.0
        for number, batch in enumerate(rank_dataset(reader, rows).iterator().iter_batches(batch_size=BATCH)):
            assert batch["row"][0] == start + number * BATCH
            first = first or time.perf_counter() - began
            if number == RAY_WARM:
                cpu, own, wall = cluster_cpu(), time.process_time(), time.perf_counter()
            if number == RAY_WARM + RAY_BATCHES:
                break
        tokens = RAY_BATCHES * BATCH * SEQ_LEN
        after = cluster_cpu()
        spent = sum(seconds - cpu.get(pid, 0.0) for pid, seconds in after.items())
        out[f"ray_{name}"] = {
            "tokens_per_cpu_s_of_everything": round(tokens / spent),
            "tokens_per_cpu_s_of_the_consumer": round(tokens / (time.process_time() - own)),
            "tokens_per_s": round(tokens / (time.perf_counter() - wall)),
            "first_batch_s": round(first, 2),
        }
    ray.shutdown()
    shutil.rmtree(temp, ignore_errors=True)
    return out


def cluster_cpu() -> dict[int, float]:
    """CPU seconds of this process and of each of its living descendants, by process id."""
    ticks, me = os.sysconf("SC_CLK_TCK"), os.getpid()
    parent, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parent[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:13])) / ticks

    def mine(pid: int) -> bool:
        while pid in parent and pid != me:
            pid = parent[pid]
        return pid == me

    return {pid: seconds for pid, seconds in used.items() if mine(pid)}


if __name__ == "__main__":
    raise SystemExit(main())
