"""Checks that all hosts have the same Python, project and packages, and that their clocks agree.

Expected are the packages of the lock file, or the values of most hosts (in a tie the first host's)."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from lemur_ray.doctor.hosts.grouped_findings import by_reason, few
from lemur_ray.doctor.hosts.host_facts import HostFacts
from lemur_ray.doctor.machine import Check

CLOCK_WARN_S, CLOCK_MOST_S = 2.0, 60.0
"""Seconds between the fastest and slowest clock. Beyond the first, log lines lose their order; beyond the second,
leases are misjudged and buckets refuse signed requests."""
T = TypeVar("T")
_SHARED = ("ray", "cloudpickle", "numpy", "pyarrow", "jax", "jaxlib", "flax", "orbax-checkpoint", "tensorstore")
_ONE_IMAGE = "start every host from one image"


def python(hosts: Sequence[HostFacts]) -> Check:
    what = "another Python cannot read what this one sends"
    return _same(
        hosts, "python", lambda host: host.python, what, f"{_ONE_IMAGE}: pickles need equal versions of Python"
    )


def project(hosts: Sequence[HostFacts]) -> Check:
    """Compare the project's source that workers import. A job with a working directory brings its own."""
    what = "a task would run other code than its driver"
    fix = f"{_ONE_IMAGE}, or bring the code with the job: ray job submit --working-dir . ..."
    return _same(hosts, "project", lambda host: host.project or "none", what, fix)


def packages(hosts: Sequence[HostFacts], lock: Mapping[str, str]) -> Check:
    """Compare installed packages with ``lock`` (name -> version). If it is empty, compare with the versions of most
    hosts; a missing package is then no error, since hosts with chips have more packages."""
    wanted = {name: _version(version) for name, version in (lock or _usual(hosts)).items()}
    differing = {}
    for host in hosts:
        installed = {name: _version(host.packages.get(name)) for name in wanted}
        odd = [
            f"{name} {installed[name] or 'absent'} (expected {version})"
            for name, version in wanted.items()
            if installed[name] != version and (installed[name] or lock)
        ]
        if odd:
            differing[host.name] = few(odd, 3)
    if not differing:
        digest = hashlib.sha256("".join(f"{n}=={v}\n" for n, v in sorted(wanted.items())).encode())
        return Check("packages", "ok", f"{len(wanted)} equal on {len(hosts)} hosts, lock {digest.hexdigest()[:12]}")
    detail = by_reason(differing)
    fix = f"pip install -r requirements.lock   # on {few(sorted(differing))}; or {_ONE_IMAGE}"
    where = f"{'the lock' if lock else 'most hosts'} on {len(differing)} of {len(hosts)} hosts"
    return Check("packages", "missing", f"not those of {where}: {detail}", fix, True)


def shared_packages(hosts: Sequence[HostFacts]) -> Check:
    """Compare only the packages whose objects are sent between hosts; a weaker check than ``packages``."""
    what = "what one host writes another may not read"
    fix = f"{_ONE_IMAGE}: pip install -r requirements.lock is the same everywhere"
    for name in _SHARED:
        having = [host for host in hosts if name in host.packages]
        version = {host.name: f"{name} {_version(host.packages[name])}" for host in having}
        if having and (check := _same(having, name, lambda host: version[host.name], what, fix)).status != "ok":  # noqa: B023
            return check
    return Check("packages", "ok", f"the same on {len(hosts)} hosts")


def clocks(hosts: Sequence[HostFacts]) -> Check:
    """Compare clocks: seconds between the fastest and the slowest, less the uncertainty of the measurement; "warn"
    above CLOCK_WARN_S, "missing" above CLOCK_MOST_S."""
    first, last = min(hosts, key=_ahead), max(hosts, key=_ahead)
    apart_s = max(0.0, _ahead(last) - _ahead(first) - first.clock_unsure_s - last.clock_unsure_s)
    detail = f"{apart_s:.1f} s apart"
    if apart_s <= CLOCK_WARN_S:
        return Check("clocks", "ok", detail)
    middle = sorted(hosts, key=_ahead)[len(hosts) // 2]
    odd = max((first, last), key=lambda host: abs(_ahead(host) - _ahead(middle)))
    detail += f": {odd.name} is {abs(_ahead(odd) - _ahead(middle)):.1f} s {'ahead' if odd is last else 'behind'}"
    fix = f"timedatectl set-ntp true   # on {odd.name}: its clock follows nobody"
    if apart_s > CLOCK_MOST_S:
        return Check("clocks", "missing", f"{detail}: leases are misjudged and buckets refuse its requests", fix, True)
    return Check("clocks", "warn", f"{detail}: lines of logs lose their order", fix)


def _usual(hosts: Sequence[HostFacts]) -> dict[str, str]:
    """Package -> the version that most hosts with that package have."""
    names = dict.fromkeys(name for host in hosts for name in host.packages)
    having = {name: [host.packages[name] for host in hosts if name in host.packages] for name in names}
    return {name: _most(versions, _version) for name, versions in having.items()}


def _ahead(host: HostFacts) -> float:
    return host.clock_ahead_s


def _version(version: str | None) -> str:
    """The version without the label of a local build (``+cpu``)."""
    return (version or "").split("+")[0]


def _same(hosts: Sequence[HostFacts], name: str, of: Callable[[HostFacts], str], what: str, fix: str) -> Check:
    usual = _most(hosts, of)
    odd = {host.name: f"has {of(host)}" for host in hosts if of(host) != of(usual)}
    if not odd:
        return Check(name, "ok", f"{of(usual)} on {len(hosts)} hosts", required=True)
    return Check(name, "missing", f"{of(usual)} on most hosts, but {by_reason(odd, ' ')}: {what}", fix, True)


def _most(things: Sequence[T], of: Callable[[T], object]) -> T:
    """The first of the things that share their most frequent ``of`` value."""
    counts = Counter(of(thing) for thing in things)
    return max(things, key=lambda thing: counts[of(thing)])
