"""Installs the libraries of DS-1000's programs: ``python -m envs.programs.ds1000.make_environment [FOLDER]``.

``--without tensorflow,pytorch`` leaves out the large ones (7 GB with both, 1 GB without). Uses pip's configured
indexes; one with CPU builds of torch among them (``PIP_EXTRA_INDEX_URL``) saves 2.5 GB. Default FOLDER:
LEMUR_HOME/environments/ds1000."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from envs.programs.ds1000.environment import folder_of, pinned, plain_version, requirements_file, versions


def install(folder: Path, without: Sequence[str]) -> Path:
    """Install all pinned packages into ``folder``, except groups ``without``, and return it. Raises RuntimeError with
    pip's last lines; nothing is installed then."""
    wanted = [f"{name}=={version}" for name, version, group in pinned() if group not in without]
    half = folder.with_name(f"{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--target", str(half), *wanted]
    command += ["-c", str(requirements_file().with_name("constraints.txt"))]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        shutil.rmtree(half, ignore_errors=True)
        output = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise RuntimeError(f"pip installs no {', '.join(wanted)}: {output or done.returncode}")
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """Install the packages as the command line says, unless they are there, and print their folder. Returns exit status
    0, or 1 with the error on stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", default="", help="default: LEMUR_HOME/environments/ds1000")
    parser.add_argument("--without", default="", help=f"some of {', '.join(groups())}, parted by commas")
    asked = parser.parse_args(argv)
    without = [one for one in asked.without.split(",") if one]
    if unknown := sorted(set(without) - set(groups())):
        parser.error(f"--without {', '.join(unknown)}: expected some of {', '.join(groups())}")
    try:
        folder = folder_of(asked.folder)
        if not _complete(asked.folder, without):
            folder = install(folder, without)
        print(folder)
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def groups() -> list[str]:
    """Names of the groups of packages that can be left out."""
    return sorted({group for _, _, group in pinned() if group})


def _complete(named: str, without: Sequence[str]) -> bool:
    there = versions(named)
    wanted = {name: version for name, version, group in pinned() if group not in without}
    return all(plain_version(there.get(name, "")) == version for name, version in wanted.items())


if __name__ == "__main__":
    sys.exit(main())
