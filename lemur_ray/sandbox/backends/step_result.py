"""Converts the first process's answer about a step into an ``ExecResult``, with blame. A pure function."""

from collections.abc import Mapping
from typing import Any

from lemur_ray.sandbox.inside import wire
from lemur_ray.sandbox.inside.starvation import starved
from lemur_ray.sandbox.output import HeadTail
from lemur_ray.sandbox.sandbox import Blame, ExecResult, Limits, SandboxError


def step_result(
    answer: Mapping[str, Any], kept: Mapping[int, HeadTail], limits: Limits, lost: str, end: SandboxError | None
) -> ExecResult:
    """Build the result of a command. ``answer``: the first process's report (status, reason, times, kills); ``kept``:
    output by stream, ``wire.STDOUT`` and ``wire.STDERR``; ``lost``: why no report came, or empty; ``end``: the error
    that ended the sandbox, if any, which decides the blame."""
    (stdout, out_dropped), (stderr, err_dropped) = kept[wire.STDOUT].result(), kept[wire.STDERR].result()
    status, reason = answer.get("status"), answer.get("reason", "")
    notes: list[str] = []
    blame: Blame | None = None
    if lost:
        blame = end.blame if end else "infra"
        notes.append(f"sandbox destroyed: {lost}")
    if reason == "time":
        blame = "infra" if starved(answer, limits.time_s, limits.cpu_s) else "policy"
        notes.append(f"timed out after {limits.time_s:g} s")
    if reason == "output":
        blame = "policy"
        notes.append(f"killed after more than {limits.kill_at_bytes} bytes of output")
    if answer.get("memory_kills"):
        blame = "policy"
        notes.append(f"memory limit of {limits.memory_bytes} bytes: {answer['memory_kills']} process(es) killed")
    if answer.get("killed_behind"):
        notes.append(f"{answer['killed_behind']} process(es) left running were killed")
    signal = -status if status is not None and status < 0 else None
    return ExecResult(
        exit_code=status if status is not None and status >= 0 else None,
        signal=9 if status is None and reason else signal,
        stdout=stdout,
        stderr=stderr,
        truncated=bool(out_dropped or err_dropped) or reason == "output",
        bytes_dropped=out_dropped + err_dropped,
        timed_out=reason == "time",
        wall_s=float(answer.get("wall_s", 0.0)),
        cpu_s=max(float(answer.get("cpu_s", 0.0)), float(answer.get("crowd_cpu_s", 0.0))),
        alive=not lost,
        blame=blame,
        notes=tuple(notes),
        session_ended=answer.get("session") is False,
        waited_s=float(answer.get("waited_s", 0.0)),
    )
