"""The command lines of the manifests as they are shipped, one after the other on what the one before left in a bucket.

Hosts, bucket and model are small: the flags that say so stand behind those of the manifest. What else differs is the
name of the bucket. Minutes.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.checking.documents import read
from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import init_params
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.tokenizer import Tokenizer
from tests.storage.bucket_server import Service
from tests.storage.conftest import google  # noqa: F401  # a fixture
from tests.train.pod.pods import QUICK, Pod, pods
from tests.weights.whole_models import write_model

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
TINY = ModelConfig(
    vocab_size=384, num_layers=2, dim=32, ffn_dim=64, num_heads=2, num_kv_heads=1, head_dim=16, max_seq_len=256
)
SIZES = ("vocab_size", "num_layers", "dim", "ffn_dim", "num_heads", "num_kv_heads", "head_dim", "max_seq_len")
SMALL = [f"--model.{name.replace('_', '-')}={getattr(TINY, name)}" for name in SIZES]
SMALL += ["--mesh.no-use-tpu", "--mesh.topology=", "--mesh.accelerator-type=", "--mesh.num-workers=2"]
SMALL += ["--mesh.fsdp=2", "--mesh.tp=1", "--train.remat=none", "--train.compute-dtype=float32"]
FLAGS = {
    "corpus": ["--seq-len=64", "--heldout-rows=2", "--part-mb=0.02"],
    "pretrain": [*SMALL, "--data.seq-len=64", "--train.steps=6", "--train.rows-per-step=8", "--train.microbatches=1",
                 "--train.eval-rows=8", "--train.checkpoint-every-steps=3", "--train.log-every-steps=1"],
    "instruct": [*SMALL, "--data.seq-len=256", "--train.rows-per-step=8", "--openorca-rows=20",
                 "--tuning.batch-examples=16", "--train.log-every-steps=1"],
}  # fmt: skip
"""What is put behind the command line of a job."""


def entrypoint(name: str) -> list[str]:
    [document] = read(ROOT / f"cluster/rayjob-{name}.yaml")
    return shlex.split(document.value["spec"]["entrypoint"].replace("gs://your-bucket/", "gs://bucket/"))


@pytest.fixture
def run(google: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], dict[str, Any]]]:  # noqa: F811
    """Runs the job of a manifest on a head without cores and two hosts; the object that it prints last."""
    with pods() as start:
        pod: Pod = start()
        for _ in range(2):
            pod.add_host(cpus=2)
        pod.wait_for_hosts(2)

        def job(name: str) -> dict[str, Any]:
            settings = {**os.environ, **QUICK, **google.environment, "RAY_ADDRESS": pod.address}
            settings |= {"LEMUR_HOME": str(tmp_path / "home"), "LEMUR_STORE": "gs://bucket/store"}
            _python, *words = entrypoint(name)
            done = subprocess.run(
                [sys.executable, *words, *FLAGS[name]], cwd=ROOT, env=settings, capture_output=True, text=True
            )
            said = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            assert done.returncode == 0, said
            return dict(json.loads(done.stdout.splitlines()[-1]))

        yield job


def put(url: str, data: bytes) -> None:
    fs, path = file_system(url)
    fs.pipe_file(path, data)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


WORDS = ("one", "word", "of", "this", "day", "def", "return", "name", "in", "a", "book")


def put_texts() -> None:
    """A file for every source that the corpus' command line names."""
    words = entrypoint("corpus")
    for number, source in enumerate(words[at + 1] for at, word in enumerate(words) if word == "--source"):
        url, draw = source.split(":", 2)[2], random.Random(number)
        texts = ["\n".join(" ".join(draw.choices(WORDS, k=8)) for _ in range(30)) for _ in range(40)]
        put(f"{url}/one.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts).encode())


def put_conversations(folder: Path) -> None:
    """The four sets, in the formats whose names the instruct command line has."""
    raw = "gs://bucket/raw"
    put(f"{raw}/oasst1.jsonl.gz", (folder / "oasst_trees_en.jsonl.gz").read_bytes())
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(lines(folder / "openorca_schema_from_gsm8k_train.jsonl.gz")), out)
    put(f"{raw}/openorca.parquet", out.getvalue().to_pybytes())
    put(f"{raw}/sharegpt.json", gzip.decompress((folder / "sharegpt_real_fixture_axolotl.json.gz").read_bytes()))
    put(f"{raw}/evol.json", json.dumps(lines(folder / "evol_schema_from_mbpp.jsonl.gz")).encode())


def put_model(folder: Path) -> None:
    """In the format of Hugging Face, with a tokenizer of bytes."""
    write_model(jax.tree.map(np.asarray, init_params(TINY, 0)), TINY, Tokenizer.bytes_only(), folder)
    for file in folder.iterdir():
        put(f"gs://bucket/models/llama2-70b/{file.name}", file.read_bytes())


def test_corpus_pretraining_and_tuning_run_as_shipped(
    run: Callable[[str], dict[str, Any]], data_dir: Path, tmp_path: Path
) -> None:
    put_texts()
    put_model(tmp_path / "model")
    put_conversations(data_dir / "bench" / "instruct")
    assert run("corpus")["corpus"] == "gs://bucket/corpus/lemur"
    assert run("pretrain")["steps"] == 6
    assert run("instruct")["mixture"]
