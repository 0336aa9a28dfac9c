"""Compile and run commands for each language, in ``toolchains.toml``: a file name and commands, which must exit with 0.

A program prints a random word at the end of its tests, since exit code 0 before that is no success."""

from dataclasses import dataclass, field

from lemur_ray.host.json_files import toml_beside


@dataclass(frozen=True)
class Toolchain:
    """How programs of one language are compiled and run. ``file``: name under which a program is stored; ``steps``:
    commands in its folder, in order; the last one runs the program. ``says``: statement of the language that prints
    two texts (``%s``) as one word."""

    file: str
    steps: tuple[tuple[str, ...], ...]
    programs: dict[str, str]
    """Program that the steps need, or absolute path of a file -> its Debian package."""
    says: str
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
TOOLCHAINS = {language: Toolchain(**fields) for language, fields in toml_beside(__file__).items()}
DEFAULT = ("cpp", "java", "php", "ts", "cs", "sh")
"""Languages whose mean is the reported score."""
