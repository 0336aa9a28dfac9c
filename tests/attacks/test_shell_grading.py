"""Rows 20, 23, 24, 29, 36 and 37: what a command does to the grader of InterCode-Bash, and where a flag of CTF is.

The episodes are the environments' own; their sandboxes come from the pool that all episodes of a process share.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from envs.intercode.shell.bash_env import listing
from lemur_ray.sandbox.backends.driven_sandbox import DrivenSandbox
from lemur_ray.sandbox.inside import tree
from lemur_ray.sandbox.sandbox import SandboxQuarantined

Played = Callable[..., Any]
GOLD = "echo right > /testbed/answer.txt; cat /testbed/a.txt"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("testbed")
    (folder / "a.txt").write_text("one two three\n")
    (folder / "b.txt").write_text("four five six\n")
    return folder


@pytest.fixture(scope="module")
def env(backend: str) -> Iterator[Any]:
    made = gymnasium.make("envs:lemur/InterCodeBash-v0", disable_env_checker=True)
    yield made
    made.close()


@pytest.fixture
def played(env: Any, backend: str, testbed: Path) -> Played:
    """Rewards of an episode's replies."""

    def play(*replies: str) -> list[float]:
        trees = {"/testbed": str(testbed)}
        env.reset(options={"question": "Do it.", "gold": GOLD, "trees": trees, "backend": backend})
        return [float(env.step(f"```bash\n{reply}\n```")[1]) for reply in replies]

    return play


def box_of(env: Any) -> DrivenSandbox:
    sandbox = env.unwrapped._sandbox
    assert isinstance(sandbox, DrivenSandbox)
    return sandbox


def test_row_20_what_a_command_leaves_running_changes_nothing_that_is_graded(played: Played, env: Any) -> None:
    bomb = "i=0; while :; do i=$((i+1)); echo right > /testbed/answer.txt; echo $i > /testbed/f$((i % 7)); done"
    (reward,) = played(f"({bomb}) >/dev/null 2>&1 & setsid sh -c '{bomb}' >/dev/null 2>&1 & sleep 0.2")
    graded = listing(box_of(env))
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        assert listing(box_of(env)) == graded, "the tree moves while it is graded"
    assert reward < 1


POISON = (
    "cd / && git init -q . && mkdir -p .git/hooks .git/info && "
    "printf '#!/bin/sh\\ntouch /tmp/hooked\\n' > .git/hooks/fsmonitor && chmod +x .git/hooks/fsmonitor && "
    "git config core.fsmonitor .git/hooks/fsmonitor; git config diff.external .git/hooks/fsmonitor; "
    "git config core.worktree /tmp; git config filter.evil.clean 'cat /testbed/a.txt'; "
    "echo '* filter=evil diff=evil' > .git/info/attributes; echo '*' > .git/info/exclude; cat /testbed/a.txt"
)


def test_row_24_a_poisoned_git_has_no_say_in_what_the_grader_sees(played: Played, env: Any) -> None:
    honest = played(
        "true", "echo wrong > /testbed/b.txt", "git -C / status >/dev/null 2>&1; echo x > /testbed/answer.txt"
    )
    poisoned = played(f"({POISON}) >/dev/null 2>&1", "echo wrong > /testbed/b.txt", "echo x > /testbed/answer.txt")
    assert poisoned == honest, "it is worth what it changed, seen or not by git"
    assert "/tmp/hooked" not in listing(box_of(env)), "nothing of it ran"
    hidden = "echo '*' > /.gitignore; echo '*' > /testbed/.gitignore"
    assert max(played(f"{POISON} >/dev/null; {hidden}; {GOLD}")) < 1, "what git would ignore is a change"
    assert played(f"{POISON} >/dev/null; {GOLD}") == [1.0]


FAKES = (
    "mkdir -p /fake; for p in bash sh env ls diff md5sum git cat python3 find stat; do "
    "printf '#!/usr/bin/python3\\nprint(\"one two three\")\\n' > /fake/$p; done; chmod 755 /fake/*; "
    "printf 'cat() { echo one two three; }\\n' > ~/.bashrc; cp ~/.bashrc ~/.bash_profile; "
)


