"""What a task folder of the Harbor kind says, and what its tests may write as a reward."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.foreign.harbor.env import JSON, TEXT, HarborEnv, NoReward, reward_in
from envs.foreign.harbor.task_folder import folders, read
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.sandbox.backends.built_image import content_hash

TOML = """\
schema_version = "1.1"
[metadata]
category = "files"
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 30.0
[environment]
memory = "512M"
cpus = 2
"""


def folder(at: Path, toml: str = TOML, dockerfile: str = "FROM scratch\n") -> Path:
    """A task folder that says everything and tests nothing."""
    for name, text in {
        "task.toml": toml,
        "instruction.md": "Write hello into /app/hello.txt.\n",
        "environment/Dockerfile": dockerfile,
        "tests/test.sh": "echo 0 > /logs/verifier/reward.txt\n",
    }.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)
    return at


def test_a_task_has_the_times_and_resources_that_its_file_names(tmp_path: Path) -> None:
    task = read(folder(tmp_path))
    assert (task.agent_s, task.tests_s, task.memory_mb, task.cpus) == (60.0, 30.0, 512.0, 2.0)
    assert (task.category, task.policy_network, task.has_solution) == ("files", None, False)
    assert task.instruction == "Write hello into /app/hello.txt."


def network(at: Path, toml: str, mode: str) -> tuple[bool, bool]:
    """Whether the policy and the tests have one."""
    task, env = read(folder(at, toml)), HarborEnv()
    env._network = mode
    return env._has_network(task.policy_network), env._has_network(task.tests_network, True)


@pytest.mark.parametrize(
    ("said", "tests", "as_the_format"),
    [
        ("[environment]\ncpus = 1\n", (False, True), (True, True)),
        ("[environment]\nallow_internet = true\n", (True, True), (True, True)),
        ('[environment]\nnetwork_mode = "public"\n', (True, True), (True, True)),
        ("[environment]\nallow_internet = false\n", (False, False), (False, False)),
        (
            '[environment]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "public"\n',
            (False, True),
            (False, True),
        ),
        ('[agent]\nnetwork_mode = "public"\n[verifier]\nnetwork_mode = "no-network"\n', (True, False), (True, False)),
        ('[environment]\nnetwork_mode = "allowlist"\n', (False, False), (False, False)),
    ],
)
def test_tests_have_a_network_unless_it_is_denied_and_a_policy_where_it_is_said(
    tmp_path: Path, said: str, tests: tuple[bool, bool], as_the_format: tuple[bool, bool]
) -> None:
    assert network(tmp_path, said, "tests") == tests
    assert network(tmp_path, said, "format") == as_the_format
    assert network(tmp_path, said, "none") == (False, False)


def test_an_image_that_is_named_goes_before_a_dockerfile(tmp_path: Path) -> None:
    assert read(folder(tmp_path, '[environment]\ndocker_image = "them/task:1"\n')).image == "them/task:1"
    assert read(folder(tmp_path)).image == ""


def test_every_folder_with_a_task_is_one_and_stands_for_its_content(tmp_path: Path) -> None:
    for name in ("b", "a", "deep/c"):
        folder(tmp_path / name)
    assert [name for name, _ in folders(tmp_path)] == ["a", "b", "deep/c"]
    benchmark = find(f"harbor:{tmp_path}")
    tasks = list(benchmark.load(benchmark.options(turns=3), EvaluationRequest()))
    assert [(task.id, task.max_turns, task.category) for task in tasks] == [
        ("a", 3, "files"),
        ("b", 3, "files"),
        ("deep/c", 3, "files"),
    ]
    before = tasks[0].options["database_id"]
    assert before == content_hash(tmp_path / "a") == tasks[1].options["database_id"]
    (tmp_path / "a/tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    assert next(iter(benchmark.load(benchmark.options(), EvaluationRequest()))).options["database_id"] != before


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[agent]\ntimeout_sec = -1\n", r"timeout_sec = -1, expected a number above 0"),
        ("[agent\n", "not TOML"),
        ("agent = 3\n", r"expected a table \[agent\]"),
        ('[environment]\nmemory = "much"\n', "expected a size such as 4G"),
        ('[verifier]\nenv = { KEY = "${KEY}" }\n', "asks for a variable of this machine"),
        ("[[steps]]\nname = 'one'\n", "of several steps"),
        ('[verifier]\nenvironment_mode = "separate"\n', "in an environment of their own"),
        ('[environment]\nnetwork_mode = "some"\n', "expected one of public, no-network, allowlist"),
        ("[environment]\ngpus = 1\n", "gpus = 1: cannot be played here"),
        ('[environment]\nworkdir = "/srv"\n', "workdir = '/srv': cannot be played here"),
        ("[[environment.mcp_servers]]\nname = 'x'\n", r"environment\.mcp_servers"),
        ('[environment]\nos = "windows"\n', r"environment\.os = 'windows': only linux"),
        ("[[verifier.collect]]\ncommand = 'ps'\n", r"verifier\.collect = \[{'command': 'ps'}\]: cannot"),
    ],
)
def test_what_cannot_be_played_is_refused_in_words(tmp_path: Path, toml: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(folder(tmp_path, toml))


def test_empty_entries_ask_for_nothing(tmp_path: Path) -> None:
    """As the task files of Terminal-Bench 2.1 have them."""
    toml = """\
