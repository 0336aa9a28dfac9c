"""Builds the image of the Docker sandbox on this machine, without a registry; its tag is the hash of its recipe.

debootstrap installs the packages of ``cluster/images/sandbox/packages.txt`` from the machine's apt sources. Without
debootstrap or root, the files of the packages installed on this machine are copied. The image contains nothing of this
project but a few empty folders. ``python -m lemur_ray.sandbox.docker_image`` builds it and prints its name. Each other
folder of ``cluster/images`` lists the packages of another image."""

import contextlib
import hashlib
import io
import logging
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.host.commands import images_folder
from lemur_ray.host.file_lock import hold
from lemur_ray.sandbox.backends import debian_files, docker_engine, slots
from lemur_ray.sandbox.sandbox import SandboxUnavailable

PLAIN = "sandbox"
"""Name of the default list of packages."""
RECIPE = 2
"""Version of the build: increased when this module builds another image from the same packages."""
PYTHON = "lemur.python"
"""Label with the version of the image's Python."""
LACKS = "lemur.lacks"
"""Label with the packages of the list that are not in the image."""
FOLDERS = ("base", "generation", "inside", "mounts", "rootfs", "opt/python", "proc", "sys", "dev", "tmp", "etc")
DROPPED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "proc", "sys")
BUILD_S = 1800.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Image:
    """A built Docker image of the sandbox. ``name``: repository and tag. ``python``: version of its Python, such as
    "3.11". ``lacks``: packages of its list that were not available on this machine."""

    name: str
    python: str
    lacks: frozenset[str] = frozenset()


def packages_file(image: str = PLAIN) -> Path:
    return images_folder() / image / "packages.txt"


def lists() -> list[str]:
    """Sorted names of the folders in ``cluster/images`` with a ``packages.txt``."""
    return sorted(path.parent.name for path in packages_file("*").parents[1].glob("*/packages.txt"))


def packages(image: str = PLAIN) -> list[str]:
    """Debian package names in ``cluster/images/IMAGE/packages.txt``, in its order; text after ``#`` is a comment.
    Raises SandboxUnavailable if there is no such file."""
    path = packages_file(image)
    if not path.is_file():
        raise SandboxUnavailable(f"{path} is not there: name an image of {', '.join(lists())}")
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def existing(image: str = PLAIN) -> Image | None:
    """The already built image for the current list of packages; None if the Docker engine has none. Raises
    SandboxUnavailable if the list or the engine is missing."""
    names = _names(image, packages(image)).values()
    return next((there for name in names if (there := _tagged(name)) is not None), None)


def repository(image: str) -> str:
    """Docker repository of an image: ``lemur-sandbox`` for the default list, else ``lemur-sandbox-NAME``."""
    return "lemur-sandbox" if image == PLAIN else f"lemur-sandbox-{image}"


def _names(image: str, wanted: list[str]) -> dict[str, str]:
    """Method -> name of the image that it builds."""
    return {method: f"{repository(image)}:{digest(method, wanted)}" for method in methods()}


def ensure(image: str = PLAIN) -> Image:
    """The image for the current list of packages, built if the Docker engine lacks it (takes minutes; one process
    builds, others wait). Raises SandboxUnavailable if the list or the engine is missing, or the build fails."""
    if (there := existing(image)) is not None:
        return there
    with hold(slots.folder() / "image.lock", wait_s=None):
        if (there := existing(image)) is not None:  # another process built it meanwhile
            return there
        wanted = packages(image)
        return _build(wanted, _names(image, wanted))


def methods() -> list[str]:
    """Names of the build methods possible on this machine, best first: "debootstrap" if it is installed and this
    process is root, then always "installed" (copies the machine's packages)."""
    if shutil.which("debootstrap") and os.geteuid() == 0:
        return ["debootstrap", "installed"]
    return ["installed"]


def digest(method: str, wanted: Iterable[str]) -> str:
    """Hash (16 hex digits) that tags an image: build method, Debian or Ubuntu release, architecture and the package
    names ``wanted``, but not the package versions."""
    system = _os_release()
    parts = [str(RECIPE), method, system.get("ID", ""), system.get("VERSION_CODENAME", ""), platform.machine(), *wanted]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _tagged(name: str) -> Image | None:
    with docker_engine.client("to list images") as api:
        for there in api.images(name.partition(":")[0]):
            if name in (there["RepoTags"] or ()):
                labels = there["Labels"] or {}
                return Image(name, labels.get(PYTHON, ""), frozenset(labels.get(LACKS, "").split()))
    return None


