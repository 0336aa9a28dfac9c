"""The page of a running evaluation, written again while it runs.

A separate process of the lowest priority writes it, one at a time and for at most a tenth of the time, because a thread
would slow the evaluation down. A failure is reported once and stops nothing. Knows nothing of the page's content."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lemur_ray.agents.trajectory import Task
from lemur_ray.host.ports import unusable
from lemur_ray.report.inputs import ReportError, read_settings
from lemur_ray.report.pages.whole_page import render_run
from lemur_ray.rollout.evaluation_folder import PLUGIN_METADATA, RUNNING, EvaluationError, remove_turns

EVERY_S = 30.0
"""Minimum seconds between two pages."""
VIEW, VIEW_PORT = "--view", 8009
"""Flag of ``live_view``, and its default port."""
SERVER_END_S = 10.0
"""Seconds after which a server that does not end by itself is killed."""
PAGES = "lemur-view-"
"""Beginning of the name of a server's temporary folder, before the id of its process."""
SHARE = 0.1
"""Maximum share of the time spent on writing pages."""


@contextlib.contextmanager
def live_page(
    out: Path, tasks: Sequence[Task], policy: str, recipe: str, epochs: int, every_s: float = EVERY_S
) -> Iterator[tuple[str, str, str]]:
    """Context manager: during the block the pages of ``out`` are written every ``every_s`` seconds if its ledger has
    grown, each time by a new process, which is killed if it still runs at the end. policy, recipe: as in the ledger
    (``recipe``: hash of the settings). Yields (benchmark, ``policy``, ``recipe``) for ``render_run``, for the last page
    after the block; the benchmark is that of ``tasks``, empty without tasks."""
    evaluation = (tasks[0].benchmark if tasks else "", policy, recipe)
    over = threading.Event()
    thread = threading.Thread(target=_rewrite, args=(out, evaluation, len(tasks) * epochs, every_s, over), daemon=True)
    thread.start()
    try:
        yield evaluation
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def live_view(out: Path, port: int | None, evaluations: Sequence[Path]) -> Iterator[None]:
    """Context manager: during the block a process of low priority serves the report of ``out`` on ``port`` (0: any that
    is free; None: nothing is served) and prints its address. ``evaluations``: folders whose running episodes write
    their turns from the start. Raises EvaluationError if the port is taken."""
    if port is None:
        yield
        return
    if reason := unusable("127.0.0.1", port):
        raise EvaluationError(f"{VIEW} {port}: {reason}; choose another port")
    command = [sys.executable, "-m", "lemur_ray.report.pages.live_server", str(out), str(port)]
    for folder in evaluations:
        (folder / RUNNING).mkdir(exist_ok=True)
    with subprocess.Popen(command, env=_environment(), stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield
        finally:
            try:
                process.communicate(timeout=SERVER_END_S)  # ends its standard input
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                remove_pages(process.pid)
            for folder in evaluations:
                remove_turns(folder / RUNNING)


def remove_pages(pid: int) -> None:
    """Remove the temporary folder of a server that was killed. Raises nothing."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PAGES}{pid}-*"):
        shutil.rmtree(folder, ignore_errors=True)


def take_view(argv: Sequence[str]) -> tuple[list[str], int | None]:
    """Split ``--view [PORT]`` from a command line: (the other words, the port), 8009 if none is given, None without the
    flag. Raises ValueError if what follows is no port."""
    words = list(argv)
    at = next((number for number, word in enumerate(words) if word.partition("=")[0] == VIEW), None)
    if at is None:
        return words, None
    _, equals, value = words.pop(at).partition("=")
    if not equals and words[at : at + 1] and words[at].isdigit():
        value = words.pop(at)
    if value and not (value.isdigit() and int(value) < 2**16):
        raise ValueError(f"{VIEW} {value}: expected a port, 0 for any free one")
    return words, int(value or VIEW_PORT)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _rewrite(out: Path, evaluation: tuple[str, str, str], expected: int, every_s: float, over: threading.Event) -> None:
    pause, written_size, complained = every_s, -1, False
    while not over.wait(pause):
        size = _size(out / "episodes.jsonl")
        if size == written_size:
            continue
        began = time.monotonic()
        command = [sys.executable, "-m", __name__, str(out), *evaluation, str(expected)]
        with subprocess.Popen(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the run, which ends this one
        ) as process:
            errors = _wait(process, over)
        if over.is_set():
            return
        if process.returncode and not complained:
            complained = True
            print(
                f"the page of this run cannot be written while it goes on: {errors[-500:]}", file=sys.stderr, flush=True
            )
        written_size = size if not process.returncode else written_size
        pause = max(every_s, (time.monotonic() - began) * (1 / SHARE - 1))


def _wait(process: subprocess.Popen[str], over: threading.Event) -> str:
    """The standard error of the process, which is killed if the run ends first."""
    while True:
        try:
            return process.communicate(timeout=0.2)[1].strip()
        except subprocess.TimeoutExpired:
            if over.is_set():
                process.kill()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def main() -> int:
    """Write the page of the run that ``sys.argv`` names (OUT BENCHMARK POLICY RECIPE EXPECTED, the number of its
    episodes) once; nothing if no episode has ended. Returns 0."""
    os.nice(19)
    out, benchmark, policy, recipe, expected = sys.argv[1:]
    try:
        notes = read_settings(Path(out)).get(recipe, {})
        notes = {name: value for name, value in notes.items() if name != PLUGIN_METADATA}
        render_run(Path(out), notes, (benchmark, policy, recipe), expected=int(expected))
    except ReportError:
        pass  # no episode has ended yet
    return 0


if __name__ == "__main__":
    sys.exit(main())
