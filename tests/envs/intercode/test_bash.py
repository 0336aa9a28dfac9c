"""InterCode-Bash in the sandbox: turns, grading, and what a model may do to its grader."""

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from envs.intercode.benchmark import BENCHMARKS, BashOptions
from envs.intercode.recording import read_recording, recorded_with
from envs.intercode.shell.bash_env import cut_as_recorded
from envs.intercode.shell.bash_tree import make_tree
from envs.intercode.shell.shell_reply import parse_bash, parse_ctf
from envs.intercode.tasks import load_bash_tasks
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, EpisodeKey
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.report.agreement import measure_agreement
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.episode import run_episode

ENTRIES = [
    {"path": "/testbed", "mode": "0o755", "type": "dir"},
    {"path": "/testbed/hollow", "mode": "0o755", "type": "dir"},
    {"path": "/testbed/a.txt", "mode": "0o644", "type": "file", "text": "one\ntwo\n"},
    {"path": "/testbed/run.sh", "mode": "0o755", "type": "file", "b64": "IyEvYmluL3NoCg==", "mtime": 1685577599},
    {"path": "/index.html", "mode": "0o644", "type": "file", "text": "x"},
]


@pytest.fixture
def trees(tmp_path: Path) -> dict[str, str]:
    manifest = tmp_path / "manifest.json.gz"
    manifest.write_bytes(gzip.compress(json.dumps(ENTRIES).encode()))
    made = make_tree(manifest, tmp_path / "tree", keep_empty_folders=True)
    return {inside: str(source) for inside, source in made.items()}


@pytest.fixture
def played(trees: dict[str, str]) -> Iterator[Any]:
    """Starts an episode with a gold command; closes it afterwards."""
    opened = []

    def start(gold: str, **options: Any) -> Any:
        env = gymnasium.make("envs:lemur/InterCodeBash-v0", disable_env_checker=True)
        opened.append(env)
        env.reset(options={"question": "Do it.", "gold": gold, "trees": trees, **options})
        return env

    yield start
    for env in opened:
        env.close()


def test_the_tree_is_that_of_the_manifest_with_its_modes_and_dates(trees: dict[str, str], tmp_path: Path):
    assert sorted(trees) == ["/index.html", "/testbed"]
    script = Path(trees["/testbed"]) / "run.sh"
    assert (script.stat().st_mtime, script.stat().st_mode & 0o777) == (1685577599, 0o755)
    assert (Path(trees["/testbed"]) / "hollow").is_dir()
    lean = make_tree(tmp_path / "manifest.json.gz", tmp_path / "lean", keep_empty_folders=False)
    assert not (lean["/testbed"] / "hollow").exists()
    (tmp_path / "bad.json.gz").write_bytes(gzip.compress(b'[{"path": "../x", "type": "file", "text": ""}]'))
    with pytest.raises(ValueError, match=r"bad.json.gz, entry 0"):
        make_tree(tmp_path / "bad.json.gz", tmp_path / "bad", keep_empty_folders=True)


def test_processes_that_make_the_same_tree_at_once_all_find_it_whole(trees: dict[str, str], tmp_path: Path):
    def made(_: int) -> list[str]:
        found = make_tree(tmp_path / "manifest.json.gz", tmp_path / "shared", keep_empty_folders=True)
        return sorted(str(path.relative_to(found["/testbed"])) for path in found["/testbed"].rglob("*"))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(made, range(16))) == [["a.txt", "hollow", "run.sh"]] * 16
    assert len(list((tmp_path / "shared").iterdir())) == 1, "nothing half made is left"


def test_the_gold_solves_and_a_fresh_tree_waits_for_the_model(played: Any):
    env = played("rm /testbed/a.txt; echo done")
    assert "one" in env.step("```bash\ncat /testbed/a.txt\n```")[0]
    observation, reward, terminated, _, info = env.step("rm /testbed/a.txt; echo done")
    assert (reward, terminated, info["solved"]) == (1.0, True, True)
    assert "Output: done" in observation


def test_only_cd_is_remembered_and_quoting_is_that_of_a_shell(played: Any):
    env = played("echo the answer")
    env.step("cd /testbed")
    assert "/testbed" in env.step("pwd")[0]
    assert "a b" in env.step('echo "a b"')[0]
    env.step("export LATER=1")
    assert "later:." in env.step('echo "later:$LATER."')[0]
    env.step("cd nowhere")
    assert "/testbed" in env.step("pwd")[0]


def test_with_compat_the_machine_is_as_old_as_upstreams(played: Any):
    env = played("true", compat=True, recorded="strict")
    assert "/testbed/." in env.step("echo /testbed/.*")[0]
    observation, *_ = env.step("cp -R /testbed /usr/; ls /usr/testbed; which c++")
    assert "a.txt" in observation
    assert "c++" not in observation
    assert "Read-only" in env.step("touch /usr/bin/new")[0]


def test_a_golds_output_is_cut_only_where_the_recording_shows_its_end():
    assert cut_as_recorded("/workspace\n/workspace/dir1\n", "e\n/workspace/dir1\n") == "e\n/workspace/dir1\n"
    assert cut_as_recorded("0\n", "\n") == "\n"
    assert cut_as_recorded("many words\n", "\n") == "many words\n"
    assert cut_as_recorded("May 20\n", "May 21\n") == "May 20\n"
    assert cut_as_recorded("one\n", None) == cut_as_recorded("one\n", "") == "one\n"


