"""Copies of the metrics at TensorBoard, Weights & Biases and MLflow: whole after a kill, and never the end of a run."""

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.config import Recipe
from lemur_ray.config.watching import WatchConfig
from lemur_ray.train.run import sinks
from lemur_ray.train.run.sinks import Background, TensorBoard, check_sinks
from tests.serve.http.test_evaluation_clients import PYTHON as CLIENTS
from tests.serve.http.test_evaluation_clients import need_clients

RunHere = Callable[..., dict]
SCALARS = ("loss", "grad_norm", "param_norm", "update_norm", "tokens_per_s")


def watched(recipe: Recipe, **watch: Any) -> Recipe:
    import dataclasses

    return dataclasses.replace(recipe, watch=WatchConfig(**watch))


def events(folder: Path) -> Iterator[tuple[str, int, float]]:
    """(name, step, value) of every scalar in the event files of a folder."""
    from tensorboardX.proto import event_pb2

    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4
            for value in event.summary.value:
                yield value.tag, event.step, value.simple_value


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


class Killed(BaseException):
    """Stands for the end of the process in the middle of a run."""


@pytest.mark.slow
def test_tensorboard_has_every_step_once_however_often_the_run_was_killed(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    def until(step: int) -> Callable[[Iterator], Iterator]:
        def feed(batches: Iterator) -> Iterator:
            for number, batch in enumerate(batches):
                if number == step:
                    raise Killed
                yield batch

        return feed

    recipe = watched(small_recipe(), sinks=("tensorboard",))
    for step in (6, 5):
        with pytest.raises(Killed):
            run_here(recipe, tmp_path / "run", feed=until(step))
    run_here(recipe, tmp_path / "run")
    found = list(events(tmp_path / "run" / "tensorboard"))
    assert max(Counter((name, step) for name, step, _ in found).values()) == 1
    for name in SCALARS:
        drawn = {step: value for tag, step, value in found if tag == name}
        assert drawn == pytest.approx({line["step"]: line[name] for line in lines(tmp_path / "run")})
        assert sorted(drawn) == list(range(1, 13))


def test_what_a_killed_process_never_wrote_is_there_after_the_next_start(tmp_path: Path) -> None:
    records = [{"step": step, "loss": 1.0 / step, "skipped_rows": [[0, 2]], "eta_s": None} for step in (1, 2, 3)]
    first = TensorBoard(str(tmp_path), [])
    first.write(records[0])
    first.close()
    torn = next((tmp_path / "tensorboard").iterdir())
    torn.write_bytes(torn.read_bytes()[:-5])  # as a kill leaves it
    second = TensorBoard(str(tmp_path), records[:2])
    second.write(records[2])
    second.close()
    assert [(name, step) for name, step, _ in events(tmp_path / "tensorboard")] == [
        ("loss", 1),
        ("loss", 2),
        ("loss", 3),
    ]


def test_event_files_of_a_run_in_a_bucket_are_put_there(tmp_path: Path) -> None:
    bucket = "memory://bucket/run"
    for number in (1, 2):
        sink = TensorBoard(bucket, [{"step": 1, "loss": 1.0}])
        sink.write({"step": 2, "loss": 0.5})
        sink.close()
        import fsspec

        fs, inner = fsspec.url_to_fs(f"{bucket}/tensorboard")
        names = fs.ls(inner, detail=False)
        assert len(names) == 1, f"start {number} left {names}"
    fs.get(names[0], str(tmp_path / "events.out.tfevents.copy"))
    assert [(name, step) for name, step, _ in events(tmp_path)] == [("loss", 1), ("loss", 2)]


def test_a_sink_that_fails_is_said_once_and_the_run_goes_on(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*arguments: Any) -> None:
        raise OSError("no space left on device\nand more")

    monkeypatch.setattr(sinks, "TensorBoard", refuses)
    said: list[str] = []
    result = run_here(watched(small_recipe(), sinks=("tensorboard",)), tmp_path / "run", lines=said)
    assert result["steps"] == len(lines(tmp_path / "run")) == 12
    failures = [line for line in said if "tensorboard" in line]
    assert len(failures) == 1
    assert "OSError: no space left on device); metrics.jsonl has every line" in failures[0]


def test_a_sink_that_hangs_is_left_behind() -> None:
    class Hangs:
        def write(self, record: Any) -> None:
            woken.wait()

        def close(self) -> None: ...

    woken, said = threading.Event(), list[str]()
    sink = Background("wandb", Hangs, said.append)
    began = time.monotonic()
    sink.write({"step": 1})
    sink.write({"step": 2})
    sink.close(wait_s=0.1)
    assert time.monotonic() - began < 30
    assert ["wandb no longer gets the metrics" in line for line in said] == [True]
    woken.set()


def test_a_sink_whose_package_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sinks.PACKAGES, "wandb", "no_such_package")
    with pytest.raises(ValueError, match=r"pip install 'lemur-ray\[wandb\]'"):
        check_sinks(("tensorboard", "wandb"), "x")
    check_sinks(("tensorboard",), "x")


