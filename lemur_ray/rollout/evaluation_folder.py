"""The folder of an evaluation: made, proven writable, and told what the recipe hashes in its ledger stand for.

One in a bucket is a folder of this host while it is played in, or read. Knows nothing of what is in a ledger.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.host.home import resolve_out
from lemur_ray.rollout.evaluation_config import Settings
from lemur_ray.rollout.ledger import merge_ledger
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.folder_mirror import mirror_growing_files
from lemur_ray.storage.synced_folder import sync_with_bucket

LEDGER, SETTINGS = "episodes.jsonl", "evaluations.json"
"""Of these everything else in the folder is made."""
DEPARTURES = "departures"
"""Beside the settings of a recipe hash, which they do not change."""
PLUGIN_METADATA = "told"
"""Likewise what a benchmark that is none of ours says of the runs (``lemur_ray.benchmarks.plugin_metadata``)."""


class EvaluationError(Exception):
    """The evaluation cannot be run as it was asked for; the message says what to do."""


def default_out(benchmark: str, label: str) -> str:
    """Where an evaluation is written under LEMUR_HOME."""
    return f"episodes/{re.sub(r'[^A-Za-z0-9._-]+', '-', benchmark)}-{re.sub(r'[^A-Za-z0-9.@_-]+', '-', label)}"


def with_local_folder(out: str, play: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """What ``play`` finds, given the folder to play in: ``out``, or for one in a bucket a folder of this host that is
    brought from there first and kept there. Raises NotKept, LedgerError."""
    if not is_bucket(out):
        return play(out)
    url = resolve_out(out, "")
    with sync_with_bucket(url, LEDGER, (SETTINGS,), merge_ledger) as folder:
        print(f"{url} is played in {folder} and stored as episodes end", file=sys.stderr, flush=True)
        found = play(str(folder))
    return {**found, "out": url}


def evaluation_folders(named: Sequence[str]) -> list[Path]:
    """The folders on this host of evaluations that a command line names: a suite's are those of its benchmarks, and
    those in buckets are copies. Raises OSError, ImportError, ValueError, EvaluationError where a bucket has none."""
    found: list[Path] = []
    for name in named:
        place = resolve_out(name, "")
        if is_bucket(place):
            ledgers = mirror_growing_files(place, LEDGER, (SETTINGS,))
            if not ledgers:
                raise EvaluationError(f"{place} has no {LEDGER}: give the folder that jobs/agent_eval.py wrote to")
            found += [ledger.parent for ledger in ledgers]
        else:
            beneath = [] if (Path(place) / LEDGER).is_file() else sorted(Path(place).glob(f"*/{LEDGER}"))
            found += [ledger.parent for ledger in beneath] or [Path(place)]
    return found


def save_settings(
    out: Path,
    settings: Settings,
    config: Mapping[str, Any],
    lifted: Callable[[Mapping[str, Any]], Any],
    departures: Sequence[str] = (),
    told: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Keep in ``evaluations.json`` what a recipe hash stands for: replays and exports build the tasks from it again.

    ``config``: the configuration as it may be written down. ``lifted``: the same form of one of an earlier version.
    ``departures``: what was not as upstream has it where episodes are played now; added to what was said before.
    ``told``: what the benchmark says of this run; it takes the place of what it said before.
    """
    known = load_settings(out)
    same = known.setdefault(settings.hash, {"settings": dict(settings.values), "configs": []})
    new = [said for said in departures if said not in same.get(DEPARTURES, ())]
    if new:
        same[DEPARTURES] = [*same.get(DEPARTURES, ()), *new]
    before = json.dumps(same.get(PLUGIN_METADATA))
    for benchmark, policies in (told or {}).items():
        same.setdefault(PLUGIN_METADATA, {}).setdefault(benchmark, {}).update(policies)
    changed = json.dumps(same.get(PLUGIN_METADATA)) != before
    is_new = config not in [lifted(stored) for stored in same["configs"]]
    if is_new:
        same["configs"].append(config)
    if is_new or new or changed:
        replace_file(out / SETTINGS, json.dumps(known, indent=1) + "\n")


def load_settings(out: Path) -> dict[str, dict[str, Any]]:
    """Recipe hash -> settings of the evaluations in a folder, and every configuration that had them (with other limits
    for example). Raises EvaluationError."""
    path = out / SETTINGS
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise EvaluationError(f"{path} is not JSON ({error}); remove it and run the evaluation again") from error


def replace_file(path: Path, text: str) -> None:
    """Write a whole file, readable as every other, or none of it: nothing of what could not be written stays."""
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
    """The output folder, made and proven writable. Raises EvaluationError."""
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
