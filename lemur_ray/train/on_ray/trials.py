"""Runs the trials of a study as Ray tasks, one process each, as many at once as the cluster has cores or GPUs.

Plain tasks, because nothing is searched or stopped early: a trial's own folder already has what Ray Tune would add
(docs/decisions/010). A task that dies is retried and resumes from its checkpoint; the tasks of a dead driver end with
it. Knows nothing of the content of a trial."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lemur_ray.config import MeshConfig
from lemur_ray.train.on_ray.shared_storage_check import can_host_worker, hosts_without_storage, unshared_storage_message
from lemur_ray.train.on_ray.worker_environment import adopt_driver_folders, worker_env
from lemur_ray.train.run.folder import Run, RunFolderError
from lemur_ray.train.study import Trial, run_trial

POLL_S = 15.0
"""Seconds between two lines of progress."""


def run_trials(trials: Sequence[Trial], say: Callable[[str], None] = print) -> dict[str, str]:
    """Run all trials as tasks on the Ray cluster of this process, and wait for them. Returns folder name -> error for
    each failed trial, {} if none failed. Finished trials are not run again; the others resume from their newest
    checkpoint. say: reports a line. Raises RunFolderError if no host can both reach the folders and run a trial."""
    waiting, running = list(reversed(trials)), dict[Any, Trial]()
    failed, done = dict[str, str](), 0
    place = _task_placement(trials[0].run, say) if trials else {}
    while waiting or running:
        # One more than the cluster can run, so that an autoscaler adds hosts. Ray starts equal tasks in any order.
        while waiting and len(running) <= _capacity(waiting[-1].run.recipe.mesh):
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
            places = ", ".join(filter(None, map(_progress, running.values())))
            say(f"{done} of {len(trials)} trials done; {places or 'the others are being started'}")
    return failed


def _task_placement(run: Run, say: Callable[[str], None]) -> dict[str, Any]:
    """Options of the Ray tasks: none, or a restriction to this host if others cannot see the study's folders.
    Raises RunFolderError if this host cannot run a trial either."""
    if not (blind := hosts_without_storage(run)):
        return {}
    here = ray.get_runtime_context().get_node_id()
    mesh = run.recipe.mesh
    if not any(node["NodeID"] == here and can_host_worker(mesh)(node["Resources"]) for node in ray.nodes()):
        raise RunFolderError(unshared_storage_message(run, blind))
    say(f"only this host works: {', '.join(blind)} cannot see {Path(run.out).parent} or the corpus")
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}


def _task(mesh: MeshConfig, place: dict[str, Any]) -> Any:
    """The remote function of a trial, with its resources and environment."""
    # One thread per reserved core: two trials that each use every core would be slower than one after the other.
    env = {**worker_env(mesh), "NPROC": str(max(1, int(mesh.cpus_per_worker)))}
    gpus = 1 if mesh.use_gpu else 0
    return ray.remote(
        num_cpus=mesh.cpus_per_worker, num_gpus=gpus, max_calls=1, max_retries=2, runtime_env={"env_vars": env}, **place
    )(_trial)


def _trial(run: Run) -> dict[str, Any]:
    adopt_driver_folders()
    return run_trial(run)


def _capacity(mesh: MeshConfig) -> int:
    resources = ray.cluster_resources()
    return int(
        resources.get("GPU", 0.0) if mesh.use_gpu else resources.get("CPU", 0.0) / max(mesh.cpus_per_worker, 0.01)
    )


def _progress(trial: Trial) -> str:
    """Name and step of a trial that has written metrics, else an empty string."""
    path = Path(trial.run.out) / "metrics.jsonl"
    if not path.is_file() or not (lines := path.read_bytes().rsplit(b"\n", 2))[-2:-1]:
        return ""
    try:
        step = json.loads(lines[-2])["step"]
    except (ValueError, KeyError):  # a line that is still being written
        return ""
    return f"{Path(trial.run.out).name} at step {step}/{trial.run.recipe.train.steps}"
