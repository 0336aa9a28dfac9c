"""Task folders played in containers: an oracle solves, a nothing-doer fails, and nobody writes a reward of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import ChatRequest, Sampling
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.sandbox.backends import docker_engine, docker_image
from tests.attacks.arena import ready
from tests.envs.foreign.test_harbor_folders import TOML, folder

pytestmark = [pytest.mark.docker, pytest.mark.slow]
CHECK = """\
#!/bin/bash
mkdir -p /logs/verifier
if [ "$(cat /app/hello.txt)" = "$(cat /tests/expected.txt)" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


@pytest.fixture(scope="module")
def image() -> str:
    pytest.importorskip("docker")
    ready("docker")
    return docker_image.ensure().name


@pytest.fixture
def task(tmp_path: Path, image: str) -> Path:
    made = folder(tmp_path / "hello", TOML, f"FROM {image}\nWORKDIR /app\nCOPY start.txt /app/\n")
    (made / "environment/start.txt").write_text("start\n")
    (made / "tests/test.sh").write_text(CHECK)
    (made / "tests/expected.txt").write_text("hello\n")
    (made / "solution").mkdir()
    (made / "solution/solve.sh").write_text("#!/bin/bash\necho hello > /app/hello.txt\n")
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(image: str) -> Iterator[None]:
    before = _left()
    yield
    assert _left() == before


def _left() -> tuple[set[str], set[str], set[str]]:
    """Containers, images without a name, and volumes."""
    with docker_engine.client("a look at what is left") as api:
        containers = {name for one in api.containers(all=True) for name in one["Names"] if "whole" in name}
        images = {one["Id"] for one in api.images(filters={"dangling": True})}
        return containers, images, {one["Name"] for one in api.volumes()["Volumes"] or ()}


def played(path: Path, *replies: str, **options: Any) -> tuple[list[str], dict[str, Any]]:
    """What was shown turn by turn, and the last turn's info."""
    benchmark = find(f"harbor:{path}")
    (task,) = benchmark.load(benchmark.options(**options), EvaluationRequest())
    env = gymnasium.make(task.env_id, disable_env_checker=True)
    said, info = env.reset(options={**task.options, "max_steps": task.max_turns})
    shown = [said]
    try:
        for reply in replies:
            said, _, terminated, truncated, info = env.step(reply)
            shown.append(said)
            if terminated or truncated:
                break
    finally:
        env.close()
    return shown, info


def bash(script: str) -> str:
    return f"```bash\n{script}\n```"


def test_commands_are_carried_out_in_the_tasks_image_and_its_tests_decide(task: Path) -> None:
    shown, info = played(task, bash("pwd; cat start.txt"), bash("echo hello > hello.txt\nls; exit 3"), "submit")
    assert shown[0].startswith("Write hello")
    assert shown[1] == "/app\nstart"
    assert shown[2] == "hello.txt\nstart.txt\n[exit code 3]"
    assert "Reward of the tests: 1" in shown[3]
    assert (info["outcome"], info["score"]) == ("solved", 1.0)


def test_the_oracle_solves_and_who_does_nothing_fails(task: Path) -> None:
    benchmark = find(f"harbor:{task}")
    (only,) = benchmark.load(benchmark.options(), EvaluationRequest())
    env = gymnasium.make(only.env_id, disable_env_checker=True)
    _, info = env.reset(options={**only.options, "hints": True})
    over, expert = False, ExpertPolicy()
    while not over:
        reply = expert.reply(ChatRequest((), Sampling(), hints=info["hints"]))
        _, _, terminated, truncated, info = env.step(reply.text)
        over = terminated or truncated
    env.close()
    assert info["outcome"] == "solved"
    assert played(task, "submit")[1]["outcome"] == "failed"


def test_tests_are_run_after_the_last_turn_too(task: Path) -> None:
    _, info = played(task, bash("echo hello > hello.txt"), turns=1)
    assert (info["outcome"], info["score"]) == ("solved", 1.0)
    assert played(task, "what?", turns=1)[1]["outcome"] == "turn_limit"


@pytest.mark.parametrize(
    "act",
    [
        "mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo 'exit 0' > /tests/test.sh",
        "mkdir -p /logs; ln -sfn /app /logs/verifier; echo 1 > /app/reward.txt; ln -sfn /app /tests",
        "setsid bash -c 'while true; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; done' &",
        "printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > /b; chmod +x /b; mv -f /b /usr/bin/bash",
        "mkdir -p /logs/verifier; echo '{\"reward\": 1}' > /logs/verifier/reward.json; chmod 000 /logs/verifier",
        "ls /tests /logs /solution",
    ],
)
def test_no_reward_is_forged(task: Path, act: str) -> None:
    shown, info = played(task, bash(act), "submit")
    assert (info["outcome"], info["score"]) == ("failed", 0.0), shown


def test_a_command_without_an_end_is_ended_and_the_episode_goes_on(task: Path) -> None:
    shown, info = played(
        task, bash("echo before; sleep 100"), bash("yes"), bash("echo hello > hello.txt"), "submit", command_s=2.0
    )
    assert "before" in shown[1]
    assert "timed out after 2 s" in shown[1]
    assert "ended" in shown[2] or "timed out" in shown[2]
    assert info["outcome"] == "solved"


def test_tests_without_an_end_are_worth_nothing(task: Path) -> None:
    (task / "tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt; sleep 100\n")
    (task / "task.toml").write_text(TOML.replace("timeout_sec = 30.0", "timeout_sec = 2.0"))
    shown, info = played(task, "submit")
    assert "timed out after 2 s" in shown[-1]
    assert info["outcome"] == "failed"


def test_there_is_no_network_and_memory_has_an_end(task: Path) -> None:
    shown, _ = played(
        task, bash("ls /sys/class/net"), bash("python3 -c 'x = bytearray(900 * 2**20)' || echo too much"), "submit"
    )
    assert shown[1] == "lo"
    assert "too much" in shown[2]


def test_a_folder_that_has_changed_is_not_played(task: Path) -> None:
    benchmark = find(f"harbor:{task}")
    (only,) = benchmark.load(benchmark.options(), EvaluationRequest())
    (task / "tests/expected.txt").write_text("another\n")
    with pytest.raises(ValueError, match="has changed since"):
        gymnasium.make(only.env_id, disable_env_checker=True).reset(options=dict(only.options))
