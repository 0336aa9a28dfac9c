"""Backend on a Ray cluster; ``improve`` is the whole command.

The learner is an actor, the model a Ray Serve application asked by handle, and the evaluation's pool plays."""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lemur_ray.agents.messages import Policy
from lemur_ray.benchmarks.discovery import find
from lemur_ray.cluster.connection import available_devices, connect
from lemur_ray.config import ModelConfig
from lemur_ray.host.exit_codes import CausedError, ExitCode
from lemur_ray.improve.config import BadInput, ImproveConfig
from lemur_ray.improve.learner import Committed, Learner, LearnerSpec
from lemur_ray.improve.loop import ImproveRun, RoundFailed, Served
from lemur_ray.improve.prepare import prepare
from lemur_ray.improve.training_rows import Rows
from lemur_ray.rollout.actors.on_ray import RayPool, actor_request
from lemur_ray.rollout.evaluation import EvaluationPlan, create_pool
from lemur_ray.rollout.threads import Pool
from lemur_ray.serve.config import BY_MACHINE, ServeJob
from lemur_ray.serve.needs import device_needs
from lemur_ray.serve.on_ray import serve_cluster
from lemur_ray.serve.on_ray.deployments import serve_handle
from lemur_ray.serve.on_ray.handle import HandleSpec
from lemur_ray.serve.on_ray.weight_updates import update_all
from lemur_ray.serve.planning.cluster_choice import with_devices
from lemur_ray.train.on_ray.worker_environment import adopt_driver_folders, worker_env
from lemur_ray.train.run.folder import lock
from lemur_ray.train.run.lease import lease
from lemur_ray.weights.open_model import open_model

PAUSES_S = (5.0, 15.0, 45.0)
"""Seconds before each further try to send new weights to all replicas: one that died is being started again."""


class SwapFailed(CausedError):
    """Raised if a replica does not serve the new weights after all tries; the same command starts new replicas."""

    exit_code = ExitCode.TRY_AGAIN


