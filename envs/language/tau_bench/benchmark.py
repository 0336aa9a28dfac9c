"""tau-bench (Yao et al. 2024): ``tau_bench/retail`` and ``tau_bench/airline``.

Data: the authors' package as one archive, ``tau_bench/package.tar.gz``; nothing of it is part of this project.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from math import comb
from pathlib import Path
from typing import Any, Literal

from envs.language.tau_bench.domain import Domain
from envs.language.tau_bench.env import TURNS
from envs.language.tau_bench.recording import DOMAINS, FORMAT, RUNS, read_recording
from envs.outside_data import SETS, required
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import Requirement, requirement_of
from lemur_ray.benchmarks.protocol_options import Tools
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.rows import files_digest
from lemur_ray.host.home import lemur_home
from lemur_ray.outside_data.making import unpacked
from lemur_ray.storage.bundles.host_path import HostPath

SOURCES = SETS["tau_bench"]
NO_USER = (
    "no model plays the user: --teacher openai:URL#MODEL names one (published runs: gpt-4o); --user scripted says its "
    "whole instruction at once (for golds and floors)"
)
_SIZES = {"retail": "115", "airline": "50"}
SPLITS = {"retail": ("test", "train", "dev"), "airline": ("test",)}


@dataclass(frozen=True)
class TauBenchOptions(Tools):
    """Command-line options of tau-bench: the simulated user, its model, and the split of the tasks."""

    user: Literal["llm", "react", "verify", "reflection", "scripted"] = "llm"
    """The simulated user: a strategy of the package, or scripted: without a model, for golds and floors."""
    teacher: str = ""
    """Model of the simulated user, openai:URL#MODEL. In a replay its messages are the recorded ones."""
    split: Literal["test", "train", "dev"] = "test"
    """Part of the tasks. The airline has a test split only."""


def _archive(request: EvaluationRequest) -> Path:
    return required(request.data_folder("what tau-bench asks"), SOURCES[0].path)


def _needs(options: TauBenchOptions, request: EvaluationRequest) -> tuple[Requirement, Requirement]:
    has_user = request.recording is not None or options.user == "scripted" or options.teacher
    user = Requirement("simulated user", lambda: None if has_user else NO_USER)
    return requirement_of("data", partial(_archive, request)), user


def _load(domain: str, options: TauBenchOptions, request: EvaluationRequest) -> Iterator[Task]:
    path = _archive(request)
    if options.split not in SPLITS[domain]:
        raise ValueError(f"--split {options.split}: tau_bench/{domain} has {', '.join(SPLITS[domain])}")
    package = unpacked(path, lemur_home() / "tau_bench")
    shared = {"package": HostPath(package), "domain": domain, "split": options.split, "max_steps": TURNS}
    shared |= {"native": options.tools == "native", "database_id": files_digest(path)}
    if request.recording is not None:
        yield from _recorded(f"tau_bench/{domain}", shared, request.recording)
        return
    if problem := _needs(options, request)[1].missing():
        raise ValueError(problem)
    shared |= {"user": options.user, "teacher": options.teacher}
    for index in range(_number_of_tasks(str(package), domain, options.split)):
        task_id, own = f"{domain}/{options.split}/{index}", {**shared, "index": index}
        yield Task(f"tau_bench/{domain}", task_id, "envs:lemur/TauBench-v0", domain, own, max_turns=TURNS)


def _recorded(name: str, shared: Mapping[str, Any], recording: Path) -> Iterator[Task]:
    """A task for each recorded episode, as it was defined then."""
    for key, episode in read_recording(recording).episodes.items():
        own: dict[str, Any] = {"user": "recorded", "recording": HostPath(recording.absolute()), "episode": key}
        own |= {"index": episode.index, "task": dict(episode.definition), "native": True}
        task_id, domain = f"{shared['domain']}/{key}", shared["domain"]
        yield Task(name, task_id, "envs:lemur/TauBench-v0", domain, {**shared, **own}, max_turns=TURNS)


@lru_cache
def _number_of_tasks(package: str, domain: str, split: str) -> int:
    with closing(Domain(package, lambda messages: "")) as process:
        return len(process.tasks(domain, split))


def pass_hat(episodes: Sequence[Episode]) -> dict[str, float]:
    """pass^k for each k up to the number of scored episodes that every task has: the mean over tasks of the probability
    that k of its episodes, drawn without replacement, are all solved. Empty without episodes."""
    verdicts: dict[str, Counter[bool]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            task = episode.key.task.partition("/trial-")[0]
            verdicts.setdefault(task, Counter())[episode.outcome is Outcome.SOLVED] += 1
    shares = [(count[True], count.total()) for count in verdicts.values()]
    most = min((whole for _, whole in shares), default=0)
    return {
        f"pass^{k}": sum(comb(n, k) / comb(whole, k) for n, whole in shares) / len(shares) for k in range(1, most + 1)
    }


BENCHMARKS = {
    domain: Benchmark(
        TauBenchOptions, partial(_load, domain), {"full": 1024, "brief": 1024}, needs=_needs, sources=SOURCES,
        resources=PROGRAMS, min_step_s=60.0, has_hints=True,
        details=BenchmarkDetails(
            _SIZES[domain],
            cluster=lambda task: task.id.partition("/trial-")[0],
            endpoints=lambda options: (options.teacher,) if options.teacher and options.user != "scripted" else (),
            notes=pass_hat, protocol=published_protocol("tau_bench"), recording_format=FORMAT, published_runs=RUNS,
        ),
    )
    for domain in DOMAINS
}  # fmt: skip
