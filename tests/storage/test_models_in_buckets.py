"""Models that are served lie in a bucket as well as on a disk, and their names change with their weights."""

import json
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.rollout.endpoints.policy_target import checkpoint_label, pin_checkpoint, resolve_model
from lemur_ray.rollout.evaluation_folder import EvaluationError
from lemur_ray.storage.file_system import file_system
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.open_model import open_model
from lemur_ray.weights.orbax_params import CheckpointError
from tests.storage.bucket_server import Service


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def put(url: str, content: bytes = b"x") -> None:
    fs, there = file_system(url)
    fs.pipe_file(there, content)


def test_a_run_in_a_bucket_is_named_by_its_newest_checkpoint(url: str, tmp_path: Path) -> None:
    run = resolve_model(f"{url}/runs/nano/", tmp_path)
    put(f"{run}/recipe.json")
    with pytest.raises(EvaluationError, match=rf"{run}/checkpoints: no committed checkpoint yet"):
        pin_checkpoint(run)
    for step in (5, 10):
        put(f"{run}/checkpoints/{step}/plan/metadata", json.dumps({"rows": step}).encode())
        put(f"{run}/checkpoints/{step}/state/_METADATA")
        put(f"{run}/checkpoints/{step}/state/manifest.ocdbt")
    newest = pin_checkpoint(run)
    assert newest == f"{run}/checkpoints/10"
    assert checkpoint_label(newest).startswith("nano@10-")
    before = checkpoint_label(newest)
    put(f"{run}/checkpoints/10/state/manifest.ocdbt", b"written anew")
    assert checkpoint_label(newest) != before


def test_a_model_folder_in_a_bucket_is_named_by_its_content(url: str, tmp_path: Path) -> None:
    model = resolve_model(f"{url}/models/seven", tmp_path)
    with pytest.raises(EvaluationError, match="expected a run folder, a committed checkpoint or a Hugging Face folder"):
        checkpoint_label(model)
    put(f"{model}/config.json", b"{}")
    put(f"{model}/a.safetensors", b"weights")
    assert pin_checkpoint(model) == model
    label = checkpoint_label(model)
    assert label.startswith("seven@")
    assert checkpoint_label(model) == label
    put(f"{model}/a.safetensors", b"others of another size")
    assert checkpoint_label(model) != label


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gs", "s3"])
def test_a_converted_run_in_a_bucket_is_read_from_there(
    kind: str, google: Service, amazon: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = {"gs": "gs://bucket/run", "s3": f"{amazon}/run"}[kind]
    convert(Convert("random:nano", url, to="run"), url)
    model, mine = open_model(url), open_model("random:nano")
    whole = (slice(None), slice(None))
    np.testing.assert_array_equal(model.source.read("embed", whole), mine.source.read("embed", whole))
    if kind == "gs":
        monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "3")
        google.trouble(stop=True, times=10**6)
        began = time.monotonic()
        with pytest.raises(
            CheckpointError, match=rf"checkpoint {url}/checkpoints/0 cannot be read: gs://bucket did not"
        ):
            model.source.read("embed", whole)
        assert time.monotonic() - began < 60
