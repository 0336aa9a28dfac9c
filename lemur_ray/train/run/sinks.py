"""Copies of ``metrics.jsonl`` in TensorBoard event files, at Weights & Biases and in MLflow.

A sink opened after a restart receives every earlier line of ``metrics.jsonl``, so that no step is missing or doubled.
Each sink has its own thread; one that fails or hangs is dropped with a log line. Knows nothing of jax or training."""

import contextlib
import glob
import importlib.util
import os
import queue
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from lemur_ray.config import Recipe
from lemur_ray.storage.append_file import AppendFile
from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.storage.file_system import file_system

Record = Mapping[str, Any]
Check = Callable[[], None]
"""Raises if a newer attempt has taken the run over; called before anything is written."""

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}
"""Sink (and name of its extra) -> Python package it needs."""
TRACKING_URI = "MLFLOW_TRACKING_URI"
"""MLflow's variable with the address of its server."""
CLOSE_WAIT_S = 60.0
"""Maximum seconds that the end of a run waits for a sink with unsent lines."""
UPLOAD_EVERY_S = 60.0
"""Minimum seconds between two uploads of new events to a bucket."""


class Sink(Protocol):
    """A receiver of metrics lines, which gets each step once and in order."""

    def write(self, record: Record) -> None: ...

    def close(self) -> None: ...


def check_sinks(names: Sequence[str], out: str) -> None:
    """Raise ValueError if the package of a sink is not installed, naming its extra, or if MLflow has no server although
    the run folder ``out`` is in a bucket. names: of the sinks, as in ``WatchConfig.sinks``."""
    for name in names:
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise ValueError(
                f"--watch.sinks {name} writes with the package {PACKAGES[name]}, which is not installed: "
                f"pip install 'lemur-ray[{name}]', or leave the sink out (metrics.jsonl is always written)"
            )
    if "mlflow" in names and "://" in out and not os.environ.get(TRACKING_URI):
        raise ValueError(
            f"--watch.sinks mlflow: {out} is a bucket, where MLflow keeps no files: set {TRACKING_URI} for this job "
            "and for the Ray nodes"
        )


def numbers(record: Record) -> dict[str, float]:
    """The numeric fields of a line, except the step; booleans are left out."""
    return {
        key: value
        for key, value in record.items()
        if key != "step" and isinstance(value, int | float) and not isinstance(value, bool)
    }


class TensorBoard:
    """A TensorBoard event file in ``<run>/tensorboard``, which replaces the files of earlier starts. history: the
    metrics lines so far, which are written first. In a bucket it is uploaded once a minute. out: run folder."""

    def __init__(self, out: str, history: Sequence[Record], check: Check = lambda: None) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2
        from tensorboardX.summary import scalar

        self._event, self._scalar = event_pb2, scalar
        self._bucket = f"{out}/tensorboard" if "://" in out else ""
        folder = Path(tempfile.mkdtemp(prefix="events-") if self._bucket else f"{out}/tensorboard")
        folder.mkdir(exist_ok=True)
        check()
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        if self._bucket:
            fs, inner = file_system(self._bucket)
            if fs.isdir(inner):
                fs.rm(inner, recursive=True)
        self._writer = EventsWriter(f"{folder}/events", f".{os.getpid()}")
        self._folder, self._uploaded_at, self._check = folder, time.monotonic(), check
        self._object: AppendFile | None = None
        # Makes a running TensorBoard discard the curves of the removed files.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.write_event(event_pb2.Event(wall_time=time.time(), step=0, session_log=start))
        for record in history:
            self._add(record)
        self._writer.flush()

    def write(self, record: Record) -> None:
        self._add(record)
        self._writer.flush()
        if self._bucket and time.monotonic() - self._uploaded_at >= UPLOAD_EVERY_S:
            self._upload()

    def close(self) -> None:
        self._writer.close()
        if self._bucket:
            self._upload()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _add(self, record: Record) -> None:
        when = record.get("unix_s") or time.time()
        for name, value in numbers(record).items():
            event = self._event.Event(wall_time=when, step=record["step"], summary=self._scalar(name, value))
            self._writer.write_event(event)

    def _upload(self) -> None:
        (path,) = self._folder.iterdir()
        if self._object is None:
            self._object = AppendFile(f"{self._bucket}/{path.name}", self._check)
        with path.open("rb") as file:
            file.seek(self._object.size)
            self._object.append(file.read())
        self._uploaded_at = time.monotonic()


