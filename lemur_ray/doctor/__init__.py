"""What is there and what is missing: one check a line, each with the exact command that mends it.

Needs nothing but the standard library, so it runs on a machine where nothing is installed yet. Ray and jax are asked
in processes of their own, with a time limit. What a check looks at comes in through ``Machine``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lemur_ray.doctor import accelerators, cluster, packages, programs, resources, sandbox_tools
from lemur_ray.doctor.machine import Check, Machine

__all__ = ["CHECKS", "Check", "Machine", "examine", "healthy", "lines"]

CHECKS = (
    packages.python,
    packages.packages,
    cluster.ray,
    accelerators.jax,
    cluster.ray_auth,
    cluster.ray_address,
    packages.envs_package,
    cluster.temp_path,
    resources.memory,
    resources.shared_memory,
    resources.disk,
    resources.cores,
    accelerators.tpu,
    programs.bubblewrap,
    sandbox_tools.sandbox_tools,
    programs.docker,
    programs.chromium,
    programs.compiler,
    programs.textworld,
    programs.mariadb,
)
"""Every check, in the order a person wants to read them."""


def examine(machine: Machine) -> list[Check]:
    """The answers of every check."""
    return [check(machine) for check in CHECKS]


def healthy(checks: Sequence[Check]) -> bool:
    """Whether nothing that is required is missing."""
    return not any(check.required and check.status == "missing" for check in checks)


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """One line per check for a person, a second one with the command where something is to be done."""
    wide = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.status:7}  {check.name:{wide}}  {check.found}"
        if check.fix and check.status != "ok":
            yield f"{'':7}  {'':{wide}}  $ {check.fix}"