schema_version = "1.1"
artifacts = []
[task]
name = "them/hello"
[[task.authors]]
name = "Somebody"
[verifier]
timeout_sec = 900.0
[agent]
timeout_sec = 800.0
[environment]
docker_image = "them/hello:1"
cpus = 1
memory_mb = 4096
storage_mb = 10240
gpus = 0
allow_internet = true
mcp_servers = []
[verifier.env]
[environment.env]
[solution.env]
"""
    task = read(folder(tmp_path, toml))
    assert (task.image, task.memory_mb, task.agent_s, task.tests_s) == ("them/hello:1", 4096.0, 800.0, 900.0)
    assert (task.policy_network, task.tests_network, dict(task.env)) == (True, True, {})


def test_the_older_format_names_what_converts_it(tmp_path: Path) -> None:
    (tmp_path / "hello").mkdir()
    (tmp_path / "hello/task.yaml").write_text("instruction: Say hello.\n")
    with pytest.raises(ValueError, match=r"hello/task\.yaml is terminal-bench's older format: harbor task migrate -i"):
        list(folders(tmp_path))


def test_a_folder_that_is_no_task_says_what_is_missing(tmp_path: Path) -> None:
    benchmark = find(f"harbor:{tmp_path}")
    with pytest.raises(ValueError, match=r"no task\.toml there or beneath"):
        list(benchmark.load(benchmark.options(), EvaluationRequest()))
    (folder(tmp_path) / "tests/test.sh").unlink()
    with pytest.raises(ValueError, match=r"tests/test\.sh is not there"):
        list(benchmark.load(benchmark.options(), EvaluationRequest()))
    folder(tmp_path)
    (tmp_path / "environment/docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match="several containers"):
        list(benchmark.load(benchmark.options(), EvaluationRequest()))


@pytest.mark.parametrize(
    ("files", "reward"),
    [
        ({TEXT: b" 1 \n"}, 1.0),
        ({TEXT: b"0.25"}, 0.25),
        ({JSON: b'{"reward": 0.5, "speed": 0.1}'}, 0.5),
        ({JSON: b'{"a": 1, "b": 0}'}, 0.5),
        ({TEXT: b"0", JSON: b'{"reward": 1}'}, 0.0),
    ],
)
def test_a_reward_is_a_number_from_0_to_1(files: dict[str, bytes], reward: float) -> None:
    assert reward_in(files) == reward


@pytest.mark.parametrize(
    "files",
    [
        {},
        *({TEXT: text} for text in (b"", b"nan", b"inf", b"2", b"-1", b"one", b"\xff\x00", b"1" * 10**6)),
        *({JSON: text} for text in (b"{}", b"[1]", b'{"reward": true}', b'{"reward": "1"}', b"[" * 10**5, b"NaN")),
        {JSON: b'{"reward": ' + b" " * 10**5 + b"1}"},
    ],
)
def test_nothing_else_is_a_reward(files: dict[str, bytes]) -> None:
    with pytest.raises(NoReward):
        reward_in(files)
