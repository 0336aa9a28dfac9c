"""What hostile acts answer with programs or in a browser: small items of our own, so none needs data of others.

For each kind: the environment, the options of its tasks, what solves it, and what it lacks on this machine.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.programs.multipl_e.program import IMAGE
from envs.programs.multipl_e.toolchains import TOOLCHAINS
from envs.webarena.browser.chromium import NoChromium, executable
from envs.webarena.browser.host import close_shared
from lemur_ray.benchmarks.question import ENV_ID
from lemur_ray.benchmarks.sandboxed import Sandboxed, missing_programs
from lemur_ray.sandbox.backends import docker_image
from tests.envs.programs.ds1000_items import DOUBLES
from tests.envs.programs.translated_solutions import ended
from tests.envs.webarena.small_site import SmallSite, record


@dataclass(frozen=True)
class Language:
    """Of MultiPL-E: an item that asks for a sum."""

    name: str
    prompt: str
    tests: str
    stops: tuple[str, ...]
    right: str = "return x + y;"

    def ended(self, body: str) -> str:
        """A completion with this body."""
        return ended(self.name, body)


_SCRIPT_TESTS = (
    "const assert = require('node:assert');\n\nfunction test() {\n  let candidate = add;\n"
    "  assert.deepEqual(candidate(2, 3),5);\n  assert.deepEqual(candidate(5, 7),12);\n}\n\ntest();"
)
_C_TESTS = "}\nint main() {\n    auto candidate = add;\n    assert(candidate((2), (3)) == (5));\n}\n"
_JAVA_TESTS = "    }\n    public static void main(String[] args) {\n    assert(add((2l), (3l)) == (5l));\n    }\n\n}\n"
_CS_TESTS = (
    "    }\n    public static void Main(string[] args) {\n    Debug.Assert(Add((2L), (3L)) == (5L));\n    }\n\n}\n"
)
_PHP_TESTS = (
    "function candidate(...$args) {\n    return add(...$args);\n}\n\nfunction test(): void {\n"
    '    if (candidate(2, 3) !== 5) { throw new Exception("Test failed!"); }\n}\n\ntest();'
)
_SH_TESTS = (
    '}\n\ncandidate() {\n    add "$@"\n}\n\nset -e\nrun_test() {\n    [[ $(candidate "2" "3") = "5" ]]\n}\n\nrun_test'
)
_SCRIPT_STOPS = ("\nfunction ", "\n/*", "\n//", "\nconsole.log")
_ANY = (
    Language("cpp", "#include<assert.h>\n#include<bits/stdc++.h>\nlong add(long x, long y) {\n", _C_TESTS, ("\n}",)),
    Language(
        "cs",
        "using System;\nusing System.Diagnostics;\nclass Problem {\n    public static long Add(long x, long y) {\n",
        _CS_TESTS,
        ("\n    }\n",),
    ),
    Language(
        "java",
        "import java.util.*;\nclass Problem {\n    public static long add(long x, long y) {\n",
        _JAVA_TESTS,
        ("\n    }\n",),
    ),
    Language("js", "// Add.\nfunction add(x, y){\n", _SCRIPT_TESTS, _SCRIPT_STOPS),
    Language(
        "php", "<?php\nfunction add($x, $y) {\n", _PHP_TESTS, ("\nfunction", "\n?>", "\n//", "\n#"), "return $x + $y;"
    ),
    Language("sh", "#!/bin/bash\n# Add.\nadd() {\n", _SH_TESTS, ("\n}",), "echo $(($1 + $2))"),
    Language(
        "ts",
        "// Add.\nfunction add(x: number, y: number): number {\n",
        f"declare var require: any;\n{_SCRIPT_TESTS}",
        _SCRIPT_STOPS,
    ),
)
LANGUAGES = {language.name: language for language in _ANY}
ROBOT = {"name": "twice", "check": "allclose", "helpers": "", "scene": {"get_obj_outer_pts_np": {}}}
QUESTIONS = ("spider", "ds1000", "robot", "robot turns", *LANGUAGES, "web")
ENVIRONMENT = {
    **dict.fromkeys(("spider", "ds1000", "robot", *LANGUAGES), ENV_ID),
    "robot turns": "envs:lemur/RoboCodeGen-v0",
    "web": "envs:lemur/WebArena-v0",
}
BENCHMARK = {
    "spider": "spider",
    "ds1000": "ds1000",
    **dict.fromkeys(("robot", "robot turns"), "robocodegen"),
    **{language: f"multipl_e/{language}" for language in LANGUAGES},
    "web": "webarena/webarena",
}
SOLVES = {
    "spider": ("```sql\nSELECT a FROM t\n```",),
    "ds1000": ("    return 2 * x",),
    "robot": ("def twice(pts):\n    return 2 * pts",),
    "robot turns": ("def twice(pts):\n    return other(pts)", "def other(pts):\n    return pts + pts"),
    **{name: (language.ended(language.right),) for name, language in LANGUAGES.items()},
    "web": ("```click [<link>]```", "```stop [$7.25]```"),
}


def options_of(kind: str, folder: Path, site: str) -> dict[str, Any]:
    """Of ``kind``'s tasks, without the sandbox. ``folder``: for files; ``site``: address of a small site."""
    if kind == "web":
        sites = {"sets": [{"name": "small", "urls": {"SHOPPING": site}}]}
        return {"record": record(), "sites": sites, "wait_s": 0.2, "settles_s": 0.2}
    asked = {"prompt": "Write it.", "grade": "envs.programs.robocodegen.results:grade"}
    if kind == "spider":
        reference = {"databases": [str(_with_a_table(folder))], "query": "SELECT a FROM t", "begins": ""}
        return {**asked, "grade": "envs.programs.spider.execution:grade", "reference": reference}
    if kind.startswith("robot"):
        more = {"tries": 2, "recursion": True} if kind == "robot turns" else {}
        return {**asked, **more, "reference": robot_task()}
    if kind == "ds1000":
        reference = {"code_context": DOUBLES, "library": "Numpy", "environment": str(_with_numpy(folder))}
        return {**asked, "grade": "envs.programs.ds1000.program:grade", "reference": reference}
    language = LANGUAGES[kind]
    reference = {"language": kind, "prompt": language.prompt, "tests": language.tests, "stops": list(language.stops)}
    return {**asked, "grade": "envs.programs.multipl_e.program:grade", "reference": reference}


