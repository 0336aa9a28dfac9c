"""Trials of a study as Ray tasks: as many at once as the cluster has cores (or GPUs), each in a process of its own.

Plain tasks, because nothing is searched or stopped early: what Ray Tune would add, a trial's own folder has already
(docs/decisions/010). A task that dies is started again and goes on from its checkpoint; the tasks of a driver that dies
end with it. Knows nothing of what is inside a trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lemur_ray.config import MeshConfig
from lemur_ray.train.on_ray.shared_storage_check import takes_work, unseen, who_does_not_see_run
from lemur_ray.train.on_ray.worker_environment import settle, worker_env
from lemur_ray.train.run.folder import Run, RunFolderError
from lemur_ray.train.study import Trial, run_trial

POLL_S = 15.0
"""Seconds between two lines of progress."""


def run_trials(trials: Sequence[Trial], say: Callable[[str], None] = print) -> dict[str, str]:
    """Run all trials on the cluster ``ray.init`` has joined. Returns folder -> why of those that failed.

    Finished trials are only read; the others go on from their newest checkpoint. Raises RunFolderError.
    """
    waiting, running = list(reversed(trials)), dict[Any, Trial]()
    failed, done = dict[str, str](), 0
    place = _where_seen(trials[0].run, say) if trials else {}
    while waiting or running:
        # One more than there is room for, so that a cluster that can grow does. Ray starts equal tasks in any order.
        while waiting and len(running) <= _room(waiting[-1].run.recipe.mesh):
            trial = waiting.pop()
            running[_task(trial.run.recipe.mesh, place).remote(trial.run)] = trial
        ready, _ = ray.wait(list(running), timeout=POLL_S)
        for reference in ready:
            trial = running.pop(reference)
            name = Path(trial.run.out).name
            try:
                result = ray.get(reference)
            except RayError as error:
                failed[name] = str(error).strip().splitlines()[-1]
                say(f"trial {name} failed: {failed[name]}")
                continue
            done += 1
            measured = ", ".join(
                f"{kind} {result[f'heldout/{kind}/bits_per_byte']:.3f}"
                for kind in ("code", "text")
                if result.get(f"heldout/{kind}/bits_per_byte") is not None
            )
            say(f"trial {name} done ({done} of {len(trials)}): held out, bits per byte: {measured or 'not measured'}")
        if not ready:
            places = ", ".join(filter(None, map(_place, running.values())))
            say(f"{done} of {len(trials)} trials done; {places or 'the others are being started'}")
    return failed


def _where_seen(run: Run, say: Callable[[str], None]) -> dict[str, Any]:
    """Options of tasks that run where the folders of the study are: everywhere, or on this host alone.

    Raises RunFolderError where only this host sees them and takes no work.
    """
    if not (blind := who_does_not_see_run(run)):
        return {}
    here = ray.get_runtime_context().get_node_id()
    mesh = run.recipe.mesh
    if not any(node["NodeID"] == here and takes_work(mesh)(node["Resources"]) for node in ray.nodes()):
        raise RunFolderError(unseen(run, blind))
    say(f"only this host works: {', '.join(blind)} cannot see {Path(run.out).parent} or the corpus")
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}


def _task(mesh: MeshConfig, place: dict[str, Any]) -> Any:
    """``run_trial`` as a task with the resources and the environment of a trial."""
    # One thread for one core: two trials that each use every core would be slower than one after the other.
    env = {**worker_env(mesh), "NPROC": str(max(1, int(mesh.cpus_per_worker)))}
    gpus = 1 if mesh.use_gpu else 0
    return ray.remote(
        num_cpus=mesh.cpus_per_worker, num_gpus=gpus, max_calls=1, max_retries=2, runtime_env={"env_vars": env}, **place
    )(_trial)


def _trial(run: Run) -> dict[str, Any]:
    settle()
    return run_trial(run)


def _room(mesh: MeshConfig) -> int:
    """Trials that the cluster as it is can run at once."""
    there = ray.cluster_resources()
    return int(there.get("GPU", 0.0) if mesh.use_gpu else there.get("CPU", 0.0) / max(mesh.cpus_per_worker, 0.01))


def _place(trial: Trial) -> str:
    """Name and step of a trial that has begun to write, else nothing."""
    path = Path(trial.run.out) / "metrics.jsonl"
    if not path.is_file() or not (lines := path.read_bytes().rsplit(b"\n", 2))[-2:-1]:
        return ""
    try:
        step = json.loads(lines[-2])["step"]
    except (ValueError, KeyError):  # cut while it is being written
        return ""
    return f"{Path(trial.run.out).name} at step {step}/{trial.run.recipe.train.steps}"