@pytest.mark.parametrize(
    "how", ["rm /bin; ln -s /fake /bin", "mv /bin /was; mv /fake /bin", "export PATH=/fake; hash -r"]
)
def test_row_23_fake_programs_change_no_score(played: Played, how: str) -> None:
    honest, _ = played("cat /testbed/a.txt", "cat /testbed/a.txt")
    faked = played(f"{FAKES}{how}; cat /testbed/a.txt", "cat /testbed/a.txt", "cat /testbed/a.txt")
    assert max(faked) <= honest < 1, "the tree is not the gold's, whatever programs say"
    assert played(GOLD) == [1.0], "and the next episode has the true ones"


LEFT = "echo 1 > /testbed/count; echo 1 > /tmp/count; echo 'exit 7' > ~/.bashrc; rm /testbed/b.txt; mkdir /mine"


def test_row_29_an_episode_finds_nothing_of_the_one_before(played: Played, env: Any) -> None:
    played("true")
    clean = listing(box_of(env))
    for _ in range(2):
        played(f"{LEFT}; setsid sh -c 'sleep 1; echo late > /testbed/late' &")
        assert played("true")
        assert listing(box_of(env)) == clean
    assert played(GOLD) == [1.0]


def test_row_36_what_episodes_share_is_not_changed_and_one_that_would_be_is_put_in_quarantine(
    played: Played, env: Any, testbed: Path
) -> None:
    """Of the stack that stands: the host's trees that every episode is made from, and the pool of sandboxes.

    Shared sites (fill a shop, delete a repository) come with the browser environment.
    """

    def state() -> str:
        files = sorted(path for path in testbed.rglob("*") if path.is_file())
        return hashlib.sha256(b"".join(bytes(path) + path.read_bytes() for path in files)).hexdigest()

    before = state()
    played(
        "rm -rf /testbed/*; head -c 99000000 /dev/zero > /testbed/full; chmod 0 /testbed; touch /usr/x; mv /testbed /t"
    )
    assert state() == before
    played("true")
    poisoned = box_of(env)
    other = tree.pack([("/testbed/more", testbed)])
    poisoned._housing.keeper.ask({"op": "trees"}, other, timeout_s=30.0)  # type: ignore[attr-defined]
    pool = env.unwrapped._pool
    counted = pool.quarantined
    assert played(GOLD) == [1.0], "the episode after it has another one"
    assert pool.quarantined == counted + 1
    assert box_of(env) is not poisoned
    with pytest.raises(SandboxQuarantined):
        poisoned.exec(["true"])


def test_row_37_a_flag_is_only_where_the_task_puts_it(backend: str, tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task/flag.txt").write_text("flag{in_its_place}")
    (tmp_path / "solution.txt").write_text("flag{canary_of_the_solution}")
    env = gymnasium.make("envs:lemur/InterCodeCTF-v0", disable_env_checker=True)
    try:
        gold = "flag{nowhere_inside}"
        assets = str(tmp_path / "task")
        env.reset(options={"question": "Where?", "gold": gold, "assets": assets, "number": 1, "backend": backend})
        assert "flag{in_its_place}" in env.step("cat flag.txt")[0]
        places = "--exclude-dir=proc --exclude-dir=usr --exclude-dir=dev --exclude-dir=python --exclude-dir=sys"
        found, reward, ended, *_ = env.step(f"grep -rlE 'flag.(in_its|canary|nowhere)' / {places} 2>/dev/null")
        assert (found, reward, ended) == ("/ctf/1/flag.txt\n", 0.0, False)
        seen = env.step("env; cat ~/.bash_history /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' ' '")[0]
        assert "nowhere_inside" not in seen
        assert "canary" not in seen
        assert env.step("submit flag{in_its_place}")[1] == 0.0
        assert env.step(f"submit {gold}")[1] == 1.0
    finally:
        env.close()
