"""Compile and run commands for each language: a file name and commands, each of which must exit with 0.

A program prints a random word at the end of its tests, since exit code 0 before that is no success."""

from dataclasses import dataclass, field

from envs.programs.multipl_e import typescript


@dataclass(frozen=True)
class Toolchain:
    """How to compile and run a program. ``steps``: commands in the folder of ``file``, in order. ``says``:
    statement that prints two texts (``%s``) as one word."""

    file: str
    steps: tuple[tuple[str, ...], ...]
    programs: dict[str, str]
    """Program that the steps need, or absolute path of a file -> its Debian package."""
    says: str
    within: int = 0
    """Number of the tests' closing braces that follow the statement ``says``."""
    etc: tuple[str, ...] = ()
    """Files and folders of /etc that the commands read."""
    env: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    """Text in the error output of a program that failed a check but still exits with 0."""
    compile_s: float = 30.0
    """Seconds for each step but the last. Together they stay within an environment's own time (--step-s)."""
    run_s: float = 15.0
    rewrite: tuple[str, ...] = ()
    """Command that changes what the compiler made, before the last step."""
    memory_bytes: int = 2**30

    @property
    def is_compiled(self) -> bool:
        """Whether a step before the last makes another file of the program, which can then be deleted."""
        return len(self.steps) > 1


TSC = "tsc"
"""The compiler's command: the pinned one if it is mounted, else the sandbox's."""
JAVATUPLES = "/usr/share/java/javatuples.jar"
"""The file of Debian's package."""
JARS = "/opt/java"
"""Mount point of the folder named by --javatuples."""
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
        says='global::System.Console.WriteLine("%s" + "%s");',
        within=2,
        etc=("mono",),
        # Mono goes on after a failed Debug.Assert of the solution's own; only its listener tells of it.
        env={"MONO_TRACE_LISTENER": "Console.Error"},
        failure="System.Diagnostics.DefaultTraceListener.Fail",
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
        "program.sh",
        (("/bin/bash", "-c", 'eval "$(cat)"'),),
        {"bash": "bash", "bc": "bc"},
        "builtin printf '%%s' %s %s",
    ),
    "ts": Toolchain(
        "program.ts",
        ((TSC, "--target", "es5", "--lib", "es2015,dom", "program.ts"), ("node", "program.js")),
        {TSC: "node-typescript", "sed": "sed", **_NODE},
        _CONSOLE,
        # Not by the compiler, which would refuse functions in blocks. Functions of strict code have no caller.
        rewrite=("sed", "-i", '1i "use strict";', "program.js"),
        env={"PATH": f"{typescript.PROGRAMS}:/usr/local/bin:/usr/bin:/bin"},
        memory_bytes=2 * 2**30,
    ),
}
DEFAULT = ("cpp", "java", "php", "ts", "cs", "sh")
"""Languages whose mean is the reported score."""