def improve(config: ImproveConfig, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Run an improvement run, or resume it, on the Ray cluster of this process, or else a private one. Returns the
    content of ``result.json``, with ``already_finished`` if nothing was left to do. say: reports a line. Raises
    BadInput for a wrong flag, RunInUse while another process runs it, RoundFailed, RoundsError, TrainingStopped or
    SwapFailed if it cannot go on, and errors of Ray."""
    prepared = prepare(config)
    with lock(str(prepared.out), "run"), lease(str(prepared.out)):
        if (finished := prepared.open_folder()) is not None:
            return {**finished, "already_finished": True}
        connect(log_to_driver=False)
        check_devices(config, prepared.learner.recipe.model)
        seq_len = prepared.learner.recipe.data.seq_len
        with OnRay(prepared.learner, config.replicas) as backend:
            run = ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, seq_len, say)
            return run.run()


def check_devices(config: ImproveConfig, model: ModelConfig) -> None:
    """Raise BadInput if the connected cluster, without other jobs and grown to its limits, has too few devices for all
    replicas of ``model``, the learner and one actor that plays. Refuses only certain failures."""
    devices, use_gpu = available_devices(), config.recipe.mesh.use_gpu
    job = with_devices(ServeJob(replicas=config.replicas), lambda: model, ray.nodes())
    actor = actor_request(math.ceil(config.in_flight / config.actors), find(config.benchmark).resources)
    others = {"CPU cores": actor.cpus, "GPUs": float(use_gpu)}
    for what, (needed, available) in ({"GPUs": (0.0, devices.gpus)} | device_needs(job, devices)).items():
        if (total := needed + others.get(what, 0)) > available:
            on_cpus = ", leave --mesh.use-gpu out" if use_gpu else ", set JAX_PLATFORMS=cpu"
            raise BadInput(
                f"--replicas {config.replicas}: replicas, learner and one actor that plays take {total:.3g} {what}, "
                f"{devices}: ask for fewer replicas{on_cpus * (what == 'GPUs')}, or use a larger cluster (RAY_ADDRESS)"
            )


class _LearnerActor(Learner):
    def __init__(self, spec: LearnerSpec) -> None:
        adopt_driver_folders()
        super().__init__(spec)


class OnRay:
    """Trains, serves and plays on the connected cluster (``loop.Backend``). A context manager, which at its end closes
    the actors, Ray Serve and the learner. spec: what the learner trains; replicas: number of the server's."""

    def __init__(self, spec: LearnerSpec, replicas: int = 1) -> None:
        self._spec, self._replicas = spec, replicas
        self._app_name = self._served_folder = ""
        self._pool: RayPool | None = None
        mesh = spec.recipe.mesh
        # It computes only while nothing is played, so it reserves no CPU; it writes to the driver's disk.
        node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        where = {"num_cpus": 0, "num_gpus": int(mesh.use_gpu), "scheduling_strategy": node}
        actor = ray.remote(_LearnerActor).options(**where, runtime_env={"env_vars": worker_env(mesh)})
        self._learner: Any = actor.remote(spec)

    def open(self) -> Committed:
        return _result(self._learner.open.remote())

    def train(self, number: int, rows: Rows, order: np.ndarray, best: int) -> Committed:
        return _result(self._learner.train.remote(number, rows, order, best))

    def serve(self, commit: Committed) -> Served:
        out, version = self._spec.out, open_model(commit.folder).version
        if not self._app_name:
            # Replicas that start before the first swap load the newest commit of the run folder. The name is that of
            # the folder, so that the application of a driver that was killed is replaced.
            name = f"improve-{hashlib.sha256(out.encode()).hexdigest()[:12]}"
            engine = replace(BY_MACHINE, float64=self._spec.float64)
            self._app_name = serve_handle(ServeJob(model=out, replicas=self._replicas, engine=engine), out, name)
        swap(partial(update_all, self._app_name), commit.folder, version, self._served_folder, self._replicas)
        self._served_folder = commit.folder
        return Served(version, HandleSpec(self._app_name, f"handle:{Path(out).name}@{version}"))

    @contextlib.contextmanager
    def pool(self, plan: EvaluationPlan, policy: Callable[[], Policy]) -> Iterator[Pool]:
        """Context manager: the run's pool of actors, which plays all rounds and evaluations. After an error in the
        block the next one is new."""
        with contextlib.ExitStack() as on_error:
            self._pool = self._pool or cast(RayPool, create_pool(plan.config, policy, plan.tasks))
            on_error.callback(self._close_pool)
            self._pool.change_policy(policy)
            self._pool.resume(len(plan.episodes))
            yield self._pool
            on_error.pop_all()

    def _close_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def __enter__(self) -> "OnRay":
        return self

    def __exit__(self, *error: object) -> None:
        self._close_pool()
        serve_cluster.shutdown()
        ray.kill(self._learner)


def _result(reference: Any) -> Committed:
    """The result of a call of the learner. Raises the learner's own error."""
    try:
        committed: Committed = ray.get(reference)
        return committed
    except RayTaskError as error:
        raise error.cause or error from error
    except RayError as error:
        raise RoundFailed(f"the learner was lost ({error}): run the same command again to resume") from error


def swap(
    update: Callable[[str], Sequence[str]],
    folder: str,
    version: str,
    before: str = "",
    replicas: int = 1,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Switch every replica to the weights in ``folder``; if one does not, all go back to ``before``, and again. update:
    switches all replicas to a checkpoint folder and returns the version of each; raises RuntimeError if one refuses.
    before: folder of the weights that are served now; empty: unknown. replicas: number that must answer: one that is
    starting may have read the weights before. sleep: waits between tries. Raises SwapFailed after all tries."""
    problem = ""
    for pause in (0.0, *PAUSES_S):
        sleep(pause)
        try:
            versions = list(update(folder))
            if len(versions) >= replicas and {*versions} == {version}:
                return
            answers = ", ".join(sorted({*versions})) or "none"
            problem = f"{len(versions)} of {replicas} replicas answered, with versions {answers}"
        except RuntimeError as error:
            problem = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        try:
            if before:
                update(before)
        except RuntimeError as error:
            problem = f"{problem}; nor could all go back: {error}"
    raise SwapFailed(f"weights {version} are not served by all replicas after {1 + len(PAUSES_S)} tries: {problem}")
