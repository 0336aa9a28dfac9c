"""``python -m envs.webarena.conformance DIR``: compares every recorded row in DIR, and prints a JSON line per gate.

DIR: files as in data/webarena/sample (string_match_scores.json, url_match_scores.json, program_html_scores.json,
id_action_parsing.json, early_stop.json, observations_chromium156.json, pages/), with any number of rows but none: a
gate (a group of comparisons) without rows is not met. Status 1: a gate is not met, or an input cannot be read."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.webarena.conformance.gate import Gate
from envs.webarena.conformance.rules import answer_gates, early_stop_gate, parser_gates, task_gates
from envs.webarena.tasks import FILE, read_records


def gates(folder: Path, tasks: Path, chromium: str, *, browser: bool) -> Iterator[Gate]:
    """Compare the recorded results in ``folder`` with this project's and yield a ``Gate`` for each group; with
    ``browser`` also for groups that need ``chromium``, which is started. ``tasks``: WebArena's task file. Raises
    ValueError or OSError for unreadable input, NoChromium if Chromium is missing or too old."""
    records = read_records(tasks)
    yield from answer_gates(folder, {one["task_id"]: one for one in records})
    yield from parser_gates(folder)
    yield from early_stop_gate(folder)
    yield from task_gates(records)
    if browser:
        from envs.webarena.browser.host import BrowserHost
        from envs.webarena.conformance.in_browser import browser_gates

        host = BrowserHost(chromium)
        try:
            yield from browser_gates(folder, host)
        finally:
            host.close()


def task_file(folder: Path) -> Path:
    """Path of WebArena's tasks in the folder, its parent or LEMUR_DATA. FileNotFoundError if they are in none."""
    name = Path(FILE.path).name
    data = os.environ.get("LEMUR_DATA", "")
    places = [folder / name, folder.parent / name, *([Path(data) / FILE.path] if data else [])]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"{name}: in none of {', '.join(map(str, places))}; say where it lies with --tasks FILE")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m envs.webarena.conformance", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--tasks", type=Path, help="test.raw.json, or .gz; by default in, beside, or beneath LEMUR_DATA"
    )
    parser.add_argument("--chromium-executable", default="")
    parser.add_argument("--no-browser", action="store_true", help="only the gates that need none")
    given = parser.parse_args(argv)
    results: list[Gate] = []
    try:
        if not given.folder.is_dir():
            raise FileNotFoundError(f"{given.folder}: no folder")
        tasks = given.tasks or task_file(given.folder)
        for one in gates(given.folder, tasks, given.chromium_executable, browser=not given.no_browser):
            results.append(one)
            print(one.line(), flush=True)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0 if results and all(one.met for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