def test_with_compat_inner_quotes_vanish_and_an_open_one_is_malformed(played: Any):
    env = played('echo "a b"', compat=True, recorded="strict")
    observation, reward, _, _, _ = env.step('echo "a b"')
    assert "Output: a\n" in observation
    assert reward == 1.0
    env = played("true", compat=True, recorded="strict")
    observation, _, _, _, info = env.step("echo 'it")
    assert "Output: " in observation
    observation, _, _, _, info = env.step('echo "it')
    assert ("Malformed command" in observation, info["valid"]) == (True, False)


def test_the_grader_is_not_moved_by_what_a_model_leaves_behind(played: Any):
    env = played("touch /testbed/new.txt")
    attacks = [
        "printf '#!/bin/sh\\necho' > /testbed/find; chmod +x /testbed/find; PATH=/testbed:$PATH",
        "mkdir /.git; printf '[core]\\nfsmonitor = touch /testbed/pwned\\n' > /.git/config",
        "echo /testbed/evil.so > /etc/ld.so.preload",
        "ln -s /etc/passwd /testbed/link; mkfifo /testbed/pipe",
    ]
    for attack in attacks:
        reward = env.step(attack)[1]
        assert reward < 1, attack
    env = played("touch /testbed/new.txt")
    assert env.step("echo x > /testbed/$'odd\\n name'; touch /testbed/new.txt")[1] < 1
    assert env.step("rm /testbed/odd*")[1] == 1.0


FORGED_SHELL = """\
rm /bin; mkdir /bin; cp /usr/bin/bash /bin/bash
printf '#!/bin/bash\\nprintf "d 755 /testbed\\\\t\\\\0\\\\0"\\n' > /bin/sh; chmod +x /bin/sh; touch /testbed/evil"""


@pytest.mark.parametrize("attack", [FORGED_SHELL, "rm -f /bin", "rm -f /lib64; touch /testbed/x", "chmod 000 /testbed"])
def test_programs_of_the_tree_have_no_say_in_the_grade_and_no_way_out_of_it(played: Any, attack: str):
    env = played("true")
    honest = env.step("touch /testbed/evil; mkdir /testbed/e2; touch /testbed/e2/f")[1]
    env = played("true")
    reward, _, _, info = env.step(attack + "\nmkdir /testbed/e2; touch /testbed/e2/f")[1:]
    assert reward < 1
    if attack == FORGED_SHELL:
        assert reward <= honest
    assert "outcome" not in info or info["outcome"] is None


def test_a_tree_that_cannot_be_compared_is_worth_nothing_and_the_episode_goes_on(played: Any):
    env = played("true")
    deep = "cd /testbed; for i in $(seq 30); do mkdir " + "d" * 200 + "; cd " + "d" * 200 + "; done; touch f"
    observation, reward, terminated, _, info = env.step(deep)
    assert (reward, terminated, info["valid"]) == (0.0, False, True)
    assert "The files cannot be compared" in observation


def test_a_tree_with_many_files_is_graded(played: Any):
    env = played("true")
    env.step("for i in $(seq 500); do echo $i > /testbed/f$i; done")
    assert env.step("rm /testbed/f*")[1] == 1.0


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("```bash\nls -I\n```", "ls -I"),
        ("Try ```sh ls``` or ```pwd```", "ls"),
        ("ls\npwd", "ls pwd"),
        ("", ""),
    ],
)
def test_the_command_in_a_reply_is_found(reply: str, action: str):
    assert parse_bash(reply, compat=False) == action
    assert parse_bash("```bash\nLS -I\n```", compat=True) == "ls -i"
    assert parse_ctf("Action: submit x\n") == "submit x"


def test_two_hundred_tasks_in_four_trees(data_dir: Path, tmp_path: Path):
    tasks = load_bash_tasks(data_dir, scratch=tmp_path)
    assert [sum(task.category == f"fs_{n}" for task in tasks) for n in (1, 2, 3, 4)] == [60, 53, 60, 27]
    assert len({task.id for task in tasks}) == 200
    assert set(tasks[0].options["trees"]) == {"/index.html", "/testbed"}


@pytest.mark.sweep
def test_gpt_35s_runs_are_solved_alike(data_dir: Path):
    """The target for bubblewrap is 92 %; the guide names the cause of every episode that differs."""
    same = total = 0
    for number in (1, 3, 4):
        file = data_dir / f"intercode/logs/bash/gpt-3.5/ic_bash_multiturn_gpt-3.5_10_turns_fs_{number}.json.gz"
        tasks = BENCHMARKS["bash"].load(BashOptions(compat=True), EvaluationRequest(data_dir, recording=file))
        policy, episodes = ReplayPolicy(read_recording(file), "replay"), []
        for task in tasks:
            spec = EpisodeSpec(
                EpisodeKey(task.benchmark, task.id, "replay", "r"), task, limits=EpisodeLimits(step_s=180.0)
            )
            tried = run_episode(spec, policy, clock=time.monotonic)
            episodes.append(Episode(spec.key, task.category, tried.outcome, tried.score, 1, tried.trajectory))
        found = measure_agreement(episodes, policy.recording, recorded_with(0.011).comparison)
        same, total = same + found.same_success, total + len(episodes)
    assert total == 147
    assert same >= 0.92 * total, f"{same} of {total}"
