"""The bubblewrap backend: namespaces without a daemon, with root (then each sandbox has its own uid) or without.

bubblewrap creates the outer namespaces and mounts the system read-only; the keeper in it creates generations
(``inside/keeper.py``). The keeper exits when its socket closes, which the kernel does when this process ends, and all
its descendants die with it. (bubblewrap's --die-with-parent would end a sandbox with the thread that opened it.)"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO

from lemur_ray.sandbox import inside
from lemur_ray.sandbox.backends import cgroup, keeper_client, python_inside, slots
from lemur_ray.sandbox.backends.connection import Connection, ConnectionLost
from lemur_ray.sandbox.backends.driven_sandbox import DrivenSandbox
from lemur_ray.sandbox.inside import root, syscall_filter
from lemur_ray.sandbox.sandbox import Capabilities, SandboxDestroyed, SandboxSpec, SandboxUnavailable

INSTALL = "apt-get install -y bubblewrap"
KEEPER = "import sys; sys.path.insert(0, '/inside'); from lemur_ray.sandbox.inside.keeper import main; main({})"


class BwrapBackend:
    """Backend of ``sandbox.Backend`` that opens each sandbox as a bubblewrap process on this machine."""

    name = "bwrap"

    @property
    def capabilities(self) -> Capabilities:
        is_root = os.geteuid() == 0
        known = os.uname().machine in syscall_filter.ARCHITECTURES
        reasons = {}
        if not is_root:
            reasons["own_uid"] = "not started as root: to the host all sandboxes are this user"
        if not known:
            reasons["seccomp"] = f"no system call table for {os.uname().machine}"
        summed = cgroup.bounds_memory()
        if not summed:
            reasons["mem_total"] = f"no memory cgroup can be made here: {keeper_client.MEMORY_WATCH_NOTE}"
        return Capabilities(own_uid=is_root, seccomp=known, mem_total=summed, reasons=reasons)

    def open(self, spec: SandboxSpec) -> DrivenSandbox:
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxUnavailable(f"bubblewrap is not installed: {INSTALL}")
        slots.reap_once()
        return DrivenSandbox(BwrapHousing(program, spec), spec, self.capabilities)


class BwrapHousing(keeper_client.Housing):
    """The bubblewrap process in which one sandbox lives, with its keeper."""

    def __init__(self, program: str, spec: SandboxSpec) -> None:
        packed = keeper_client.packed_trees(spec)
        super().__init__(spec, python()[0])
        limits = spec.limits
        self.errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self.process: subprocess.Popen[bytes] | None = None
        ours, theirs = socket.socketpair()
        self.keeper = keeper_client.KeeperClient(ours)
        try:
            name = f"{os.geteuid()}-{self.slot.number}"
            memory = limits.memory_bytes + limits.disk_bytes + keeper_client.OURS_BYTES
            self.cgroup = cgroup.make(name, memory, limits.processes + 16)
            self.summed = self.cgroup is not None
            groups = [str(folder) for folder in self.cgroup.folders] if self.cgroup else []
            self.slot.record(run=spec.run, cgroups=groups)
            command = self._command(program, theirs.fileno())
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                env={},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            theirs.close()
            start = slots.start_time(self.process.pid)
            self.slot.record(run=spec.run, process=[self.process.pid, start], cgroups=groups)
            try:
                self.keeper.greet(packed)
            except ConnectionLost as error:
                raise SandboxUnavailable(self._start_error(error)) from error
        except BaseException:
            theirs.close()
            self.destroy()
            raise

    def _start_error(self, error: Exception) -> str:
        assert self.process
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        output = ""
        with contextlib.suppress(ValueError):  # it was closed meanwhile
            self.errors.seek(0)
            output = self.errors.read(4000).decode("utf-8", "replace").strip()
        hint = "jobs/doctor.py says what this machine lacks"
        return f"bubblewrap starts no sandbox: {output or error} (exit status {self.process.poll()}); {hint}"

    def _command(self, program: str, channel_fd: int) -> list[str]:
        spec, is_root = self.spec, os.geteuid() == 0
        shown, links = self._shown()
        script = []
        if is_root:
            hidden = [source for source, _ in shown if not _reachable(source)]
            moved = {source: f"{slots.folder()}/{number}" for number, source in enumerate(hidden)}
            script += _public_binds(moved)
            shown = [(Path(moved.get(source, source)), target) for source, target in shown]
        script += [f"echo $$ > {shlex.quote(str(join))}" for join in (self.cgroup.joins if self.cgroup else [])]
        uid = "0" if spec.as_root else "1000"
        bwrap = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        bwrap += [] if spec.network else ["--unshare-net"]
        bwrap += ["--as-pid-1", "--clearenv", *self._libraries(), "--uid", uid, "--gid", uid, "--cap-drop", "ALL"]
        bwrap += [word for name in keeper_client.HELD for word in ("--cap-add", f"CAP_{name}")]
        bwrap += ["--proc", "/proc", "--dir", "/generation", "--dir", "/base"]
        bwrap += [word for name in root.DEVICES for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
        bwrap += [word for target, name in links for word in ("--symlink", target, name)]
        bwrap += [word for source, target in shown for word in ("--ro-bind", str(source), target)]
        bwrap += [python()[1], "-I", "-S", "-c", KEEPER.format(channel_fd)]
        become = []
        if is_root:
            number = str(self.slot.uid)
            become = ["setpriv", "--reuid", number, "--regid", number, "--clear-groups"]
        line = " && ".join([*script, 'exec "$@"'])
        start = ["unshare", "--mount", "--propagation", "private"] if any("mount " in s for s in script) else []
        return _absolute([*start, "sh", "-c", line, "sh", "env", "-i", *become, *bwrap])

    def _shown(self) -> tuple[list[tuple[Path, str]], list[tuple[str, str]]]:
        """Read-only mounts of the keeper as (source, target), and symbolic links as (target, name)."""
        spec = self.spec
        code = Path(inside.__file__).parent
        shown = [(Path("/usr"), "/usr"), (code, "/inside/lemur_ray/sandbox/inside")]
        links = []
        for name in keeper_client.MERGED:
            path = Path("/") / name
            if path.is_symlink():
                links.append((os.readlink(path), f"/{name}"))
            elif path.exists():
                shown.append((path, f"/{name}"))
        if spec.rootfs is None:
            shown += [(source, f"/base{target}") for source, target in shown if not target.startswith("/inside")]
            links += [(target, f"/base{name}") for target, name in links]
            parts = sorted({path for name in keeper_client.etc_shown(spec) for path in Path("/etc").glob(name)})
            there = [path for path in parts if path.exists()]
            shown += [(path.resolve(), f"/base/etc-parts/{path.relative_to('/etc')}") for path in there]
        else:
            for path in sorted(spec.rootfs.iterdir()):
                if path.is_symlink():
                    links.append((os.readlink(path), f"/base/{path.name}"))
                elif path.name not in keeper_client.NOT_OF_ROOTFS:
                    shown.append((path.resolve(), f"/base/{path.name}"))
        prefix, _ = python()
        if prefix:
            shown.append((prefix, python_inside.INSIDE))
        for number, path in enumerate(self.mounts.values()):
            shown.append((path.resolve(), f"/base/mounts/{number}"))
        return shown, links

    def _libraries(self) -> list[str]:
        pairs = python_inside.environment().items() if python()[0] else ()
        return [word for name, value in pairs for word in ("--setenv", name, value)]

    def begin(self) -> Connection:
        try:
            return super().begin()
        except SandboxDestroyed as error:
            raise SandboxDestroyed(self._start_error(error), "infra") from error

    def destroy(self) -> None:
        if self.keeper:
            self.keeper.close()
        if self.process:
            try:
                self.process.wait(10.0)
            except subprocess.TimeoutExpired:
                start = slots.start_time(self.process.pid)
                if start is not None:
                    slots.end_process(self.process.pid, start)
                with contextlib.suppress(
                    subprocess.TimeoutExpired
                ):  # a process stuck in the kernel is left to the next reap
                    self.process.wait(5.0)
        self.errors.close()
        left = self.process is not None and self.process.poll() is None
        if self.cgroup:
            left |= not self.cgroup.remove()
        self.slot.release(left)

    def abandon(self) -> None:
        super().abandon()
        self.errors.close()


def python() -> tuple[Path | None, str]:
    """The Python that a sandbox uses: (folder of this machine to mount at /opt/python, or None if none is needed; path
    of the interpreter inside). It is the system's if its minor version is this interpreter's, so that compiled packages
    of this one work; otherwise this interpreter."""
    for folder in ("/usr/bin", "/usr/local/bin"):
        if Path(folder, f"python{python_inside.VERSION}").exists():
            return None, f"{folder}/python{python_inside.VERSION}"
    return python_inside.this_interpreter()


def _reachable(path: Path) -> bool:
    """Whether every user may read ``path``."""
    above = all(parent.stat().st_mode & 0o001 for parent in path.parents)
    return above and bool(path.stat().st_mode & 0o004)


def _public_binds(moved: dict[Path, str]) -> list[str]:
    """Shell commands that, in their own mount namespace, bind paths only root can reach into a public folder."""
    if not moved:
        return []
    near = shlex.quote(str(slots.folder()))
    lines = [f"mount -t tmpfs -o mode=755 sandbox {near}"]
    for source, target in moved.items():
        lines.append(f"{'mkdir' if source.is_dir() else 'touch'} {shlex.quote(target)}")
        lines.append(f"mount --bind {shlex.quote(str(source))} {shlex.quote(target)}")
    return lines


def _absolute(command: list[str]) -> list[str]:
    """``command`` with the absolute path of its program, since it runs with an empty environment."""
    first = shutil.which(command[0])
    if first is None:
        raise SandboxUnavailable(f"{command[0]} is not installed: apt-get install -y util-linux")
    return [first, *command[1:]]
