"""Turns a reply to a MultiPL-E prompt into a program, compiled and run in a fresh sandbox; every step must exit with 0.

After the last test the program prints a random word, so that leaving early or quoting the tests does not pass. Tests
and solution are one program, as upstream, so a program that reads its own file can print the word; upstream only
requires exit code 0.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

from envs.programs.code_in_replies import code_in
from envs.programs.multipl_e import typescript
from envs.programs.multipl_e.toolchains import JARS, TOOLCHAINS, Toolchain
from lemur_ray.benchmarks.question import Graded, cut_at
from lemur_ray.sandbox.sandbox import Limits, SandboxDestroyed, SandboxSpec
from lemur_ray.sandbox.warm_pool import WarmPool, shared_pool

_DISK_BYTES = 256 * 2**20
IMAGE = "multipl_e"
"""The Docker sandbox's image with all tool chains."""
PATIENCE_S = 60.0
"""Extra seconds for a machine that gives a step less than a third of its time."""
SHOWN = {"javatuples": JARS, "typescript": typescript.INSIDE}
"""Name of a folder in a task's options -> its mount point in the sandbox."""
_FOLDER = "/work"
"""Working folder of a sandbox's commands."""


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Grade a reply. Raises SandboxDestroyed if the machine ended a sandbox or gave it no time."""
    asked = options["reference"]
    tools, word = TOOLCHAINS[asked["language"]], secrets.token_hex(16)
    program = program_of(reply, asked)
    tests = asked["tests"].strip()
    checked = tools.with_own_check(tools.with_word(tests, word))
    whole = (program.rpartition(tests)[0] if tests else program) + checked
    shown = {place: Path(asked[name]) for name, place in SHOWN.items() if asked.get(name)}
    with _pool(tools, options.get("backend", "bwrap"), shown).one() as sandbox:
        try:
            sandbox.write(f"{_FOLDER}/{tools.file}", whole.encode("utf-8", "replace"))
            for place, step in enumerate(tools.steps):
                last = place == len(tools.steps) - 1
                time_s = tools.run_s if last else tools.compile_s
                limits = replace(sandbox.spec.limits, time_s=time_s, patience_s=PATIENCE_S, cpu_s=time_s / 3)
                done = sandbox.exec(step, cwd=_FOLDER, limits=limits, env=tools.env)
                if done.blame == "infra":
                    raise SandboxDestroyed(f"the machine gave a program no time: {done.note}", "infra")
                if not done.ok or (tools.failure and tools.failure in done.err):
                    output = (done.note or done.err or done.out).strip()[-300:]
                    return Graded(0.0, program, f"{step[0]}: {output or done.exit_code or done.signal}")
                if last and word not in done.out:
                    return Graded(0.0, program, f"{step[0]}: it ended before its tests did")
        except SandboxDestroyed as error:
            if error.blame != "policy":
                raise
            return Graded(0.0, program, str(error))
    return Graded(1.0, program)


def program_of(reply: str, asked: Mapping[str, Any]) -> str:
    """The program: prompt, completion up to the item's first stop, and the tests, which close what the prompt opened.

    A reply with the whole function, as chat models write it, replaces the prompt; one that also contains the tests is
    the program.
    """
    if asked["tests"].strip() and asked["tests"].strip() in reply:
        return reply
    code = code_in(reply)
    prompt, last = asked["prompt"].rstrip(), asked["prompt"].strip().splitlines()[-1]
    opening = last.strip()
    if opening not in code:
        return f"{asked['prompt']}{_cut_at_stops(code, asked['stops'])}\n{asked['tests']}"
    above, _, body = code.partition(opening)
    # A method that is repeated alone may be indented less than the stops, which close it, expect.
    missing = len(last) - len(last.lstrip()) - (len(above) - len(above.rstrip(" ")))
    body = indent(body, " " * max(0, missing)).lstrip(" ")
    return f"{prompt}{_cut_at_stops(body, asked['stops'])}\n{asked['tests']}"


def _cut_at_stops(code: str, stops: Sequence[str]) -> str:
    """``code`` up to the first of ``stops``, which may also be its last line without a line break."""
    return min(code, cut_at(f"{code}\n", stops), key=len)


def _pool(tools: Toolchain, backend: str, shown: Mapping[str, Path]) -> WarmPool:
    limits = Limits(memory_bytes=tools.memory_bytes, disk_bytes=_DISK_BYTES, processes=256)
    spec = SandboxSpec(limits=limits, mounts=shown, etc=tools.etc, image=IMAGE, run="multipl-e")
    return shared_pool(spec, backend)
