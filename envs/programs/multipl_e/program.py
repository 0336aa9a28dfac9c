"""Turns a reply to a MultiPL-E prompt into a program, compiled and run in a fresh sandbox; every step must exit with 0.

After the last test the program prints a random word, so that leaving early or quoting the tests does not pass, and
``guarded_tests`` keeps the solution from changing what the tests check; upstream only requires exit code 0."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

from envs.programs.code_in_replies import code_in, has_fence
from envs.programs.multipl_e import typescript
from envs.programs.multipl_e.guarded_tests import function_name, guarded, split_close
from envs.programs.multipl_e.toolchains import JARS, TOOLCHAINS, Toolchain
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded, cut_at
from lemur_ray.sandbox.sandbox import Limits, SandboxDestroyed, SandboxSpec
from lemur_ray.sandbox.warm_pool import WarmPool, shared_pool

_DISK_BYTES = 256 * 2**20
IMAGE = "multipl_e"
"""The Docker sandbox's image with all tool chains."""
PATIENCE_S = 60.0
"""Extra seconds for a machine that gives a step less than a third of its time."""
DEFINITIONS = {
    "js": r"\bfunction\s*\*?\s*{name}\s*\(|\b(?:const|let|var)\s+{name}\s*=|^{name}\s*=[^=]",
    "ts": r"\bfunction\s*{name}\s*[(<]|\b(?:const|let|var)\s+{name}\s*[:=]",
    "php": r"\bfunction\s+&?{name}\s*\(",
    "sh": r"^[ \t]*(?:function\s+)?{name}\s*(?:\(\s*\))?\s*\{{",
}
"""Language -> regular expression of a definition of the function ``{name}``; other languages: of a typed function."""
SHOWN = {"javatuples": JARS, "typescript": typescript.INSIDE}
"""Name of a folder in a task's options -> its mount point in the sandbox."""
_LITERAL = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"{3}.*?\"{3}|\bR\"\(.*?\)\"|@\"(?:[^\"]|\"\")*\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'",
    re.DOTALL,
)
"""A comment, string or character of C++, C# or Java."""
_FOLDER = "/work"
"""Working folder of a sandbox's commands."""


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the program of a reply, with the item's tests, compiles and runs to its end; ``scores`` has the strict
    and the flexible reading. Raises SandboxDestroyed if the machine ended a sandbox or gave it no time."""
    asked = options["reference"]
    backend = options.get("backend", "bwrap")
    program, strict = program_of(reply, asked), completed(reply, asked)
    graded = _run(program, asked, backend)
    other = 0.0 if strict is None else graded.score if strict == program else _run(strict, asked, backend).score
    return replace(graded, scores={STRICT: other, FLEXIBLE: graded.score})


def _run(program: str, asked: Mapping[str, Any], backend: str) -> Graded:
    """Compile and run a program, which ends with the item's tests."""
    tools, word = TOOLCHAINS[asked["language"]], secrets.token_hex(16)
    half = len(word) // 2
    solution, tests = _split(program, asked["tests"])
    checked = guarded(solution, {**asked, "tests": tests}, tools.says % (word[:half], word[half:]))
    if checked.refused:
        return Graded(0.0, program, checked.refused)
    shown = {place: Path(asked[name]) for name, place in SHOWN.items() if asked.get(name)}
    with _pool(tools, backend, shown).one() as sandbox:
        try:
            sandbox.write(f"{_FOLDER}/{tools.file}", checked.program.encode("utf-8", "replace"))
            for place, step in enumerate(tools.steps):
                last = place == len(tools.steps) - 1
                time_s = tools.run_s if last else tools.compile_s
                limits = replace(sandbox.spec.limits, time_s=time_s, patience_s=PATIENCE_S, cpu_s=time_s / 3)
                stdin = checked.stdin.encode("utf-8", "replace") if last else b""
                if last and place and tools.is_compiled:
                    for command in filter(None, (("rm", "-f", tools.file), tools.rewrite)):
                        sandbox.exec(command, cwd=_FOLDER)
                done = sandbox.exec(step, cwd=_FOLDER, limits=limits, env=tools.env, stdin=stdin)
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


def _split(program: str, tests: str) -> tuple[str, str]:
    """(the solution, the tests as they are in the program: without the closing brace if that is the solution's)."""
    whole, rest = tests.strip(), split_close(tests)[1].strip()
    if not whole:
        return program, tests
    return (program.rpartition(whole)[0], tests) if whole in program else (program.rpartition(rest)[0], rest)


def completed(reply: str, asked: Mapping[str, Any]) -> str | None:
    """The program of a reply under the strict reading, as published: prompt, reply up to a stop, tests. A reply that
    contains the tests is the program itself; None for any other with a code fence. asked: the task's reference, with
    prompt, tests and stops."""
    if asked["tests"].strip() and asked["tests"].strip() in reply:
        return reply
    return None if has_fence(reply) else f"{asked['prompt']}{_cut_at_stops(reply, asked['stops'])}\n{asked['tests']}"


