"""Checks of this machine: one line each, with the exact command that fixes what is missing.

Uses the standard library alone, so it runs before anything is installed. Ray and jax run in processes of their own,
with a time limit. Checks access the machine only through ``Machine``."""

from collections.abc import Iterator, Sequence

from lemur_ray.doctor import cluster, packages, programs, resources, sandbox_tools
from lemur_ray.doctor.machine import Check, Machine

__all__ = ["CHECKS", "Check", "Machine", "examine", "healthy", "lines"]

CHECKS = (
    *(packages.python, packages.packages, cluster.ray, packages.jax, cluster.ray_auth, cluster.ray_address),
    *(packages.envs_package, cluster.temp_path, resources.memory, resources.shared_memory, resources.disk),
    *(resources.cores, packages.tpu, programs.bubblewrap, sandbox_tools.sandbox_tools, programs.docker),
    *(programs.chromium, programs.compiler, programs.textworld, programs.mariadb),
)
"""Every check, in the order a person wants to read them."""


def examine(machine: Machine) -> list[Check]:
    """Run every check and return the results in the order to print them; takes seconds, changes nothing."""
    return [check(machine) for check in CHECKS]


def healthy(checks: Sequence[Check]) -> bool:
    """Whether no required check has the status "missing"."""
    return not any(check.required and check.status == "missing" for check in checks)


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """Yield one line per check, followed by the command that fixes it if needed."""
    wide = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.status:7}  {check.name:{wide}}  {check.found}"
        if check.fix and check.status != "ok":
            yield f"{'':7}  {'':{wide}}  $ {check.fix}"
