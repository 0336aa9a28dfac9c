"""Turns of episodes that are still running: their files, their page, and ``eval --view``, in a real Chromium."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lemur_ray.agents.messages import ChatReply, ChatRequest, Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Outcome
from lemur_ray.host.ports import free_port
from lemur_ray.report.ledgers.stored_episodes import anchor_of
from lemur_ray.report.pages import running_page
from lemur_ray.report.pages.live_page import take_view
from lemur_ray.report.pages.live_server import live_server
from lemur_ray.report.pages.running_page import RunningEpisodes
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from lemur_ray.rollout.episode_record import EpisodeRecord, TurnFile, running_episodes
from lemur_ray.rollout.evaluation_folder import RUNNING
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.conftest import ROOT
from tests.report.report_samples import episode, write_ledger
from tests.rollout.toy import toy_task
from tests.serve.browser import chromium, found


class Policy:
    """Replies "right" after ``before`` has been called."""

    name = "nano-chat"

    def __init__(self, before: Callable[[], None]) -> None:
        self.before = before

    def reply(self, request: ChatRequest) -> ChatReply:
        self.before()
        return ChatReply("right")


def play(folder: Path, before: Callable[[], None], name: str = "a") -> Attempt:
    task, key = toy_task(length=3), EpisodeKey("toy", name, "nano-chat", "r")
    spec = EpisodeSpec(key, task, Sampling(), EpisodeLimits(), turns=str(folder))
    return run_episode(spec, Policy(before), clock=time.monotonic)


def test_turns_are_in_a_file_while_an_episode_runs_where_somebody_reads_them(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    folder = tmp_path / RUNNING

    def look() -> None:
        seen.extend([step.observation for step in one.trajectory.steps] for one in running_episodes(folder))

    assert play(folder, look).score == 1.0
    assert not seen
    assert not folder.exists()
    folder.mkdir()
    (folder / "torn.jsonl").write_text('{"key": ')
    assert play(folder, look).score == 1.0
    assert seen == [[], ["at 1"], ["at 1", "at 2"]]
    assert [path.name for path in folder.iterdir()] == ["torn.jsonl"], "the file of an ended episode is removed"


def test_an_episode_goes_on_without_a_disk_for_its_turns(tmp_path: Path) -> None:
    folder = tmp_path / RUNNING
    folder.mkdir()

    def replace_files() -> None:
        for path in folder.glob("*.jsonl"):
            if path.is_file():
                path.unlink()
                path.mkdir()

    assert play(folder, replace_files).score == 1.0


def test_an_episode_goes_on_where_the_folder_of_turns_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = os.stat

    def refused(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if RUNNING in str(path):
            raise PermissionError(errno.EACCES, "not readable", str(path))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", refused)
    assert play(tmp_path / RUNNING, int).score == 1.0


def test_a_full_disk_costs_an_episode_its_turns_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / RUNNING).mkdir()
    opened = Path.open

    def full(path: Path, *args: Any, **options: Any) -> Any:
        if path.parent == folder:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, *args, **options)

    monkeypatch.setattr(Path, "open", full)
    assert play(folder, int).score == 1.0
    assert not list(folder.iterdir())


def test_the_page_of_running_episodes_is_written_again_after_a_turn(tmp_path: Path) -> None:
    run, pages, states = tmp_path / "run", tmp_path / "pages", []
    run.mkdir(), pages.mkdir()
    running = RunningEpisodes([run], pages)
    running.refresh()

    def look() -> None:
        running.refresh()
        running.refresh()
        states.append(json.loads((pages / "running.json").read_text()))

    play(run / RUNNING, look)
    assert states == [{"version": number, "episodes": 1} for number in (2, 3, 4)]
    page = (pages / "running.html").read_text()
    assert f'id="{anchor_of(EpisodeKey("toy", "a", "nano-chat", "r"))}"' in page
    assert "at 2" in page
    assert "blame" not in page
    running.close()
    assert not list(run.iterdir())


def test_the_same_episode_of_two_runs_is_shown_twice_and_the_oldest_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_page, "MAX_SHOWN", 3)
    runs, pages = [tmp_path / name for name in "ab"], tmp_path / "pages"
    pages.mkdir()
    for run in runs:
        (run / RUNNING).mkdir(parents=True)
    running = RunningEpisodes(runs, pages)
    keys = [EpisodeKey("toy", name, "nano-chat", "r") for name in "zxy"]
    for number, (key, run) in enumerate(itertools.product(keys, runs)):
        TurnFile(EpisodeSpec(key, toy_task(), turns=str(run / RUNNING))).write(EpisodeRecord(EpisodeLimits()))
        (newest,) = [path for path in (run / RUNNING).iterdir() if '"started": "2026-01-0' not in path.read_text()]
        begun = json.loads(newest.read_text())
        assert begun["started"]
        newest.write_text(json.dumps(begun | {"started": f"2026-01-0{number + 1}"}) + "\n")
    running.refresh()
    page, (first, second, _) = (pages / "running.html").read_text(), map(anchor_of, keys)
    assert re.findall(r'<details[^>]* id="([^"]+)"', page) == [first, f"{first}-2", second]
    assert "Episodes being played: 6, of which 3 are not shown" in page


def test_turns_for_which_the_disk_has_no_room_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EpisodeSpec(EpisodeKey("toy", "z", "nano-chat", "r"), toy_task(), turns=str(tmp_path))
    turns, record = TurnFile(spec), EpisodeRecord(spec.limits)
    with monkeypatch.context() as full:
        full.setattr("lemur_ray.rollout.episode_record.json.dumps", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        turns.write(record)
    turns.write(record)
    assert not list(tmp_path.iterdir()), "the episode goes on without it"


def test_the_turns_of_an_episode_whose_process_died_are_removed(tmp_path: Path) -> None:
    class Dying(ThreadPool):
        """The first process dies in the middle of the episode."""

        def submit(self, spec: EpisodeSpec) -> None:
            assert not list(folder.iterdir())
            attempts.append(Attempt(Outcome.SOLVED, 1.0) if attempts else Attempt(Outcome.INFRA_LOST, None))
            TurnFile(spec).write(EpisodeRecord(spec.limits))
            self.spec = spec

        def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
            return [(self.spec, attempts[-1])]

    attempts: list[Attempt] = []
    (folder := tmp_path / RUNNING).mkdir()
    plan = [EpisodeSpec(EpisodeKey("toy", "a", "p", "r"), toy_task(), turns=str(folder))]
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress, retries = Progress(io.StringIO(), time.monotonic), RetryPolicy(infra_delay_s=0.0)
        run_episodes(plan, Dying(Policy(int), 1), ledger, retries=retries, progress=progress, clock=time.monotonic)
    assert [attempt.outcome for attempt in attempts] == [Outcome.INFRA_LOST, Outcome.SOLVED]


@pytest.mark.parametrize(
    ("words", "port"),
    [(["--limit", "1"], None), (["--view"], 8009), (["--view", "--limit", "1"], 8009), (["--view=0"], 0),
     (["--view", "7"], 7)],
)  # fmt: skip
def test_the_port_of_a_view_may_be_left_out(words: list[str], port: int | None) -> None:
    rest, chosen = take_view(words)
    assert (chosen, "--view" in rest) == (port, False)
    with pytest.raises(ValueError, match="--view 70000: expected a port"):
        take_view(["--view", "70000"])


@pytest.mark.slow
@pytest.mark.skipif(found() is None, reason="no Chromium here: apt-get install -y chromium")
def test_turns_appear_in_a_browser_before_their_episode_ends(tmp_path: Path) -> None:
    run, turn = write_ledger(tmp_path / "run", [episode("t0", Outcome.SOLVED)]), threading.Semaphore(0)
    thread = threading.Thread(target=play, args=(run / RUNNING, lambda: turn.acquire(timeout=60)))
    name = anchor_of(EpisodeKey("toy", "a", "nano-chat", "r"))
    with live_server([run], "127.0.0.1", 0, every_s=0.2) as address, chromium(tmp_path / "profile") as browser:
        list_page = browser.page(f"{address}episodes.html")
        thread.start()
        list_page.until("document.querySelector('#running a')?.textContent.endsWith('played: 1')")
        page = browser.page(f"{address}running.html#{name}")
        page.until(f"document.querySelector('details#{name}[open] .opening')")
        for number in (1, 2):
            turn.release()
            page.until(f"document.querySelectorAll('#{name} .turn').length === {number}")
            assert page.value(f"document.querySelector('#{name}').open"), "what is being read stays open"
        assert "at 2" in str(page.value(f"document.querySelector('#{name}').innerText"))
        turn.release()
        page.until(f"document.querySelector('#{name} .warn a')?.getAttribute('href') === 'episodes.html#{name}'")
        list_page.until("document.querySelector('#running').hidden")
        assert not page.complaints() + list_page.complaints()
    thread.join()
    assert not (run / RUNNING).exists()


@pytest.mark.slow
def test_eval_with_a_view_serves_its_turns_until_it_ends(tmp_path: Path, lemur_home: Path) -> None:
    (tmp_path / "watching.py").write_text(
        "import json, os, time, urllib.request\n"
        "def reply(request):\n"
        "    deadline = time.monotonic() + 120\n"
        "    while True:\n"
        "        assert time.monotonic() < deadline, 'no turns are served'\n"
        "        try:\n"
        "            with urllib.request.urlopen(os.environ['ADDRESS'] + 'running.json') as answer:\n"
        "                if json.load(answer)['episodes']:\n"
        "                    return 'SELECT 1'\n"
        "        except OSError:\n"
        "            pass\n"
        "        time.sleep(0.05)\n"
    )
    port = free_port()
    command = [sys.executable, ROOT / "jobs" / "agent_eval.py", "--benchmark", "alfworld/text", "--limit", "1"]
    command += ["--policy", "function:watching:reply", "--actors", "0", "--view", str(port), "--out", "watched"]
    with contextlib.chdir(tmp_path):
        environment = {"PYTHONPATH": str(tmp_path), "ADDRESS": f"http://127.0.0.1:{port}/"}
        ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert re.search(rf"^http://127.0.0.1:{port}/ shows this run while it goes on$", ended.stderr, re.MULTILINE)
    assert not (lemur_home / "watched" / RUNNING).exists()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port)).close()


def test_a_folder_of_turns_that_holds_something_else_is_left(tmp_path: Path) -> None:
    other = tmp_path / "results" / RUNNING / "thesis.txt"
    other.parent.mkdir(parents=True)
    other.write_text("kept")
    episodes = RunningEpisodes([tmp_path / "results"], tmp_path)
    episodes.refresh()
    episodes.close()
    assert other.read_text() == "kept"