def program_of(reply: str, asked: Mapping[str, Any]) -> str:
    """The program of a reply, read leniently: the item's prompt, the completion up to the first stop, and the tests. A
    reply with the whole function replaces the prompt; one that also contains the tests is the program. asked: the
    task's reference, with prompt, tests and stops."""
    if asked["tests"].strip() and asked["tests"].strip() in reply:
        return reply
    code = code_in(reply, rf"\b{function_name(asked['prompt'])}\s*[=(]")
    prompt, last = asked["prompt"].rstrip(), asked["prompt"].strip().splitlines()[-1]
    opening = last.strip()
    above, repeated, body = code.partition(opening)
    is_open = not any(stop in f"{body}\n" for stop in asked["stops"])
    if (is_open or (repeated and has_fence(reply) and _adds(above, asked, code))) and (whole := _whole(code, asked)):
        return whole
    if not repeated:
        return f"{asked['prompt']}{_cut_at_stops(code, asked['stops'])}\n{asked['tests']}"
    # A method that is repeated alone may be indented less than the stops, which close it, expect.
    missing = len(last) - len(last.lstrip()) - (len(above) - len(above.rstrip(" ")))
    body = indent(body, " " * max(0, missing)).lstrip(" ")
    return f"{prompt}{_cut_at_stops(body, asked['stops'])}\n{asked['tests']}"


def _adds(above: str, asked: Mapping[str, Any], code: str) -> bool:
    """Whether the code above a function has imports, helpers or the like that its prompt lacks. False for code with
    classes beside ``Problem``, which cannot be taken whole."""
    given = {line.strip() for line in asked["prompt"].splitlines()}
    added = [line for line in map(str.strip, above.splitlines()) if line and line not in given]
    is_class = asked.get("language") in ("cs", "java") and re.search(r"\bclass\s+(?!Problem\b)\w", _masked(code))
    return not is_class and any(not line.startswith(("//", "/*", "*", "# ", "#!")) for line in added)


def _whole(code: str, asked: Mapping[str, Any]) -> str | None:
    """The program of code that defines the function with a signature of its own (an arrow function, ``string`` for
    ``std::string``); None if it does not."""
    language, name = asked.get("language", ""), re.escape(function_name(asked["prompt"]))
    defined = DEFINITIONS.get(language, r"^[ \t]*[\w:<>,\[\]&*? ]+[ >&*]{name}\s*\([^;{{}}]*\)[^;{{}}]*\{{").format(
        name=name
    )
    if not name or not re.search(defined, code, re.MULTILINE):
        return None
    rest = split_close(asked["tests"])[1]
    head = asked["prompt"].rstrip().rpartition("\n")[0]
    match language:
        case "cs" | "java":
            above, inner = ([*re.split(r"\bclass\s+Problem\b", code, maxsplit=1), ""])[:2]
            inner = inner[inner.find("{") + 1 : _masked(inner).rfind("}")] if inner else code
            imports = ("import ", "using ")
            lines = [line for line in above.splitlines() if line.startswith(imports) and inner is not code]
            inner = "\n".join(line for line in inner.splitlines() if not line.startswith(imports))
            before = "\n".join([*lines, head])
            return f"{before}\n{_without(inner, r'static (?:void|int|async Task) [mM]ain')}\n{rest}"
        case "cpp":
            given = "" if re.search(r"using\s+namespace\s+std", code) else "using namespace std;\n"
            return f"{head}\n{given}{_without(code, r'int main')}\n{rest}"
        case "php":
            bare = re.sub(r"<\?php|\?>", "", code)
            return f"<?php\n{bare}\n{asked['tests']}"
        case "js" | "ts":
            bare = re.sub(r"(?m)^export\s+(?:default\s+)?(?=\w)|^module\.exports\b.*$|^export\s*\{.*$", "", code)
            return f"{bare}\n{asked['tests']}"
        case "sh":
            return f"{code}\n{rest}"
    return None


def _without(code: str, begins: str) -> str:
    """The code without the function whose signature matches ``begins``, by its braces."""
    masked = _masked(code)
    signature = re.search(rf"(?m)^[ \t]*(?:public\s+)?{begins}\b", masked)
    if not signature:
        return code
    depth, opened = 0, masked.find("{", signature.end())
    for place in range(max(opened, 0), len(code)):
        depth += {"{": 1, "}": -1}.get(masked[place], 0)
        if depth == 0:
            return code[: signature.start()] + code[place + 1 :]
    return code[: signature.start()]


def _masked(code: str) -> str:
    """The code with every comment, string and character replaced by as many underscores."""
    return _LITERAL.sub(lambda match: "_" * len(match[0]), code)


def _cut_at_stops(code: str, stops: Sequence[str]) -> str:
    """``code`` up to the first of ``stops``, which may also be its last line without a line break."""
    return min(code, cut_at(f"{code}\n", stops), key=len)


def _pool(tools: Toolchain, backend: str, shown: Mapping[str, Path]) -> WarmPool:
    limits = Limits(memory_bytes=tools.memory_bytes, disk_bytes=_DISK_BYTES, processes=256)
    spec = SandboxSpec(limits=limits, mounts=shown, etc=tools.etc, image=IMAGE, run="multipl-e")
    return shared_pool(spec, backend)
