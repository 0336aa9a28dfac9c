"""What is there and what is missing: one check a line, each with the exact command that mends it.

Needs nothing but the standard library, so it runs on a machine where nothing is installed yet. Ray and jax are asked
in processes of their own, with a time limit. What a check looks at comes in through ``Machine``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lemur_ray.home import lemur_home

Status = Literal["ok", "warn", "missing"]
GIB = 2**30
SOCKET = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""What Ray appends to its temp dir; unix socket paths end at 107 bytes."""


@dataclass(frozen=True)
class Check:
    """The answer of one check. ``required``: without it nothing runs. ``fix``: a command, empty where there is none."""

    name: str
    status: Status
    found: str
    fix: str = ""
    required: bool = False


def _run(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Exit code and output of a command; 127 where it does not exist, 124 where it took too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, errors="replace")
    except FileNotFoundError:
        return 127, "not found"
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {timeout_s:.0f} s"
    return done.returncode, (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Machine:
    """Everything a check may look at; tests pass their own."""

    root: Path
    """The folder of the repository (or of the installed packages)."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=Path.home)
    python: tuple[int, int, int] = sys.version_info[:3]
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    system: Path = Path("/")
    """Where /proc, /sys and /dev are looked for."""
    run: Callable[[Sequence[str], float], tuple[int, str]] = _run
    which: Callable[[str], str | None] = shutil.which
    version: Callable[[str], str | None] = _version
    disk: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free

    def read(self, path: str) -> str:
        """Text of a system file, empty where there is none."""
        try:
            return (self.system / path).read_text()
        except OSError:
            return ""


def examine(machine: Machine) -> list[Check]:
    """Every check, in the order a person wants to read them."""
    first = (python, packages, ray, jax, ray_auth, ray_address, envs_package, temp_path, memory, shared_memory, disk)
    then = (cores, tpu, bubblewrap, docker, chromium, compiler, textworld, mariadb)
    return [check(machine) for check in (*first, *then)]


def healthy(checks: Sequence[Check]) -> bool:
    """Whether nothing that is required is missing."""
    return not any(check.required and check.status == "missing" for check in checks)


def python(machine: Machine) -> Check:
    version = ".".join(map(str, machine.python))
    if machine.python < (3, 11):
        return Check("python", "missing", f"{version}, expected 3.11 or newer", "apt-get install -y python3.11", True)
    return Check("python", "ok", f"{version} at {sys.executable}", required=True)


def packages(machine: Machine) -> Check:
    """The pinned packages of requirements.lock against what is installed."""
    lock = machine.root / "requirements.lock"
    if not lock.is_file():
        return Check("packages", "warn", f"no {lock}: versions are not compared")
    pins = [line.strip().split("==") for line in lock.read_text().splitlines() if "==" in line]
    installed = {name: machine.version(name) for name, _ in pins}
    absent = [name for name, _ in pins if installed[name] is None]
    other = [
        f"{name} {installed[name]} (pinned {pin})"
        for name, pin in pins
        if (installed[name] or pin).split("+")[0] != pin
    ]
    fix = f"{sys.executable} -m pip install -r {lock}"
    if absent:
        return Check("packages", "missing", f"{len(absent)} of {len(pins)} not installed: {_few(absent)}", fix, True)
    if other:
        return Check("packages", "warn", f"{len(other)} of {len(pins)} in other versions: {_few(other)}", fix, True)
    return Check("packages", "ok", f"all {len(pins)} as pinned", required=True)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def ray(machine: Machine) -> Check:
    code, said = machine.run([sys.executable, "-c", "import ray; print(ray.__version__)"], 120)
    if code:
        fix = f"{sys.executable} -m pip install -r {machine.root / 'requirements.lock'}"
        return Check("ray", "missing", f"import ray fails: {_last(said)}", fix, True)
    return Check("ray", "ok", f"version {_last(said)}", required=True)


def jax(machine: Machine) -> Check:
    """The version of jax and the devices it sees."""
    ask = "import jax; d = jax.devices(); print(jax.__version__, len(d), d[0].platform, d[0].device_kind)"
    code, said = machine.run([sys.executable, "-c", ask], 120)
    if code:
        fix = f"{sys.executable} -m pip install -r {machine.root / 'requirements.lock'}"
        if "tpu" in machine.env.get("JAX_PLATFORMS", "") and code == 124:
            fix = "export JAX_PLATFORMS=cpu   # or see the line tpu"
        return Check("jax", "missing", f"jax finds no device: {_last(said)}", fix, True)
    version, number, platform, kind = _last(said).split(maxsplit=3)
    found = f"version {version}, {number} x {kind} ({platform})"
    if platform == "cpu" and machine.which("nvidia-smi") and not machine.env.get("JAX_PLATFORMS"):
        fix = f"{sys.executable} -m pip install 'jax[cuda13]=={version}'"
        return Check("jax", "warn", f"{found}; there is an NVIDIA GPU that it does not use", fix, True)
    return Check("jax", "ok", found, required=True)


def _last(text: str) -> str:
    return text.strip().splitlines()[-1][:300] if text.strip() else "no output"


def ray_auth(machine: Machine) -> Check:
    """The token trap: a plain ``ray.init()`` may leave a token file, which turns authentication on for later heads."""
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
        said = (
            f"a token exists ({where}) and RAY_AUTH_MODE is not set: the next `ray start --head` asks for it, and "
            "a submit or driver in another mode fails with 'Missing authentication token' or InvalidAuthToken"
        )
        fix = "export RAY_AUTH_MODE=disabled   # or token; the same for the head, for ray job submit and for drivers"
        return Check("ray auth", "warn", said, fix)
    return Check("ray auth", "ok", "no token file, RAY_AUTH_MODE not set: a head starts without authentication")


def ray_address(machine: Machine) -> Check:
    address = machine.env.get("RAY_ADDRESS", "")
    if not address:
        return Check("ray address", "ok", "RAY_ADDRESS is not set: a job of its own starts a private cluster")
    if address.startswith(("http://", "https://")):
        said = f"RAY_ADDRESS={address} is a dashboard: right for ray job submit, wrong for python jobs/..."
        return Check("ray address", "warn", said, "unset RAY_ADDRESS   # for jobs that are run directly")
    return Check("ray address", "ok", f"RAY_ADDRESS={address}: jobs join this cluster")


def envs_package(machine: Machine) -> Check:
    """Whether ``envs`` is ours. Another package of that name would be imported in its place by workers."""
    ours = machine.root / "envs"
    found = [spot for entry in machine.path if (spot := _package(entry, "envs")) is not None]
    if not found:
        fix = f"export PYTHONPATH={machine.root}"
        return Check("envs package", "missing", "no package envs on the path", fix, True)
    others = [spot for spot in found if spot.resolve() != ours.resolve()]
    if found[0].resolve() != ours.resolve():
        said = f"{found[0]} is imported instead of {ours}"
        return Check("envs package", "missing", said, f"mv {found[0]} {found[0]}.aside   # or uninstall it", True)
    if others:
        said = f"ours comes first, but {others[0]} is on the path too: a worker with another path would take it"
        return Check("envs package", "warn", said, f"export PYTHONPATH={machine.root}", True)
    return Check("envs package", "ok", str(ours), required=True)


def _package(entry: str, name: str) -> Path | None:
    """Folder or file that ``import name`` would take from one entry of the path."""
    spec = importlib.machinery.PathFinder.find_spec(name, [entry or os.getcwd()])
    if spec is None:
        return None
    if spec.origin:
        origin = Path(spec.origin)
        return origin.parent if origin.name == "__init__.py" else origin
    return None  # a folder without __init__.py yields to any real package


def temp_path(machine: Machine) -> Check:
    folder = machine.env.get("RAY_TMPDIR") or machine.env.get("TMPDIR") or tempfile.gettempdir()
    length = len(f"{folder}/ray{SOCKET}".encode())
    if length > 107:
        said = f"{folder} is too long: Ray's sockets there would have paths of {length} bytes, the limit is 107"
        return Check("temp path", "missing", said, "export RAY_TMPDIR=/tmp TMPDIR=/tmp", True)
    if not os.access(folder, os.W_OK):
        return Check("temp path", "missing", f"{folder} is not writable", "export RAY_TMPDIR=... TMPDIR=...", True)
    return Check("temp path", "ok", f"{folder} (socket paths of {length} bytes, limit 107)", required=True)


def _meminfo(machine: Machine) -> dict[str, int]:
    """Bytes by name, from /proc/meminfo."""
    lines = (line.split() for line in machine.read("proc/meminfo").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1}


def memory(machine: Machine) -> Check:
    """Memory that can be had now: what the kernel calls available, and what the container may still take."""
    free = _meminfo(machine).get("MemAvailable")
    if free is None:
        return Check("memory", "warn", "unknown: no /proc/meminfo")
    limit = machine.read("sys/fs/cgroup/memory.max").strip()
    used = machine.read("sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        free = min(free, int(limit) - int(used))
    return _size("memory", free, 8, 3, "end other programs; the demo peaks below 8 GiB")


def shared_memory(machine: Machine) -> Check:
    """/dev/shm holds Ray's object store; Docker gives 64 MiB unless told otherwise."""
    folder = machine.system / "dev/shm"
    if not folder.is_dir():
        return Check("shared memory", "warn", f"no {folder}: Ray keeps its objects on disk, slowly")
    fix = "docker run --shm-size=2g ...   # or mount -o remount,size=2g /dev/shm"
    return _size("shared memory", machine.disk(folder), 1, 0, fix)


def disk(machine: Machine) -> Check:
    home = lemur_home()
    place = next(p for p in (home, *home.parents) if p.exists())
    if not os.access(place, os.W_OK):
        return Check("disk", "missing", f"{place} is not writable (LEMUR_HOME={home})", "export LEMUR_HOME=...", True)
    check = _size("disk", machine.disk(place), 5, 1, "export LEMUR_HOME=...   # a folder on a larger disk")
    return Check(check.name, check.status, f"{check.found} for {home}", check.fix, True)


def _size(name: str, free: int, wanted_gib: float, needed_gib: float, fix: str) -> Check:
    found = f"{free / GIB:.1f} GiB free"
    if free < needed_gib * GIB:
        return Check(name, "missing", f"{found}, at least {needed_gib:g} needed", fix, True)
    if free < wanted_gib * GIB:
        return Check(name, "warn", f"{found}, {wanted_gib:g} wanted", fix)
    return Check(name, "ok", found)


def cores(machine: Machine) -> Check:
    number = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = machine.read("sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        number = min(number, int(quota[0]) / int(quota[1]))
    status: Status = "ok" if number >= 2 else "warn"
    return Check("cores", status, f"{number:g}" + ("" if status == "ok" else ", the demo's times are for 2"))


def tpu(machine: Machine) -> Check:
    """On a TPU host of several, jax needs to know which host it is; GKE's Ray webhook sets these variables."""
    chips = sorted((machine.system / "dev").glob("accel*")) + sorted((machine.system / "dev/vfio").glob("[0-9]*"))
    names = ("TPU_NAME", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES")
    there = [name for name in names if machine.env.get(name)]
    if not chips and not there:
        return Check("tpu", "ok", "no TPU host")
    absent = [name for name in names if name not in there]
    if absent:
        said = f"{len(chips)} chips, but {', '.join(absent)} not set: jax on a slice of several hosts would not start"
        fix = f"export {' '.join(f'{name}=...' for name in absent)}   # on GKE: install the Ray TPU webhook"
        return Check("tpu", "warn", said, fix)
    workers = machine.env["TPU_WORKER_HOSTNAMES"].split(",")
    said = f"host {machine.env['TPU_WORKER_ID']} of {len(workers)} in {machine.env['TPU_NAME']}, {len(chips)} chips"
    return Check("tpu", "ok", said)


def bubblewrap(machine: Machine) -> Check:
    install = "apt-get install -y bubblewrap"
    if not machine.which("bwrap"):
        return Check("bubblewrap", "missing", "not installed: no sandbox for code of a model", install)
    code, said = machine.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], 10)
    if code:
        fix = "sysctl -w kernel.unprivileged_userns_clone=1   # in Docker: --security-opt seccomp=unconfined"
        return Check("bubblewrap", "missing", f"installed, but no namespace can be made: {_last(said)}", fix)
    return Check("bubblewrap", "ok", "makes a namespace; python -m lemur_ray.sandbox.selfcheck proves the rest")


def docker(machine: Machine) -> Check:
    install = "apt-get install -y docker.io && systemctl start docker"
    if not machine.which("docker"):
        return Check("docker", "missing", "not installed (only the Docker sandbox needs it)", install)
    code, said = machine.run(["docker", "info", "--format", "{{.ServerVersion}}"], 10)
    if code:
        fix = "systemctl start docker   # or add this user to the group docker"
        return Check("docker", "missing", f"client there, no engine answers: {_last(said)}", fix)
    engine = f"engine {_last(said)}"
    if machine.version("docker") is None:
        fix = f"{sys.executable} -m pip install docker"
        return Check("docker", "missing", f"{engine}, but not the Python package docker (an extra)", fix)
    code, image = machine.run(["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "lemur-sandbox"], 10)
    if code or not image:
        build = f"{sys.executable} -m lemur_ray.sandbox.docker_image"
        fix = f"{build}   # apt-get install -y debootstrap gives it more"
        return Check("docker", "warn", f"{engine}, no sandbox image yet: the first sandbox builds it, in minutes", fix)
    return Check("docker", "ok", f"{engine}, sandbox image {image.splitlines()[0]}")


def chromium(machine: Machine) -> Check:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next((spot for name in names if (spot := machine.which(name))), None)
    if found is None:
        return Check(
            "chromium",
            "missing",
            "not installed (only WebArena and tests of the chat page need it)",
            "apt-get install -y chromium",
        )
    return Check("chromium", "ok", found)


def compiler(machine: Machine) -> Check:
    named = shlex.split(machine.env.get("CXX", ""))[:1]
    found = next((spot for name in named or ("g++", "clang++", "c++") if (spot := machine.which(name))), None)
    if found is None:
        why = f"CXX names {named[0]}, which is not there" if named else "no C++ compiler"
        said = f"{why}: serving on this CPU takes two to three times as long"
        return Check("compiler", "missing", said, "unset CXX" if named else "apt-get install -y g++")
    return Check("compiler", "ok", found)


def textworld(machine: Machine) -> Check:
    version, lock = machine.version("textworld"), machine.root / "requirements-alfworld.lock"
    if version is None:
        fix = f"apt-get install -y g++ make python3-dev && {sys.executable} -m pip install -r {lock}"
        return Check("textworld", "missing", "not installed (an extra: the oracle of the ALFWorld tests)", fix)
    return Check("textworld", "ok", f"version {version}")


def mariadb(machine: Machine) -> Check:
    found = next((spot for name in ("mariadb", "mysql") if (spot := machine.which(name))), None)
    if found is None:
        said = "not installed (only --engine mysql needs it; SQLite is built in)"
        return Check("mariadb", "missing", said, "apt-get install -y mariadb-server mariadb-client")
    return Check("mariadb", "ok", found)


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """One line per check for a person, a second one with the command where something is to be done."""
    wide = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.status:7}  {check.name:{wide}}  {check.found}"
        if check.fix and check.status != "ok":
            yield f"{'':7}  {'':{wide}}  $ {check.fix}"
