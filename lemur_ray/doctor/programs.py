"""Checks of optional programs: sandboxes, a browser, a compiler, a game engine, a database."""

import shlex
import sys
from collections.abc import Sequence

from lemur_ray.doctor.machine import Check, Machine, last_line


def bubblewrap(machine: Machine) -> Check:
    """Whether bubblewrap is installed and can make namespaces."""
    install = "apt-get install -y bubblewrap"
    if not machine.which("bwrap"):
        return Check("bubblewrap", "missing", "not installed: no sandbox for code of a model", install)
    code, output = machine.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], 10)
    if code:
        fix = "sysctl -w kernel.unprivileged_userns_clone=1   # in Docker: --security-opt seccomp=unconfined"
        return Check("bubblewrap", "missing", f"installed, but no namespace can be made: {last_line(output)}", fix)
    return Check("bubblewrap", "ok", "makes a namespace; python -m lemur_ray.sandbox.selfcheck proves the rest")


def docker(machine: Machine) -> Check:
    """Whether the Docker client, its engine, the Python package and a sandbox image are available."""
    install = "apt-get install -y docker.io && systemctl start docker"
    if not machine.which("docker"):
        return Check("docker", "missing", "not installed (only the Docker sandbox needs it)", install)
    code, output = machine.run(["docker", "info", "--format", "{{.ServerVersion}}"], 10)
    if code:
        fix = "systemctl start docker   # or add this user to the group docker"
        return Check("docker", "missing", f"client there, no engine answers: {last_line(output)}", fix)
    engine = f"engine {last_line(output)}"
    if machine.version("docker") is None:
        fix = f"{sys.executable} -m pip install docker"
        return Check("docker", "missing", f"{engine}, but not the Python package docker (an extra)", fix)
    code, image = machine.run(["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "lemur-sandbox"], 10)
    if code or not image:
        build = f"{sys.executable} -m lemur_ray.sandbox.docker_image"
        fix = f"{build}   # apt-get install -y debootstrap gives it more"
        return Check("docker", "warn", f"{engine}, no sandbox image yet, which takes minutes to build", fix)
    return Check("docker", "ok", f"{engine}, sandbox image {image.splitlines()[0]}")


def chromium(machine: Machine) -> Check:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    lack = "not installed (only WebArena and tests of the chat page need it)"
    return _one_of(machine, "chromium", names, lack, "apt-get install -y chromium")


def compiler(machine: Machine) -> Check:
    named = shlex.split(machine.env.get("CXX", ""))[:1]
    why = f"CXX names {named[0]}, which is not there" if named else "no C++ compiler"
    lack, fix = f"{why}: serving on this CPU takes two to three times as long", "apt-get install -y g++"
    return _one_of(machine, "compiler", named or ("g++", "clang++", "c++"), lack, "unset CXX" if named else fix)


def textworld(machine: Machine) -> Check:
    version, lock = machine.version("textworld"), machine.root / "requirements-alfworld.lock"
    if version is None:
        what = f"-r {lock}" if lock.is_file() else "'lemur-ray[alfworld]'"
        fix = f"apt-get install -y g++ make python3-dev && {sys.executable} -m pip install {what}"
        return Check("textworld", "missing", "not installed (an extra: the oracle of the ALFWorld tests)", fix)
    return Check("textworld", "ok", f"version {version}")


def mariadb(machine: Machine) -> Check:
    lack = "not installed (only --engine mysql needs it; SQLite is built in)"
    fix = "apt-get install -y mariadb-server mariadb-client"
    return _one_of(machine, "mariadb", ("mariadb", "mysql"), lack, fix)


def _one_of(machine: Machine, check: str, programs: Sequence[str], lack: str, fix: str) -> Check:
    """Whether one of several programs is installed."""
    path = next(filter(None, map(machine.which, programs)), None)
    return Check(check, "ok", path) if path else Check(check, "missing", lack, fix)
