"""Checks of the memory, shared memory, disk and cores that this process may use."""

import os
import re

from lemur_ray.doctor.machine import Check, Machine, Status
from lemur_ray.host.home import lemur_home

GIB = 2**30


def memory(machine: Machine) -> Check:
    free = available_memory(machine)
    if free is None:
        return Check("memory", "warn", "unknown: no /proc/meminfo")
    return _size("memory", free, 8, 3, "end other programs; the demo peaks below 8 GiB")


def available_memory(machine: Machine) -> int | None:
    """Free memory in bytes: the smaller of the kernel's estimate and what the container (cgroup v2) may still allocate.
    Negative if the container is above its limit; None without the kernel's estimate."""
    available = re.search(r"^MemAvailable:\s+(\d+)", machine.read("proc/meminfo"), re.MULTILINE)
    free = int(available[1]) * 1024 if available else None
    limit = machine.read("sys/fs/cgroup/memory.max").strip()
    used = machine.read("sys/fs/cgroup/memory.current").strip()
    if free is not None and limit.isdigit() and used.isdigit():
        free = min(free, int(limit) - int(used))
    return free


def shared_memory(machine: Machine) -> Check:
    """Size of /dev/shm, which holds Ray's object store; Docker's default is 64 MiB."""
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
    detail = f"{free / GIB:.1f} GiB free"
    if free < needed_gib * GIB:
        return Check(name, "missing", f"{detail}, at least {needed_gib:g} needed", fix, True)
    if free < wanted_gib * GIB:
        return Check(name, "warn", f"{detail}, {wanted_gib:g} wanted", fix)
    return Check(name, "ok", detail)


def cores(machine: Machine) -> Check:
    number = usable_cores(machine)
    status: Status = "ok" if number >= 2 else "warn"
    return Check("cores", status, f"{number:g}" + ("" if status == "ok" else ", the demo's times are for 2"))


def usable_cores(machine: Machine) -> float:
    """Number of cores that this process may use; a fraction if the container has a quota."""
    number = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = machine.read("sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        number = min(number, int(quota[0]) / int(quota[1]))
    return number