def robot_task(check: str = "allclose", expected: Any = None) -> dict[str, Any]:
    """What a robot's function is graded by: twice a square, unless told otherwise."""
    test = {"args": [{"ndarray": [[1, 2], [3, 4]]}], "expected": expected or {"ndarray": [[2, 4], [6, 8]]}}
    return {**ROBOT, "check": check, "tests": [test]}


def lacks(kind: str, backend: str) -> str:
    """What of this kind is missing here; empty where it can be played."""
    if kind == "web":
        try:
            executable()
        except NoChromium as error:
            return str(error)
    if kind not in LANGUAGES:
        return ""
    programs = {name: of for name, of in TOOLCHAINS[kind].programs.items() if not name.startswith("/")}
    if backend == "docker":
        return "" if docker_image.existing(IMAGE) else f"no image {IMAGE}"
    absent = missing_programs(Sandboxed(), programs)
    return f"apt-get install -y {' '.join(sorted(set(absent.values())))}" if absent else ""


@contextlib.contextmanager
def small_site() -> Iterator[str]:
    """Address of a site for the browser, which is ended with it."""
    site = SmallSite()
    try:
        yield site.url
    finally:
        close_shared()
        site.close()


def with_numbers(reply: str, shown: str) -> str:
    """An action with the number of what it is done to, where it was shown."""
    for mark, role in (("<field>", "textbox"), ("<link>", "link")):
        if mark in reply:
            found = re.search(rf"\[(\d+)\] {role}", shown)
            reply = reply.replace(mark, found[1] if found else "1")
    return reply


def _with_a_table(folder: Path) -> Path:
    """A database with one number in it."""
    file = folder / "one_number.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript("DROP TABLE IF EXISTS t; CREATE TABLE t (a INT); INSERT INTO t VALUES (4711);")
    return file


def _with_numpy(folder: Path) -> Path:
    """An environment of DS-1000 that says it has numpy, for an item that needs nothing of it."""
    there = folder / "environment/numpy-1.21.6.dist-info"
    there.mkdir(parents=True, exist_ok=True)
    (there / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.21.6\n")
    return folder / "environment"
