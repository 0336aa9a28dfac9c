"""Jobs of training on hosts that share a bucket, and what is found there of them."""

from __future__ import annotations

import json
from typing import Any

from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.storage.file_system import file_system
from lemur_ray.weights.checkpoints import commits
from tests.hosts.ray_hosts import RayHosts, Submitted
from tests.storage.bucket_server import Service
from tests.train.test_resume import RECIPE as TWO_ROWS

STEPS = 400
RECIPE = [*TWO_ROWS, "--train.rows-per-step", "8", "--train.eval-rows", "0", "--train.checkpoint-every-steps", "10"]
RECIPE += ["--train.checkpoint-every-s", "1000000", "--train.steps", str(STEPS), "--train.spike-sigmas", "0"]
CORPUS = ("--seq-len", "64", "--vocab-size", "320", "--heldout-rows", "4", "--part-mb", "0.02")
CORPUS_CONFIG = CorpusConfig(
    source=("notes:text:gs://bucket/texts",), seq_len=64, vocab_size=320, heldout_rows=4, part_mb=0.02
)
"""The same of the texts in the bucket."""


def job(cluster: RayHosts, bucket: Service, *entry: str) -> Submitted:
    told = [f"{name}={value}" for name, value in bucket.environment.items()]
    return cluster.submit("env", *told, "python", *entry)


def train(cluster: RayHosts, bucket: Service, out: str) -> Submitted:
    corpus = ("--corpus", "gs://bucket/corpus")
    return job(cluster, bucket, "jobs/pretrain.py", *RECIPE, "--mesh.num-workers", "2", *corpus, "--out", out)


def lines_of(url: str) -> list[dict[str, Any]]:
    fs, path = file_system(url)
    try:
        return [json.loads(line) for line in fs.cat_file(path).splitlines()]
    except FileNotFoundError:
        return []


def newest(run: str) -> int:
    found = commits(f"{run}/checkpoints")[0]
    return found[0].step if found else 0


def losses(lines: list[dict[str, Any]]) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in lines if "loss" in line}