def _build(wanted: list[str], names: dict[str, str]) -> Image:
    on_disk = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None  # /tmp may be in memory
    with tempfile.TemporaryDirectory(prefix="lemur-image-", dir=on_disk) as temp:
        archive = Path(temp) / "root.tar"
        for method, name in names.items():
            started, (make, packages_of) = time.monotonic(), MAKERS[method]
            log.warning("building the image %s of the Docker sandbox from %s (once; minutes)", name, packages_of)
            try:
                python, lacks = make(wanted, Path(temp), archive)
            except SandboxUnavailable as error:
                if method == list(names)[-1]:
                    raise
                log.warning("%s: the installed packages of this machine are used instead", error)
                continue
            with docker_engine.client("to import an image", timeout_s=BUILD_S) as api:
                into, _, tag = name.partition(":")
                labels = [f"LABEL {PYTHON}={python}", f'LABEL {LACKS}="{" ".join(lacks)}"']
                api.import_image_from_file(str(archive), into, tag, changes=labels)
            size = archive.stat().st_size / 2**20
            log.warning("built %s: %.0f MiB in %.0f s", name, size, time.monotonic() - started)
            return Image(name, python, frozenset(lacks))
    raise AssertionError("no method was left")


BOOTSTRAP = """
suite=$1 root=$2 mirror=$3; shift 3
debootstrap --variant=minbase "$suite" "$root" "$mirror"
for file in /etc/apt/apt.conf /etc/apt/apt.conf.d; do [ ! -e $file ] || cp -r $file "$root/etc/apt/"; done
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
export DEBIAN_FRONTEND=noninteractive
chroot "$root" apt-get -q update
chroot "$root" apt-get -qy --no-install-recommends install "$@"
rm -rf "$root/etc/apt/apt.conf" "$root"/etc/apt/apt.conf.d/*
"""
"""Installs a minimal system, then the packages with apt, since debootstrap cannot order all of them. The machine's apt
settings are used for the installation and not left in the image."""


def _bootstrap(wanted: list[str], temp: Path, archive: Path) -> tuple[str, list[str]]:
    """Build a root file system with debootstrap, as a tar at ``archive``: (its Python version, missing packages)."""
    suite = _os_release().get("VERSION_CODENAME", "")
    listed = _run(["apt-get", "indextargets", "--format", "$(SITE)|$(CODENAME)", "Created-By: Packages"])
    mirrors = [site for site, _, codename in (line.partition("|") for line in listed.split("\n")) if codename == suite]
    if not mirrors or not suite:
        raise SandboxUnavailable(f"apt has no source for {suite or 'a release without a name'}")
    root = temp / "root"
    # Its mounts (/proc beneath the root) must not outlive it, however it ends.
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", BOOTSTRAP, "sh"]
    _run([*alone, suite, str(root), mirrors[0], *wanted])
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".", filter=_tar_entry)
        _add_folders(tar)
    versions = sorted(path.name.removeprefix("python") for path in root.glob("usr/bin/python3.*[0-9]"))
    return versions[0] if versions else "", []


def _copy_installed(wanted: list[str], temp: Path, archive: Path) -> tuple[str, list[str]]:
    """Copy the files of installed packages to a tar at ``archive``; needs neither network nor root."""
    if not shutil.which("dpkg-query"):
        raise SandboxUnavailable(
            "the image of the Docker sandbox needs debootstrap (as root) or a machine with dpkg: "
            "apt-get install -y debootstrap"
        )
    there = debian_files.closure(wanted, _run(["dpkg-query", "-W", "-f", debian_files.FORMAT]))
    if left_out := sorted(set(wanted) - there):
        log.warning("not installed here, so not in the image: %s", " ".join(left_out))
    files = debian_files.files(_run(["dpkg", "-L", *sorted(there)]), DROPPED)
    with tarfile.open(archive, "w") as tar:
        for path in files:
            with contextlib.suppress(PermissionError):  # a sandbox needs no file that only root may read
                tar.add(path, f".{path}", recursive=False, filter=_tar_entry)
        _add_folders(tar)
    versions = sorted(match[1] for path in files if (match := re.fullmatch(r"/usr/bin/python(3\.\d+)", path)))
    return versions[0] if versions else "", left_out


MAKERS = {
    "debootstrap": (_bootstrap, "this machine's apt sources"),
    "installed": (_copy_installed, "packages installed on this machine"),
}
"""Method -> (function that makes the archive, where its packages come from)."""


def _tar_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = entry.name.removeprefix("./")
    if entry.isdev() or name.startswith(tuple(f"{folder}/" for folder in DROPPED)):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode &= 0o1777  # no set-uid program is needed in a sandbox
    return entry


def _add_folders(tar: tarfile.TarFile) -> None:
    """Add the mount points; the engine rejects an archive that names a path twice."""
    there = {os.path.normpath(name) for name in tar.getnames()}
    for name in (*FOLDERS, "channel"):
        if name not in there:
            entry = tarfile.TarInfo(f"./{name}")
            entry.type, entry.mode = tarfile.REGTYPE if name == "channel" else tarfile.DIRTYPE, 0o755
            tar.addfile(entry, io.BytesIO())


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=BUILD_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"{command[0]}: {error}") from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise SandboxUnavailable(f"{command[0]} failed with {done.returncode}: {' / '.join(output)}")
    return done.stdout.strip()
