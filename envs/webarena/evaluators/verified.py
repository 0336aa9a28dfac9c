"""WebArena-Verified as a second scorer: judges an episode's structured answer and its requests to the sites.

Its scorer is the published package, run by a Python of its own that has it (docs/guides/webarena.md), since its
dependencies are many and pinned. Its tasks are WebArena's, most of them in other words, and want an answer in JSON, so
an episode for both scorers is played in its words. The first scorer gets the answer's items as text."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

VERSION = "1.2.3"
"""Version of the package whose verdicts are reported."""
LIMIT_S = 120.0
_PROGRAM = Path(__file__).with_name("verified_program.py")
ANSWER_FORM = (
    "The answer is JSON on one line, an object of four keys. task_type: RETRIEVE if something is asked for, MUTATE if "
    "something is changed, NAVIGATE if a page is opened. status: SUCCESS, or ACTION_NOT_ALLOWED_ERROR, "
    "PERMISSION_DENIED_ERROR, NOT_FOUND_ERROR, DATA_VALIDATION_ERROR, UNKNOWN_ERROR. retrieved_data: the list of items "
    "asked for, or null. error_details: why it failed, or null."
)
"""Last lines of each task that both scorers judge."""


@dataclass(frozen=True)
class Verdict:
    """A score of 0 or 1, and its reason: ``success``, or the package's messages."""

    score: float | None
    """None: there is no verdict."""
    reason: str


def _run(python: str, mode: str, asked: Any = None) -> Any:
    """Run the program in ``python`` and return its last line as JSON. Raises RuntimeError, TimeoutExpired, OSError."""
    env = {"PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(Path(python).expanduser().absolute()), "-I", str(_PROGRAM), mode]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, env=env, timeout=LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"webarena-verified in {python}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


@cache
def published_tasks(python: str) -> Mapping[int, Mapping[str, Any]]:
    """The package's tasks by id. Raises ValueError if ``python`` lacks the package or has another version of it."""
    how = f"make an environment with it: pip install webarena-verified=={VERSION}"
    try:
        read = _run(python, "tasks")
    except (RuntimeError, OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"--verified {python}: {error}; {how}") from error
    if read["version"] != VERSION:
        raise ValueError(f"--verified {python}: webarena-verified {read['version']}, expected {VERSION}; {how}")
    return {row["task_id"]: row for row in read["tasks"]}


def reworded_record(record: Mapping[str, Any], task: Mapping[str, Any], tab_separator: str) -> dict[str, Any]:
    """WebArena's record with the words and start pages of WebArena-Verified's task, joined by ``tab_separator``."""
    intent = f"{task['intent']}\n{ANSWER_FORM}"
    return {**record, "intent": intent, "start_url": tab_separator.join(task["start_urls"])}


def plain_answer(answer: str) -> str:
    """The text that WebArena's own scorer gets: the items of an answer in JSON, N/A for one that reports a failure, and
    any other answer unchanged."""
    try:
        read = json.loads(answer)
        if not isinstance(read, dict) or "status" not in read:
            return answer
        if str(read["status"]).upper() != "SUCCESS":
            return "N/A"
        return ", ".join(_texts(read.get("retrieved_data")))
    except (ValueError, RecursionError):
        return answer


def _texts(items: Any) -> Iterable[str]:
    """The values in an answer's data, in their order, as texts."""
    if isinstance(items, dict | list):
        for one in items.values() if isinstance(items, dict) else items:
            yield from _texts(one)
    elif items is not None:
        yield items if isinstance(items, str) else json.dumps(items)


class SecondScorer:
    """Scores one episode with the package webarena-verified, which the interpreter ``python`` has. ``task``: the
    package's task. ``folder``: where the log of requests is kept; None: a temporary folder until ``close``."""

    def __init__(self, python: str, task: Mapping[str, Any], folder: Path | None = None) -> None:
        self._python, self._task = python, task
        self._scratch = None if folder else tempfile.TemporaryDirectory(prefix="lemur-requests-")
        self.requests = (folder or Path(self._scratch.name if self._scratch else "")) / "network.har"
        """File for the network log (HAR), with the contents of responses."""

    def score(self, urls: Mapping[str, str], answer: str, ended_at: datetime) -> Verdict:
        """Score an answer and the logged requests up to ``ended_at``; later ones are another scorer's. ``urls``: of the
        sites, by placeholder. Without a readable log, or if the package does not answer, there is no verdict."""
        try:
            logged = json.loads(self.requests.read_text(encoding="utf-8"))["log"]["entries"]
            entries = [one for one in logged if datetime.fromisoformat(one["startedDateTime"]) <= ended_at]
            asked = {"task": self._task, "urls": dict(urls), "answer": answer, "entries": entries}
            (row,) = _run(self._python, "score", [asked])
            return Verdict(float(row["score"]), ": ".join(filter(None, (row["status"], row["why"]))))
        except subprocess.TimeoutExpired:  # over an answer made to take long
            return Verdict(0.0, f"nothing within {LIMIT_S:g} s")
        except (RuntimeError, OSError, ValueError, KeyError, IndexError) as error:
            return Verdict(None, f"no verdict: {error!r}"[:300])

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._scratch is not None:
            self._scratch.cleanup()
