"""How a program of each language is compiled and run: a file name and commands, each of which must end with 0.

A program whose tests came to their end says a word that was drawn for it: to end with 0 before them is no success.
Knows no benchmark and runs nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from envs.programs.multipl_e import typescript


@dataclass(frozen=True)
class Toolchain:
    """``steps``: commands in the folder of ``file``, in a row. ``programs``: what they need -> Debian package.

    ``says``: the statement that prints two texts as one word.
    """

    file: str
    steps: tuple[tuple[str, ...], ...]
    programs: dict[str, str]
    """Names of programs, or whole paths of files."""
    says: str
    within: int = 0
    """How many braces that close the tests come behind that statement."""
    etc: tuple[str, ...] = ()
    """Of /etc, what they read."""
    env: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    """What stands in the error output of a program whose check has failed, where it ends with 0 all the same."""
    check: tuple[str, str] = ("", "")
    """Where a program can turn off what tests check by: its name, and a ``%s`` that throws, put behind them."""
    compile_s: float = 30.0
    """Of each step but the last; together they stay within an environment's own time (--step-s)."""
    run_s: float = 15.0
    memory_bytes: int = 2**30

    def with_word(self, tests: str, word: str) -> str:
        """Tests that say the word last. It stands in the program in halves, so none says it by showing itself.

        Raises ValueError where the tests do not end as they should.
        """
        place = len(tests.rstrip())
        for _ in range(self.within):
            if (place := tests.rfind("}", 0, place)) < 0:
                raise ValueError(f"tests of a {self.file} without {self.within} closing braces: {tests[-100:]!r}")
        half = len(word) // 2
        said = self.says % (word[:half], word[half:])
        return f"{tests[:place]}\n{said}\n{tests[place:]}"

    def with_own_check(self, tests: str) -> str:
        """Tests that check by a name that no solution knows, where one could turn off what they check by."""
        name, thrower = self.check
        if not name:
            return tests
        own = f"Check{secrets.token_hex(8)}"
        return f"{tests.replace(name, f'{own}.That')}\n{thrower % own}\n"


TSC = "tsc"
"""That of the pinned version where it is shown, else the sandbox's own."""
JAVATUPLES = "/usr/share/java/javatuples.jar"
"""Where Debian puts it."""
JARS = "/opt/java"
"""Where the folder named by --javatuples is."""
_JAVA_MEMORY = 2 * 2**30
# How many threads and how much heap a JVM takes by itself goes by the machine; verdicts should not.
_JVM = ("-XX:ActiveProcessorCount=2", "-XX:+UseSerialGC", f"-Xmx{_JAVA_MEMORY // 2**21}m", "-XX:-UsePerfData")
_JARS = f"{JARS}/*:{JAVATUPLES}"
_NODE = {"node": "nodejs"}
_CONSOLE = 'console.log("%s" + "%s");'
TOOLCHAINS: dict[str, Toolchain] = {
    "cpp": Toolchain(
        "program.cpp",
        (("g++", "program.cpp", "-o", "program", "-std=c++17"), ("./program",)),
        {"g++": "g++"},
        says='::puts("%s" "%s");',
        within=1,
    ),
    "cs": Toolchain(
        "program.cs",
        (("mcs", "-d:DEBUG", "-r:System.Numerics.dll", "program.cs", "-out:program.exe"), ("mono", "program.exe")),
        {"mcs": "mono-mcs", "mono": "mono-runtime"},
        says='System.Console.WriteLine("%s" + "%s");',
        within=2,
        etc=("mono",),
        # Mono goes on after a failed Debug.Assert; only its listener tells of it.
        env={"MONO_TRACE_LISTENER": "Console.Error"},
        failure="System.Diagnostics.DefaultTraceListener.Fail",
        check=(
            "Debug.Assert",
            'class %s { public static void That(bool b) { if (!b) throw new System.Exception("Assert"); } }',
        ),
        memory_bytes=2 * 2**30,
    ),
    "java": Toolchain(
        "Problem.java",
        (
            ("javac", *(f"-J{option}" for option in _JVM), "-encoding", "UTF8", "-cp", _JARS, "Problem.java"),
            ("java", *_JVM, "-ea", "-cp", f".:{_JARS}", "Problem"),
        ),
        {"javac": "default-jdk-headless", "java": "default-jdk-headless", JAVATUPLES: "libjavatuples-java"},
        says='System.out.println("%s" + "%s");',
        within=2,
        etc=("java-*-openjdk",),
        memory_bytes=_JAVA_MEMORY,
    ),
    "js": Toolchain("program.js", (("node", "program.js"),), _NODE, _CONSOLE, memory_bytes=2 * 2**30),
    "php": Toolchain("program.php", (("php", "program.php"),), {"php": "php-cli"}, 'echo "%s" . "%s";', etc=("php",)),
    "sh": Toolchain(
        "program.sh", (("/bin/bash", "program.sh"),), {"bash": "bash", "bc": "bc"}, "builtin printf '%%s' %s %s"
    ),
    "ts": Toolchain(
        "program.ts",
        ((TSC, "--target", "es5", "--lib", "es2015,dom", "program.ts"), ("node", "program.js")),
        {TSC: "node-typescript", **_NODE},
        _CONSOLE,
        env={"PATH": f"{typescript.PROGRAMS}:/usr/local/bin:/usr/bin:/bin"},
        memory_bytes=2 * 2**30,
    ),
}
DEFAULT = ("cpp", "java", "php", "ts", "cs", "sh")
"""Those whose mean is the reported score."""
