"""The pinned TypeScript: ``python -m envs.programs.multipl_e.typescript`` installs it by npm (23 MB).

Sandboxes of either backend mount LEMUR_HOME/environments/typescript, which is also copied to other hosts. Without it,
programs are compiled by the sandbox's own ``tsc``, 4.8 in Debian 12. Version and checksum are in
``cluster/images/multipl_e``."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lemur_ray.host.commands import images_folder
from lemur_ray.host.home import lemur_home
from lemur_ray.host.json_files import read_json

COMMAND = "python -m envs.programs.multipl_e.typescript"
INSIDE = "/opt/typescript"
"""Mount point of the folder in a sandbox."""
PROGRAMS = f"{INSIDE}/node_modules/.bin"
_PINNED = images_folder() / "multipl_e"
_FILES = ("package.json", "package-lock.json")


def pinned() -> str:
    """The pinned version of TypeScript, as text."""
    return str(read_json(_PINNED / "package.json")["dependencies"]["typescript"])


def installed() -> Path | None:
    """Folder of the compiler; None if it is missing or not of the pinned version."""
    folder = lemur_home() / "environments" / "typescript"
    about = folder / "node_modules/typescript/package.json"
    return folder if about.is_file() and read_json(about).get("version") == pinned() else None


def install(folder: Path) -> Path:
    """Install the compiler into the folder, completely or not at all. Raises RuntimeError with npm's last lines."""
    if shutil.which("npm") is None:
        raise RuntimeError("no npm on this machine: apt-get install -y npm")
    half = folder.with_name(f"{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    for name in _FILES:
        shutil.copy(_PINNED / name, half)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=half, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(half, ignore_errors=True)
        output = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise RuntimeError(f"npm installs no typescript {pinned()}: {output or done.returncode}")
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """Install the pinned compiler unless it is there, and print its folder. Returns exit status 0, or 1 with the error
    on stderr."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args(argv)
    try:
        print(installed() or install(lemur_home() / "environments" / "typescript"))
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
