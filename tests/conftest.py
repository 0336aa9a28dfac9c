"""What all tests share: a quiet private Ray, the data folder, and nothing of the machine's own clusters."""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def ray_local() -> Iterator[str]:
    """One private Ray for a whole file, in this process's name; yields its address.

    Not for the session: an idle cluster takes a seventh of a core, a new one some seconds.
    """
    import ray

    from tests.patient_ray import write_ports_down

    write_ports_down()
    # What Ray ends may still write there while it is removed.
    with tempfile.TemporaryDirectory(prefix="lr-", dir="/tmp", ignore_cleanup_errors=True) as temp:

        def start() -> Any:
            return ray.init(
                address="local",
                num_cpus=4,
                object_store_memory=300 * 2**20,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=temp,
                runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}},
            )

        try:
            context = start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            ray.shutdown()  # on a busy machine a raylet may give up; jobs try once more, too
            context = start()
        address = context.address_info["address"]
        os.environ["RAY_ADDRESS"] = address
        yield address
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        for handler in logging.getLogger("ray.data").handlers:
            handler.close()  # it keeps the log file of the first cluster it sees
