"""Buckets that every test of storage may use: Google's kind and Amazon's kind, each in a thread."""

import logging
import uuid
from collections.abc import Iterator

import pytest

from lemur_ray.storage import file_system as storage
from tests.storage.bucket_server import Service, google_service


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service with a bucket named "bucket", and an environment that leads every client there."""
    pytest.importorskip("gcsfs", reason="make dev installs it")
    import fsspec
    from etils.epath.backend import fsspec_backend

    for name in (*storage.BUCKET_VARIABLES, "TENSORSTORE_GCS_HTTP_URL"):
        monkeypatch.delenv(name, raising=False)
    with google_service() as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        for name, value in storage.client_environment().items():
            monkeypatch.setenv(name, value)
        fsspec.filesystem("gs").clear_instance_cache()
        fsspec_backend._get_filesystem.cache_clear()  # of the service of a test before
        yield service
        fsspec.filesystem("gs").clear_instance_cache()


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """Address of moto's S3."""
    pytest.importorskip("s3fs", reason="make dev installs it")
    server = pytest.importorskip("moto.server", reason="make dev installs it")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield f"http://127.0.0.1:{running.get_host_and_port()[1]}"
    running.stop()


@pytest.fixture
def amazon(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of S3's kind, empty; returns its URL."""
    import fsspec

    told = {"AWS_ENDPOINT_URL": moto_url, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in (told | {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}).items():
        monkeypatch.setenv(name, value)
    fs = fsspec.filesystem("s3")
    fs.clear_instance_cache()
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}"
