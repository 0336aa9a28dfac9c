"""Checks of Ray: the package, authentication, the address, the folder of its sockets. Starts no cluster."""

import os
import sys
import tempfile
from pathlib import Path

from lemur_ray.doctor.machine import Check, Machine, last_line

SOCKET = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""Longest path that Ray appends to its temporary folder; a unix socket path has at most 107 bytes."""


def ray(machine: Machine) -> Check:
    code, output = machine.run([sys.executable, "-c", "import ray; print(ray.__version__)"], 120)
    if code:
        fix = f"{sys.executable} -m pip install -r {machine.root / 'requirements.lock'}"
        return Check("ray", "missing", f"import ray fails: {last_line(output)}", fix, True)
    return Check("ray", "ok", f"version {last_line(output)}", required=True)


def ray_auth(machine: Machine) -> Check:
    """Whether RAY_AUTH_MODE and token agree: a token file left by ``ray.init()`` turns authentication on later."""
    mode = machine.env.get("RAY_AUTH_MODE")
    file = Path(machine.env.get("RAY_AUTH_TOKEN_PATH") or machine.home / ".ray" / "auth_token")
    token = bool(machine.env.get("RAY_AUTH_TOKEN")) or file.is_file()
    if mode == "disabled":
        return Check("ray auth", "ok", "RAY_AUTH_MODE=disabled: no token anywhere (a private machine)")
    if mode == "token" and token:
        return Check("ray auth", "ok", "RAY_AUTH_MODE=token and a token is there")
    if mode == "token":
        fix = f"ray get-auth-token --generate   # or: export RAY_AUTH_TOKEN=..., the token of the head; file {file}"
        return Check("ray auth", "missing", "RAY_AUTH_MODE=token but no token", fix)
    if mode is not None:
        fix = "export RAY_AUTH_MODE=disabled   # or token"
        return Check("ray auth", "missing", f"RAY_AUTH_MODE={mode!r}: Ray knows token and disabled", fix)
    if token:
        where = file if file.is_file() else "RAY_AUTH_TOKEN"
        detail = (
            f"a token exists ({where}) and RAY_AUTH_MODE is not set: the next `ray start --head` asks for it, and "
            "a submit or driver in another mode fails with 'Missing authentication token' or InvalidAuthToken"
        )
        fix = "export RAY_AUTH_MODE=disabled   # or token; the same for the head, for ray job submit and for drivers"
        return Check("ray auth", "warn", detail, fix)
    return Check("ray auth", "ok", "no token file, RAY_AUTH_MODE not set: a head starts without authentication")


def ray_address(machine: Machine) -> Check:
    address = machine.env.get("RAY_ADDRESS", "")
    if not address:
        return Check("ray address", "ok", "RAY_ADDRESS is not set: a job of its own starts a private cluster")
    if address.startswith(("http://", "https://")):
        detail = f"RAY_ADDRESS={address} is a dashboard: right for ray job submit, wrong for python jobs/..."
        return Check("ray address", "warn", detail, "unset RAY_ADDRESS   # for jobs that are run directly")
    return Check("ray address", "ok", f"RAY_ADDRESS={address}: jobs join this cluster")


def temp_path(machine: Machine) -> Check:
    folder = machine.env.get("RAY_TMPDIR") or machine.env.get("TMPDIR") or tempfile.gettempdir()
    length = len(f"{folder}/ray{SOCKET}".encode())
    if length > 107:
        detail = f"{folder} is too long: Ray's sockets there would have paths of {length} bytes, the limit is 107"
        return Check("temp path", "missing", detail, "export RAY_TMPDIR=/tmp TMPDIR=/tmp", True)
    if not os.access(folder, os.W_OK):
        return Check("temp path", "missing", f"{folder} is not writable", "export RAY_TMPDIR=... TMPDIR=...", True)
    return Check("temp path", "ok", f"{folder} (socket paths of {length} bytes, limit 107)", required=True)
