"""The hosts of these tests: made where a machine lets root make namespaces. In CI, as root, it must."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lemur_ray.storage.file_system import file_system
from tests.hosts.network import why_not
from tests.hosts.ray_hosts import RayHosts, ray_hosts
from tests.hosts.training_jobs import lines_of, losses, train
from tests.storage.bucket_server import Service, google_service


@pytest.fixture(scope="session")
def can_make_hosts() -> None:
    """Skips with the reason."""
    reason = why_not() if os.geteuid() == 0 else "hosts are made by root"
    if reason and os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"no hosts can be made here, which CI promises: {reason}")
    if reason:
        pytest.skip(f"no hosts can be made here: {reason}")


@pytest.fixture(scope="session")
def cluster(can_make_hosts: None) -> Iterator[RayHosts]:
    """A head and two workers, a and b, of one CPU each. Whoever loses one brings it back."""
    with ray_hosts("a", "b") as made:
        yield made


@pytest.fixture(scope="module")
def bucket(cluster: RayHosts) -> Iterator[Service]:
    """A service that every host reaches, with texts in it; this process is led there too."""
    pytest.importorskip("gcsfs", reason="make dev installs it")
    with google_service(host=cluster.net.outside) as service, pytest.MonkeyPatch.context() as patch:
        for name, value in service.environment.items():
            patch.setenv(name, value)
        fs, there = file_system("gs://bucket/texts")
        for number in range(60):
            text = f"Note {number}: " + " ".join(f"the word {number * 7 + i} and that of the day" for i in range(80))
            fs.pipe_file(f"{there}/{number:03d}.txt", text.encode())
        yield service


@pytest.fixture(scope="module")
def undisturbed(cluster: RayHosts, bucket: Service) -> dict[int, float]:
    """Losses of the run that nothing happens to."""
    train(cluster, bucket, "gs://bucket/runs/calm").end(900)
    return losses(lines_of("gs://bucket/runs/calm/metrics.jsonl"))
