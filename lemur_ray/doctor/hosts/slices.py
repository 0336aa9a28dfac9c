"""Checks of TPU slices: worker ids 0 to n-1, resolvable host names, chips that match the topology.

Where one of these is wrong, jax waits without a message although the cluster looks healthy."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from lemur_ray.doctor.hosts.grouped_findings import few
from lemur_ray.doctor.hosts.host_facts import HostFacts
from lemur_ray.doctor.machine import Check

_WEBHOOK = "delete the slice's pods so that the Ray TPU webhook (1.2.1 or newer) numbers them again"


def slices(hosts: Sequence[HostFacts]) -> list[Check]:
    """One check per TPU slice, before them one if hosts have chips but no TPU_NAME; without TPUs a single ok check."""
    with_chips = [host for host in hosts if host.chips or host.tpus or host.tpu.get("TPU_NAME")]
    if not with_chips:
        return [Check("tpu", "ok", "no TPU host")]
    checks = []
    if nameless := [host.name for host in with_chips if not host.tpu.get("TPU_NAME")]:
        detail = (
            f"{', '.join(nameless)} have chips, but TPU_NAME is not set: jax would take each for a slice of its own"
        )
        checks.append(Check("tpu", "missing", detail, "install the Ray TPU webhook, then delete these pods", True))
    for name in sorted({host.tpu["TPU_NAME"] for host in with_chips if host.tpu.get("TPU_NAME")}):
        members = [host for host in with_chips if host.tpu.get("TPU_NAME") == name]
        pairs = list(_slice_problems(members))
        if pairs:
            problems = "; ".join(problem for problem, _ in pairs)
            fixes = "; ".join(dict.fromkeys(fix for _, fix in pairs))
            checks.append(Check(f"tpu {name}", "missing", problems, fixes, True))
        else:
            chips = sum(_chips(host) for host in members)
            checks.append(Check(f"tpu {name}", "ok", f"{len(members)} hosts, {chips} chips", required=True))
    return checks


def _slice_problems(members: Sequence[HostFacts]) -> Iterator[tuple[str, str]]:
    """(problem, fix) pairs of one slice."""
    ids = Counter(host.tpu.get("TPU_WORKER_ID", "") for host in members)
    listed = {host.tpu.get("TPU_WORKER_HOSTNAMES", "") for host in members}
    if len(listed) > 1:
        yield f"its hosts have {len(listed)} different TPU_WORKER_HOSTNAMES", _WEBHOOK
    if listed == {""} and len(members) > 1:
        yield f"none of its {len(members)} hosts has TPU_WORKER_HOSTNAMES: jax would not find the others", _WEBHOOK
    expected = max((len(names.split(",")) for names in listed if names), default=len(members))
    for number, times in sorted(ids.items()):
        sharing = ", ".join(host.name for host in members if host.tpu.get("TPU_WORKER_ID", "") == number)
        if not number.isdigit():
            yield f"{sharing}: TPU_WORKER_ID is {number!r}, expected a number", _WEBHOOK
        elif times > 1:
            yield f"{sharing} are all TPU_WORKER_ID {number}", _WEBHOOK
    if absent := [str(number) for number in range(expected) if str(number) not in ids]:
        fix = "wait for all pods of the slice (kubectl get pods), or end it: a slice works whole"
        yield f"of {expected} hosts TPU_WORKER_ID {few(absent, 5)} {'is' if len(absent) == 1 else 'are'} not there", fix
    for host in members:
        if host.unresolved:
            fix = "make the headless service: a cluster's name of fewer than 25 characters keeps its names whole"
            yield f"{host.name} finds no address of {', '.join(host.unresolved[:3])}", fix
    yield from _chip_problems(members, expected)


def _chip_problems(members: Sequence[HostFacts], num_hosts: int) -> Iterator[tuple[str, str]]:
    each = Counter(_chips(host) for host in members)
    usual = each.most_common(1)[0][0]
    for host in members:
        if _chips(host) != usual:
            yield (
                f"{host.name} has {_chips(host)} chips, the others {usual}",
                f'ask for google.com/tpu: "{usual}" in its pod, and look whether its driver has all of them',
            )
    for topology in sorted({host.tpu["TPU_TOPOLOGY"] for host in members if host.tpu.get("TPU_TOPOLOGY")}):
        sides = topology.split("x")
        if all(side.isdigit() for side in sides) and math.prod(map(int, sides)) != usual * num_hosts:
            chips = math.prod(map(int, sides))
            fix = f"numOfHosts: {chips // usual}" if usual and chips % usual == 0 else "a topology of these chips"
            yield f"topology {topology} has {chips} chips, {num_hosts} hosts with {usual} have {usual * num_hosts}", fix


def _chips(host: HostFacts) -> int:
    return int(host.tpus) or host.chips
