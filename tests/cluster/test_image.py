"""The CPU image as Kubernetes would run it: a head and two workers in containers, and jobs submitted from outside.

A sweep: minutes, and a quarter of an hour more where LEMUR_IMAGE names no image that build.sh made.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray.storage.file_system import file_system
from tests.attacks.arena import ready
from tests.cluster.containers import Containers, containers, docker
from tests.hosts.training_jobs import CORPUS, lines_of, losses, newest
from tests.storage.bucket_server import Service, google_service
from tests.train.test_resume import RECIPE as TWO_ROWS

pytestmark = [pytest.mark.sweep, pytest.mark.docker, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 1_600_000_000
LOOK = """
import json, ray, lemur_ray

ray.init()
look = ray.remote(num_cpus=1)(lambda: __import__("lemur_ray").__file__)
print(json.dumps({"code": [lemur_ray.__file__, *ray.get([look.remote() for _ in range(6)])]}))
"""
OURS = ("lemur_ray", "envs", "jobs", "requirements.lock", "pyproject.toml")


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    pytest.importorskip("docker")
    ready("docker")
    if given := os.environ.get("LEMUR_IMAGE"):
        yield given
        return
    if os.geteuid() or not shutil.which("debootstrap"):
        pytest.skip("images are built by root with debootstrap: give LEMUR_IMAGE, one that was built")
    name = "lemur-ray-cpu:test"
    subprocess.run(["bash", str(ROOT / "cluster/images/build.sh"), "cpu", name], check=True, timeout=3000)
    yield name
    docker("rmi", name)


@pytest.fixture(scope="module")
def cluster(image: str) -> Iterator[Containers]:
    """One CPU on the head; one worker is started by a login shell."""
    with containers(image) as made:
        made.add("head", "-c", "--num-cpus=1")
        made.wait(1)
        made.add("worker", "-c", "--num-cpus=1")
        made.add("worker", "-lc", "--num-cpus=1")
        made.wait(3)
        yield made


@pytest.fixture(scope="module")
def bucket(cluster: Containers) -> Iterator[Service]:
    pytest.importorskip("gcsfs", reason="make dev installs it")
    with google_service(host=cluster.outside) as service, pytest.MonkeyPatch.context() as patch:
        for name, value in service.environment.items():
            patch.setenv(name, value)
        fs, there = file_system("gs://bucket/texts")
        for number in range(60):
            text = f"Note {number}: " + " ".join(f"the word {number * 7 + i} and that of the day" for i in range(80))
            fs.pipe_file(f"{there}/{number:03d}.txt", text.encode())
        yield service


def test_the_image_is_small_and_says_of_which_commit_it_is(image: str) -> None:
    told = json.loads(docker("image", "inspect", image))[0]
    assert told["Size"] <= LARGEST
    assert told["Config"]["User"] == "1000:100"
    assert re.fullmatch("[0-9a-f]{40}", told["Config"]["Labels"]["org.opencontainers.image.revision"])


def test_nothing_of_the_machine_that_built_it_is_left(image: str) -> None:
    """Where packages came from, and who built it."""
    found = docker(
        "run", "--rm", "--network=none", "--user=0", image, "bash", "-c",
        "ls -A /etc/apt /root /home/ray /tmp /var/log; cat /etc/pip.conf /etc/hostname /etc/resolv.conf 2>/dev/null; "
        "find / -xdev -name direct_url.json -o -xdev -name 'pip.conf' -o -xdev -name .netrc -o -xdev -name '.git'",
    )  # fmt: skip
    for odd in ("sources.list", "apt.conf\n", "pip.conf", ".netrc", ".git\n", "direct_url.json", "bootstrap.log"):
        assert odd not in f"{found}\n", found


def test_containers_run_as_the_user_of_the_manifests_and_answer_the_probes(cluster: Containers) -> None:
    for number in range(3):
        assert cluster.run(number, "id", "-u") == "1000"
        assert cluster.run(number, "bash", "-lc", "ray --version") == "ray, version 2.60.0"
        probe = "wget --tries 1 -T 5 -q -O- http://localhost:52365/api/local_raylet_healthz"
        assert "success" in cluster.run(number, "bash", "-c", probe)
    assert "success" in cluster.run(0, "bash", "-c", "wget --tries 1 -T 5 -q -O- http://localhost:8265/api/gcs_healthz")


def test_an_evaluation_runs_with_the_code_of_the_image(cluster: Containers) -> None:
    what = ("--policy", "expert", "--limit", "6", "--actors", "2", "--in-flight", "4", "--out", "played")
    made = cluster.result("python", "jobs/agent_eval.py", *what)
    assert (made["n"], made["scored"], made["missing"], made["solved"]) == (6, 6, 0, 6)


def test_a_corpus_and_a_run_in_a_bucket_with_the_code_of_a_checkout(
    cluster: Containers, bucket: Service, tmp_path: Path
) -> None:
    for name in OURS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "look.py").write_text(LOOK)
    assert not [file for file in cluster.result("python", "look.py", folder=tmp_path)["code"] if "/app/" in file]
    env = ["env", *(f"{name}={value}" for name, value in bucket.environment.items()), "python"]
    texts = ("--source", "notes:text:gs://bucket/texts")
    made = cluster.result(*env, "jobs/build_corpus.py", *texts, *CORPUS, "--out", "gs://bucket/corpus", folder=tmp_path)
    assert made["counts"]["notes"]["read"] == 60
    run = ("--corpus", "gs://bucket/corpus", "--out", "gs://bucket/runs/tiny", "--train.steps", "12")
    more = ("--mesh.num-workers", "2", "--train.eval-rows", "0", "--train.checkpoint-every-steps", "6")
    trained = cluster.result(*env, "jobs/pretrain.py", *TWO_ROWS, *run, *more, folder=tmp_path)
    assert trained["world_size"] == 2
    assert sorted(losses(lines_of("gs://bucket/runs/tiny/metrics.jsonl"))) == list(range(1, 13))
    assert newest("gs://bucket/runs/tiny") == 12


def test_the_doctor_finds_three_hosts_alike(cluster: Containers, bucket: Service) -> None:
    env = ["env", *(f"{name}={value}" for name, value in bucket.environment.items()), "python"]
    said = cluster.result(*env, "jobs/doctor.py", "--cluster", "--json", "--bucket", "gs://bucket/store")
    assert said["healthy"], said
    checks = {check["name"]: check for check in said["checks"]}
    assert "equal on 3 hosts, lock " in checks["packages"]["found"], "compared with the lock that lies in the image"
    assert "on 3 hosts" in checks["bucket"]["found"]