class WeightsAndBiases:
    """The Weights & Biases run of a run folder, the same for every start; its id is stored in ``wandb_id``. out: run
    folder; history: the metrics lines so far; described: identity of the run."""

    def __init__(
        self, out: str, history: Sequence[Record], recipe: Recipe, described: Mapping[str, Any], check: Check
    ) -> None:
        import wandb

        self._check = check
        check()
        run_id = lasting_id(f"{out}/wandb_id")
        folder = tempfile.mkdtemp(prefix="wandb-") if "://" in out else out
        offline = recipe.watch.wandb_mode == "offline"
        if offline:
            # There is no server to query: the new folder holds the whole curve and replaces the older ones.
            for old in glob.glob(f"{glob.escape(folder)}/wandb/offline-run-*-{run_id}"):
                shutil.rmtree(old)
        self._run = wandb.init(
            project=recipe.watch.wandb_project, id=run_id, resume="allow", name=recipe.name, dir=folder,
            mode=recipe.watch.wandb_mode, config=dict(described),
            settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip
        for record in history:
            if offline or record["step"] >= self._run.step:
                self.write(record)

    def write(self, record: Record) -> None:
        self._check()
        self._run.log(numbers(record), step=record["step"])

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """The MLflow run of a run folder, the same for every start; its tag ``lemur_run`` is stored in ``mlflow_id``.
    Reads MLflow's variables MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME; without the former, files are written to
    ``<run>/mlruns``. The run's description is stored as its parameters. out: run folder; history: the metrics lines so
    far; described: that description."""

    def __init__(
        self, out: str, history: Sequence[Record], recipe: Recipe, described: Mapping[str, Any], check: Check
    ) -> None:
        uri = os.environ.get(TRACKING_URI, "")
        if not uri:
            if "://" in out:
                raise ValueError(f"{TRACKING_URI} is not set on this node, and a bucket holds no files of MLflow")
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for a database by default
            uri = Path(out, "mlruns").resolve().as_uri()
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._check, self._metric, self._client = check, Metric, MlflowClient(uri)
        check()
        tag, name = lasting_id(f"{out}/mlflow_id"), os.environ.get("MLFLOW_EXPERIMENT_NAME", "lemur-ray")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        earlier = self._client.search_runs([experiment], f"tags.lemur_run = '{tag}'", max_results=1)
        if earlier:
            run = earlier[0]
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            run = self._client.create_run(experiment, tags={"lemur_run": tag}, run_name=recipe.name)
            params = [Param(key, str(value)[:500]) for key, value in described.items()]
            self._client.log_batch(run.info.run_id, params=params[:100])
        self._run = run.info.run_id
        logged = {one.step for key in run.data.metrics for one in self._client.get_metric_history(self._run, key)}
        for record in history:
            if record["step"] not in logged:
                self.write(record)

    def write(self, record: Record) -> None:
        self._check()
        at_ms, step = int((record.get("unix_s") or time.time()) * 1000), record["step"]
        # In MLflow's files a metric cannot be the folder of another one, as loss would be that of loss/code.
        named = {name.replace("/", "."): value for name, value in numbers(record).items()}
        metrics = [self._metric(name, value, at_ms, step) for name, value in named.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run)


def lasting_id(path: str) -> str:
    """The id in the file ``path`` (or URL); without a file, a random one of 8 hex digits is written. Raises OSError."""
    while (stored := read_version(path)) is None:
        with contextlib.suppress(VersionConflict):
            write_if(path, f"{secrets.token_hex(4)}\n".encode(), None)
    return stored[0].decode().strip()


class Background:
    """Runs a sink in a daemon thread: ``write`` never waits and never raises. opened: makes the sink, in that thread.
    say: logs a line if the sink fails, after which lines are dropped. name: of the sink, for the log."""

    def __init__(self, name: str, opened: Callable[[], Sink], say: Callable[[str], None]) -> None:
        self.name, self._opened, self._say = name, opened, say
        self._lines: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self.failed = self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def write(self, record: Record) -> None:
        if not self.failed:
            self._lines.put(dict(record))

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """Wait up to ``wait_s`` seconds for the sink to write its lines; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._lines.put(None)
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._give_up(f"still busy after {wait_s:.0f} s")

    def _work(self) -> None:
        try:
            sink = self._opened()
            while (record := self._lines.get()) is not None:
                sink.write(record)
            sink.close()
        except Exception as error:  # third-party code: no exception of it may end a run
            self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        self.failed = True
        first = why.strip().splitlines()[0]
        self._say(f"{self.name} no longer gets the metrics ({first}); metrics.jsonl has every line, the run goes on")


def open_sinks(
    recipe: Recipe,
    out: str,
    history: Sequence[Record],
    described: Mapping[str, Any],
    say: Callable[[str], None],
    check: Check = lambda: None,
) -> list[Background]:
    """Start the sinks named in ``recipe.watch.sinks``, each in its thread; [] for none. out: run folder. history:
    metrics lines written so far. described: the run's identity. say: logs a line. check: raises for a newer attempt."""
    makers: dict[str, Callable[[], Sink]] = {
        "tensorboard": lambda: TensorBoard(out, history, check),
        "wandb": lambda: WeightsAndBiases(out, history, recipe, described, check),
        "mlflow": lambda: MLflow(out, history, recipe, described, check),
    }
    return [Background(name, makers[name], say) for name in dict.fromkeys(recipe.watch.sinks)]
