"""The command ``lemur``: ``lemur pretrain ...`` runs the script that a checkout has as ``jobs/pretrain.py``.

An installed wheel has the same scripts in ``lemur_ray/commands``. Messages name commands as a checkout has them;
``as_typed`` turns them into what the user of this process can type. Imports nothing heavy."""

import difflib
import os
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from lemur_ray import __version__

COMMANDS = {
    "corpus": ("build_corpus", "make a corpus: clean, deduplicate, tokenise and pack code and text"),
    "inspect-corpus": ("inspect_corpus", "documents of the rows of a corpus, their removal, its page and its space"),
    "pretrain": ("pretrain", "train a model on a corpus"),
    "instruct": ("instruct", "tune a model on conversations"),
    "instruct-table": ("instruct_table", "count and clean the instruction sets of Table 1"),
    "improve": ("improve", "improve a chat model by play, in rounds"),
    "serve": ("serve", "serve a chat model behind the OpenAI protocol"),
    "eval": ("agent_eval", "play a benchmark with a model, an endpoint or a recording"),
    "view": ("view", "serve the report of evaluations on a port, while they run"),
    "report": ("report", "write the report page of runs and evaluations"),
    "convert": ("convert", "convert a model to or from the Hugging Face format"),
    "fetch": ("fetch_data", "fetch the data sets of benchmarks and of instruction tuning"),
    "docs": ("docs", "serve the documentation: quickstart, guides, reference, decisions"),
    "doctor": ("doctor", "check what this machine has and lacks"),
    "demo": ("demo", "run every stage once on this machine, in about 20 minutes"),
    "plan": ("plan_pod", "compile a training step for devices that are not here: memory, transfers, time"),
    "plan-serving": ("plan_serving", "compile the steps of the engine for devices that are not here"),
    "mixture": ("mixture_study", "compare mixtures of code and text in small runs"),
    "export-sft": ("export_sft", "turn solved episodes into conversations for tuning"),
    "fidelity": ("fidelity", "replay recorded runs and compare every verdict"),
    "index-wikipedia": ("index_wikipedia", "index a dump of Wikipedia for MINT's search tool"),
}
"""Name -> (script, one line of help), in the order of the help text."""
STARTED_BY = "LEMUR_STARTED_BY"
"""Environment variable: "lemur" in a process that the command started, and in the processes that these start."""
_PACKAGE = Path(__file__).resolve().parents[1]
_NAMES = {script: name for name, (script, _) in COMMANDS.items()}
_SCRIPT = re.compile(r"(?:python )?\bjobs/([a-z_]+)\.py")
_EXTRA = re.compile(r"'lemur-ray(\[[a-z0-9,-]+\])'")
_LOCK = re.compile(r"-r \S*requirements\.lock")


def scripts_folder() -> Path:
    """Folder of the scripts: ``jobs`` of a checkout, ``lemur_ray/commands`` of an installed wheel."""
    checkout = _PACKAGE.parent / "jobs"
    return checkout if (checkout / "_path.py").is_file() else _PACKAGE / "commands"


def images_folder() -> Path:
    """Folder of the images' package lists: ``cluster/images`` of a checkout, ``lemur_ray/images`` of a wheel."""
    return _PACKAGE.parent / "cluster" / "images" if is_checkout() else _PACKAGE / "images"


def is_checkout() -> bool:
    """Whether this code runs from a checkout of the repository."""
    return scripts_folder().name == "jobs"


def as_typed(text: str) -> str:
    """Rewrite the commands in a message as the user of this process can type them.
    ``python jobs/pretrain.py`` becomes ``lemur pretrain`` in a process that ``lemur`` started, or without a checkout.
    In a checkout ``'lemur-ray[EXTRA]'`` becomes its path; in a wheel ``-r requirements.lock`` becomes the release."""
    if os.environ.get(STARTED_BY) == "lemur" or not is_checkout():
        text = _SCRIPT.sub(lambda match: f"lemur {_NAMES[match[1]]}" if match[1] in _NAMES else match[0], text)
    if is_checkout():
        return _EXTRA.sub(lambda match: f"'{_PACKAGE.parent}{match[1]}'", text)
    return _LOCK.sub(f"lemur-ray=={__version__}", text)


def program(script: str) -> str:
    """Name of a script in usage lines: ``lemur pretrain`` for ``pretrain`` or ``pretrain.py`` in a process that
    ``lemur`` started, else ``script`` unchanged."""
    name = _NAMES.get(script.removesuffix(".py"))
    return f"lemur {name}" if name and os.environ.get(STARTED_BY) == "lemur" else script


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of ``lemur``: run the script of the command that the first word names in this process, whose
    ``sys.argv`` and ``sys.path`` change. Raises SystemExit for --help, --version and unknown commands."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        raise SystemExit(0 if words else 2)
    if words[0] == "--version":
        print(f"lemur-ray {__version__}")
        raise SystemExit(0)
    name, *rest = words
    script = COMMANDS.get(name, (name.removesuffix(".py").replace("-", "_"), ""))[0]
    if script not in _NAMES:
        nearest = difflib.get_close_matches(name, COMMANDS, 1, 0.4)
        hint = f"did you mean lemur {nearest[0]}?" if nearest else "lemur --help lists all"
        print(f"lemur: there is no command {name!r}: {hint}", file=sys.stderr)
        raise SystemExit(2)
    os.environ[STARTED_BY] = "lemur"
    folder = scripts_folder()
    sys.argv = [f"lemur {_NAMES[script]}", *rest]
    sys.path.insert(0, str(folder))  # as if Python had started the script
    runpy.run_path(str(folder / f"{script}.py"), run_name="__main__")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        ["usage: lemur COMMAND [FLAGS]", "", *lines, "", "lemur COMMAND --help lists the flags of a command.",
         "With a running Ray cluster: ray job submit -- lemur COMMAND [FLAGS]"]
    )  # fmt: skip