def test_what_is_watched_is_not_in_the_hash(small_recipe: Callable[..., Recipe]) -> None:
    recipe = small_recipe()
    assert watched(recipe, sinks=("wandb",), profile_first_step=3).hash == recipe.hash


WANDB_RUN = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from pathlib import Path
from lemur_ray.config import Recipe
from lemur_ray.train.run.sinks import Background, open_sinks
from lemur_ray.config.watching import WatchConfig
recipe = Recipe(watch=WatchConfig(sinks=("wandb",), wandb_mode="offline"))
history = [{"step": step, "loss": 1.0 / step} for step in json.loads(sys.argv[3])]
[sink] = open_sinks(recipe, sys.argv[2], history, {"hash": "h"}, lambda line: print(line, flush=True))
for step in json.loads(sys.argv[4]):
    sink.write({"step": step, "loss": 1.0 / step, "skipped_rows": [[0, 1]], "eta_s": None})
if sys.argv[5] == "killed":
    import os, signal, time
    deadline = time.monotonic() + 60
    while not list(Path(sys.argv[2]).glob("wandb/offline-run-*/run-*.wandb")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
sink.close()
"""


def test_weights_and_biases_offline_holds_one_run_with_every_step_once_after_a_kill(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="pip install 'lemur-ray[wandb]'")
    paths = json.dumps([str(Path(__file__).resolve().parents[3])])

    def start(history: list[int], steps: list[int], end: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WANDB_RUN, paths, str(tmp_path), json.dumps(history), json.dumps(steps), end]
        return subprocess.run(command, capture_output=True, text=True, timeout=180)

    assert start([], [10, 20, 30], "killed").returncode == -9
    done = start([10, 20], [30, 40], "closed")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
    [folder] = (tmp_path / "wandb").glob("offline-run-*")
    run_id = (tmp_path / "wandb_id").read_text().strip()
    assert folder.name.endswith(f"-{run_id}")
    assert wandb_history(folder / f"run-{run_id}.wandb") == {10: 0.1, 20: 0.05, 30: 1 / 30, 40: 0.025}


MLFLOW_RUN = """
import json, sys
from pathlib import Path
root, out = sys.argv[1:]
sys.path.insert(0, root)
from mlflow import MlflowClient
from lemur_ray.config import Recipe
from lemur_ray.config.watching import WatchConfig
from lemur_ray.train.run.sinks import open_sinks
recipe = Recipe(watch=WatchConfig(sinks=("mlflow",)))
lines = [{"step": step, "loss": 1.0 / step, "loss/code": 2.0, "skipped_rows": [[0, 1]]} for step in (10, 20, 30, 40)]
for history, new in (([], lines[:2]), (lines[:3], lines[3:])):  # the line of step 30 was written, and not sent
    [sink] = open_sinks(recipe, out, history, {"hash": "h"}, lambda line: print(line, flush=True))
    for line in new:
        sink.write(line)
    sink.close()
client = MlflowClient(Path(out, "mlruns").as_uri())
[run] = client.search_runs([client.get_experiment_by_name("lemur-ray").experiment_id])
losses = [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, "loss")]
print(json.dumps([losses, run.info.status, run.data.params, run.data.metrics]))
"""


@pytest.mark.slow
def test_mlflow_has_one_run_with_every_step_once_after_a_restart(tmp_path: Path) -> None:
    """With the package of ``make clients``: it asks for an older package than the locks of the project have."""
    need_clients(CLIENTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    command = [CLIENTS, "-c", MLFLOW_RUN, str(Path(__file__).resolve().parents[3]), tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    losses, *others = json.loads(done.stdout)
    assert losses == [[10, 0.1], [20, 0.05], [30, 1 / 30], [40, 0.025]]
    assert others == ["FINISHED", {"hash": "h"}, {"loss": 0.025, "loss.code": 2.0}]


def test_mlflow_without_a_server_is_refused_for_a_run_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sinks.PACKAGES, "mlflow", "json")
    monkeypatch.delenv(sinks.TRACKING_URI, raising=False)
    with pytest.raises(ValueError, match=r"gs://b/run is a bucket, .* set MLFLOW_TRACKING_URI"):
        check_sinks(("mlflow",), "gs://b/run")
    check_sinks(("mlflow",), "/runs/run")
    monkeypatch.setenv(sinks.TRACKING_URI, "http://mlflow.example")
    check_sinks(("mlflow",), "gs://b/run")


def wandb_history(path: Path) -> dict[int, float]:
    """Step -> loss of an offline run's file; a step that is there twice is an error."""
    from wandb.proto import wandb_internal_pb2

    found = dict[int, float]()
    for data in log_records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {(entry.key or "/".join(entry.nested_key)): entry.value_json for entry in record.history.item}
            step = int(items["_step"])
            assert step not in found
            found[step] = json.loads(items["loss"])
    return found


def log_records(data: bytes) -> Iterator[bytes]:
    """Records of a LevelDB log behind a header of 7 bytes: blocks of 32 KiB, pieces of (crc, length, type)."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, piece = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if piece in (1, 4):
            yield whole
            whole = b""
