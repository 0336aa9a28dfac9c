"""A MariaDB of the tests' own: a fresh data folder, a socket in it, no network, gone afterwards."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

INSTALL = "apt-get install -y mariadb-server-core mariadb-client-core"
START_S = 180.0


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The URL of its root account."""
    server, install = (
        shutil.which(name, path="/usr/sbin:/usr/bin:/bin") for name in ("mariadbd", "mariadb-install-db")
    )
    if server is None or install is None or shutil.which("my_print_defaults") is None:
        pytest.fail(f"no MariaDB on this machine, which these tests need: {INSTALL}")
    # Short, because the path of a socket ends at 107 bytes.
    with tempfile.TemporaryDirectory(prefix="lm-", dir="/tmp") as temp:
        folder, socket = Path(temp) / "data", Path(temp) / "s"
        user = f"--user={getpass.getuser()}"
        made = [install, "--no-defaults", f"--datadir={folder}", user, "--auth-root-authentication-method=normal"]
        subprocess.run([*made, "--skip-test-db", "--skip-name-resolve"], check=True, capture_output=True, text=True)
        log = (Path(temp) / "log").open("wb")
        command = [server, "--no-defaults", f"--datadir={folder}", f"--socket={socket}", user, "--skip-networking"]
        command += ["--lower-case-table-names=1", "--skip-log-bin", "--innodb-buffer-pool-size=32M"]
        command += ["--innodb-flush-log-at-trx-commit=0", f"--pid-file={temp}/pid"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_S
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"MariaDB did not start: {(Path(temp) / 'log').read_text()[-2000:]}")
                time.sleep(0.05)
            yield f"mysql://root@localhost?unix_socket={socket}"
        finally:
            process.terminate()
            process.wait(60)
            log.close()
