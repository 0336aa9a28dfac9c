"""What all tests share: a quiet private Ray, the data folder, and nothing of the machine's own clusters."""

import atexit
import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

# Before `import ray` anywhere: authentication mode, temp dir and telemetry are read at import (docs: one token file in
# the home folder is enough to make every later connection fail).
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.update(RAY_worker_niceness="0")  # at Ray's own 15 a test waits for whatever else the machine does
# ... and there a slow start is not taken for a lost one.
os.environ.update(RAY_raylet_start_wait_time_s="120", RAY_worker_register_timeout_seconds="180")
os.environ.update(RAY_agent_register_timeout_ms="120000")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # tests and what they start compile equal programs again and again
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="lemur-compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ["TPU_LOG_DIR"] = "disabled"  # Ray prints what libtpu logs, for whatever test, as output of its job
os.environ.pop("RAY_ADDRESS", None)
ROOT = Path(__file__).resolve().parents[1]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of outside test data (``LEMUR_DATA``, default ``../shared/data`` beside the repository)."""
    folder = Path(os.environ.get("LEMUR_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"no test data at {folder}: in CI it must be there (set LEMUR_DATA)")
        pytest.skip(f"no test data at {folder}: set LEMUR_DATA")
    return folder


@pytest.fixture
def lemur_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private LEMUR_HOME."""
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "lemur"))
    return tmp_path / "lemur"


class PrivateRay:
    """The one cluster of this process: files that follow each other share it, the first that needs none ends it.

    An idle cluster takes a seventh of a core, a new one some seconds of both.
    """

    def __init__(self) -> None:
        self.address = ""

    def start(self) -> str:
        if not self.address:
            from tests.patient_ray import write_ports_down

            write_ports_down()
            # What Ray ends may still write there while it is removed.
            self._folder = tempfile.TemporaryDirectory(prefix="lr-", dir="/tmp", ignore_cleanup_errors=True)
            try:
                self.address = self._init()
            except Exception as error:
                if "timed out during startup" not in str(error):
                    raise
                sys.modules["ray"].shutdown()  # on a busy machine a raylet may give up; jobs try once more, too
                self.address = self._init()
        return self.address

    def _init(self) -> str:
        import ray

        context = ray.init(
            address="local",
            num_cpus=4,
            object_store_memory=300 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=self._folder.name,
            runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}},
        )
        return str(context.address_info["address"])

    def end(self) -> None:
        if self.address:
            self.address = ""
            sys.modules["ray"].shutdown()
            for handler in logging.getLogger("ray.data").handlers:
                handler.close()  # it keeps the log file of the first cluster it sees
            self._folder.cleanup()


PRIVATE_RAY = PrivateRay()


@pytest.fixture(scope="module")
def ray_local() -> Iterator[str]:
    """The private Ray of this process, in its name for the length of a file; yields its address. Nobody kills it."""
    os.environ["RAY_ADDRESS"] = PRIVATE_RAY.start()
    yield os.environ["RAY_ADDRESS"]
    os.environ.pop("RAY_ADDRESS", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of hundreds of imported modules is garbage: looking for it took a third of the collection's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()  # nor is it looked at again while tests run


LONG = ("train/", "e2e/", "corpus/", "faults/", "weights/", "serve/compute/")
"""Folders whose files begin first, so that no process is left alone with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that share the cluster come first and one after another, then the longest."""
    sharing = {item.path for item in items if "ray_local" in getattr(item, "fixturenames", ())}
    places = {item.path: item.path.relative_to(ROOT / "tests").as_posix() for item in items}
    items.sort(key=lambda item: (item.path not in sharing, not places[item.path].startswith(LONG)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "RAY_ADDRESS" not in os.environ and "ray_local" not in getattr(item, "fixturenames", ()):
        PRIVATE_RAY.end()


def pytest_sessionfinish() -> None:
    PRIVATE_RAY.end()
