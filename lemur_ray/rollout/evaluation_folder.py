"""The folder of an evaluation: its creation, its local copy if it is in a bucket, and the settings of recipe hashes."""

import contextlib
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.benchmarks.discovery import MODULE_CODE
from lemur_ray.host.exit_codes import CausedError
from lemur_ray.host.home import resolve_out
from lemur_ray.host.user_modules import DIGEST_DIGITS
from lemur_ray.rollout.evaluation_config import Settings
from lemur_ray.rollout.ledger import merge_ledger
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.folder_mirror import mirror_growing_files
from lemur_ray.storage.synced_folder import sync_with_bucket

LEDGER, SETTINGS = "episodes.jsonl", "evaluations.json"
"""Names of the two source files; every other file in the folder is generated from them."""
RUNNING = ".running-turns"
"""Name of the folder of running episodes' turns, which exists only while somebody reads them."""
DEPARTURES = "departures"
"""Key in ``evaluations.json`` for departures from the original benchmark; not part of the recipe hash."""
PLUGIN_METADATA = "told"
"""Key in ``evaluations.json`` for metadata of installed benchmarks; not part of the recipe hash either."""


class EvaluationError(CausedError):
    """Raised if an evaluation cannot be run or read as configured; the message names the problem."""


def clear_turns(folder: Path) -> None:
    """Delete the files with the turns of running episodes (``*.jsonl``) in ``folder``. Raises nothing."""
    with contextlib.suppress(OSError):
        for path in folder.glob("*.jsonl"):
            path.unlink(missing_ok=True)


def remove_turns(folder: Path) -> None:
    """Delete the files with the turns of running episodes, and ``folder`` if it is empty then. Raises nothing."""
    clear_turns(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def default_out(benchmark: str, label: str) -> str:
    """Folder of an evaluation without ``--out``, relative to LEMUR_HOME: ``episodes/BENCHMARK-LABEL``, with ``-`` for
    characters that do not suit a file name. ``label``: name of the policy. Equal names give the same folder, so a
    repeated evaluation resumes there."""
    return f"episodes/{re.sub(r'[^A-Za-z0-9._-]+', '-', benchmark)}-{re.sub(r'[^A-Za-z0-9.@_-]+', '-', label)}"


def with_local_folder(out: str, play: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return ``play(out)``. If ``out`` is in a bucket, ``play`` gets a local copy, which is uploaded as episodes end,
    and the result's "out" is the bucket's URL. Raises SyncError, LedgerError, and what ``play`` raises."""
    if not is_bucket(out):
        return play(out)
    url = resolve_out(out, "")
    with sync_with_bucket(url, LEDGER, (SETTINGS,), merge_ledger) as folder:
        print(f"{url} is played in {folder} and stored as episodes end", file=sys.stderr, flush=True)
        result = play(str(folder))
    return {**result, "out": url}


def evaluation_folders(named: Sequence[str]) -> list[Path]:
    """Local folders of the evaluations that a command line names; folders in buckets are downloaded. A suite's folder
    is replaced by those of its benchmarks. Raises EvaluationError for a bucket folder without a ledger, and the errors
    of ``mirror_growing_files``."""
    folders: list[Path] = []
    for name in named:
        place = resolve_out(name, "")
        if is_bucket(place):
            ledgers = mirror_growing_files(place, LEDGER, (SETTINGS,))
            if not ledgers:
                raise EvaluationError(f"{place} has no {LEDGER}: give the folder that jobs/agent_eval.py wrote to")
            folders += [ledger.parent for ledger in ledgers]
        else:
            beneath = [] if (Path(place) / LEDGER).is_file() else sorted(Path(place).glob(f"*/{LEDGER}"))
            folders += [ledger.parent for ledger in beneath] or [Path(place)]
    return folders


def folders_to_follow(named: Sequence[str]) -> list[Path]:
    """Folders that a command line names: local ones as they are (also a suite's), even if they do not exist; those in
    buckets downloaded, as by ``evaluation_folders``. Raises EvaluationError if none is named or a bucket has none."""
    places = [resolve_out(name, "") for name in named]
    folders = [one for place in places for one in (evaluation_folders([place]) if is_bucket(place) else [Path(place)])]
    if not folders:
        raise EvaluationError("give a folder that jobs/agent_eval.py writes to")
    return folders


def save_settings(
    out: Path,
    settings: Settings,
    config: Mapping[str, Any],
    upgrade: Callable[[Mapping[str, Any]], Any],
    departures: Sequence[str] = (),
    plugin_metadata: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Store the settings of a recipe hash in ``evaluations.json``, from which replays and exports rebuild the tasks.
    ``config``: the configuration as JSON. ``upgrade``: converts a configuration of an earlier version to that form.
    ``departures``: differences from the original benchmark on this machine, added to those recorded before.
    ``plugin_metadata``: of an installed benchmark, by benchmark and policy; it replaces that stored before. Raises as
    ``load_settings``."""
    known = load_settings(out)
    same = known.setdefault(settings.hash, {"settings": dict(settings.values), "configs": []})
    if new := [departure for departure in departures if departure not in same.get(DEPARTURES, ())]:
        same[DEPARTURES] = [*same.get(DEPARTURES, ()), *new]
    before = json.dumps(same.get(PLUGIN_METADATA))
    for benchmark, policies in (plugin_metadata or {}).items():
        same.setdefault(PLUGIN_METADATA, {}).setdefault(benchmark, {}).update(policies)
    changed = json.dumps(same.get(PLUGIN_METADATA)) != before
    if is_new := config not in [upgrade(stored) for stored in same["configs"]]:
        same["configs"].append(config)
    if is_new or new or changed:
        replace_file(out / SETTINGS, json.dumps(known, indent=1) + "\n")


def load_settings(out: Path) -> dict[str, dict[str, Any]]:
    """Recipe hash -> entry of ``evaluations.json``: settings, and every configuration with them (which differ in
    limits, for example). Empty if there is no such file. Raises EvaluationError if it is not JSON."""
    path = out / SETTINGS
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise EvaluationError(f"{path} is not JSON ({error}); remove it and run the evaluation again") from error


def other_code(out: Path, settings: Settings) -> str:
    """Why tasks are played again whose episodes in the folder have settings that differ from these in the benchmark's
    code alone; empty if there are none, or some with these. Raises EvaluationError as ``load_settings``."""
    wanted = json.loads(json.dumps(dict(settings.values)))
    stored = [entry["settings"] for entry in load_settings(out).values()]
    others = [one for one in stored if {**one, MODULE_CODE: wanted.get(MODULE_CODE)} == wanted]
    if MODULE_CODE not in wanted or wanted in stored or not others:
        return ""
    if all(len(one.get(MODULE_CODE, "")) < DIGEST_DIGITS for one in others):
        return "an earlier release, whose digests of code depended on the version of Python, played the episodes"
    return "its code is not that of the earlier episodes"


def replace_file(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically (UTF-8, synced); an error leaves the old file as it was. Raises OSError if
    it cannot be written."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def prepare_out(folder: str) -> Path:
    """Create the local folder, with its parents, and check that it and its ledger are writable. Raises EvaluationError
    if not, or if ``folder`` is a URL."""
    if "://" in folder:
        raise EvaluationError(f"--out {folder}: this is written to local files; give a local folder")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        if (path / LEDGER).exists() and not os.access(path / LEDGER, os.W_OK):
            raise PermissionError(f"{LEDGER} there is read-only")
    except OSError as error:
        raise EvaluationError(f"--out {folder} is not writable ({error}); choose another folder") from error
    return path
