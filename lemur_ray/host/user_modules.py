"""Modules of a user in the folder where a command was started: benchmarks, environments, policies."""

import importlib.util
import os
import sys
from pathlib import Path


def look_here_for(module: str) -> None:
    """If only the working directory has ``module``, append that directory to the import path of this process and of
    those that it starts. An installed ``lemur`` would not look there, unlike ``python -m``."""
    top, here = module.partition(".")[0], Path.cwd()
    try:
        is_known = importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):  # a name that is none, or a module made by hand
        return
    if is_known or not ((here / f"{top}.py").is_file() or (here / top).is_dir()):
        return
    sys.path.append(str(here))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(here)]))
