"""LiveCodeBench in the published format: packed tests, dates, programs that are right, wrong or attack the tests."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from envs.programs.livecodebench.benchmark import LiveCodeBenchOptions, grade, unpacked
from envs.programs.livecodebench.tests_of_problem import is_output
from lemur_ray.agents.trajectory import Outcome, Task
from tests.envs.questions import Says, play, tasks_of

SUMS = [{"input": "2\n3 4\n", "output": "7\n", "testtype": "stdin"}]
PRIVATE = [{"input": "3\n1 2 3\n", "output": "6.0\n", "testtype": "stdin"}]
CALLS = [{"input": '[3, 1, 2]\n"x"', "output": "[1, 2, 3]", "testtype": "functional"}]
MORE_CALLS = [{"input": '[]\n"y"', "output": "[]", "testtype": "functional"}]
STARTER = "class Solution:\n    def ordered(self, nums: List[int], name: str) -> List[int]:\n        "


def packed(tests: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def row(number: int, date: str, public: Any, private: str, starter: str = "", function: str = "") -> dict[str, Any]:
    metadata = json.dumps({"func_name": function} if function else {})
    return {
        "question_title": "T", "question_content": f"Problem {number}.", "platform": "atcoder", "difficulty": "easy",
        "question_id": f"q{number}", "contest_id": "c", "contest_date": f"{date}T00:00:00", "starter_code": starter,
        "public_test_cases": json.dumps(public), "private_test_cases": private, "metadata": metadata,
    }  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "livecodebench"
    folder.mkdir()
    rows = [
        row(1, "2024-01-06", SUMS, packed(PRIVATE)),
        row(2, "2024-09-01", CALLS, json.dumps(MORE_CALLS), STARTER, "ordered"),
    ]
    (folder / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "test2.jsonl").write_text(json.dumps(row(3, "2025-02-01", SUMS, packed(PRIVATE))) + "\n")
    return tmp_path


def score(task: Task, program: str) -> float:
    return grade(f"Here it is:\n```python\n{program}\n```", task.options).score


READ = "n = int(input())\nprint(sum(map(int, input().split())))"
SORTS = "class Solution:\n    def ordered(self, nums: List[int], name: str) -> List[int]:\n        return "


def test_tasks_are_those_of_a_range_of_dates_and_right_programs_solve_them(data: Path, tmp_path: Path) -> None:
    every = tasks_of("livecodebench", data)
    assert [task.id for task in every] == [f"livecodebench/q{number}" for number in (1, 2, 3)]
    ids = [task.id for task in tasks_of("livecodebench", data, since="2024-01-07", until="2024-09-01")]
    assert ids == ["livecodebench/q2"]
    assert STARTER in every[1].options["prompt"]
    assert "3 1 2" not in json.dumps(every[0].options)
    replies = [f"```python\n{READ}\n```", f"```python\n{SORTS}sorted(nums)\n```", "print(7)"]
    episodes = play(every, Says(dict(zip([task.id for task in every], replies, strict=True))), tmp_path)
    assert [episode.outcome for episode in episodes] == [Outcome.SOLVED, Outcome.SOLVED, Outcome.FAILED]


@pytest.mark.parametrize(
    "program",
    [
        "def main():\n    print(sum(map(int, stdin.read().split()[1:])))\nif __name__ == '__main__':\n    main()",
        f"{READ}\nsys.exit(1)",
        "import numpy as np\ninput()\nprint(np.array(input().split(), dtype=int).sum())",
        "def deep(n):\n    return 0 if n == 0 else deep(n - 1)\ndeep(9000)\n" + READ,
    ],
)
def test_programs_that_read_standard_input(data: Path, program: str) -> None:
    assert score(tasks_of("livecodebench", data)[0], program) == 1


ATTACKS = [
    "import sys\nsys.exit(0)",
    "import os\nos._exit(0)",
    "quit()",
    "import builtins, sys\nbuiltins.print = lambda *a: None\nsys.stdout.write('7\\n')",
    "class Always(str):\n    __eq__ = lambda *a: True\nprint(Always('7'))",
    "import glob\nprint(''.join(open(f).read() for f in glob.glob('*') + glob.glob('/tmp/*')))",
    "import gc\nprint([o for o in gc.get_objects() if isinstance(o, dict) and 'output' in o])",
    "print('7')",
    "raise SystemExit('7')",
    "import os\nos.kill(os.getppid(), 9)",
    "print('sNaN')",
    READ + "\nraise ValueError",
]


@pytest.mark.parametrize("program", ATTACKS)
def test_attacks_on_tests_of_output_score_nothing(data: Path, program: str) -> None:
    assert score(tasks_of("livecodebench", data)[0], program) == 0


CALL_ATTACKS = [
    "Always()\nclass Always(list):\n    __eq__ = lambda *a: True\n    __repr__ = lambda self: '[1, 2, 3]'",
    "exit(0)",
    "__import__('os')._exit(0)",
    "print('\\0result\\0[1, 2, 3]') or exit(0)",
    "(1, (2, 3))",
    "nums",
    "None",
]


@pytest.mark.parametrize("value", CALL_ATTACKS)
def test_attacks_on_tests_of_a_function_score_nothing(data: Path, value: str) -> None:
    assert score(tasks_of("livecodebench", data)[1], SORTS + value) == 0


def test_results_of_a_function_are_compared_as_published(data: Path) -> None:
    task = tasks_of("livecodebench", data)[1]
    assert score(task, SORTS + "print('noise') or tuple(sorted(nums))") == 1
    assert score(task, "def ordered(nums, name):\n    return [float(n) for n in sorted(nums)]") == 1
    assert score(task, SORTS + "[[n] for n in sorted(nums)]") == 0


@pytest.mark.parametrize(
    ("output", "right"),
    [
        ("7", 1),
        (" 7 \n\n", 1),
        ("7.0", 1),
        ("7 ", 1),
        ("7\n7", 0),
        ("", 0),
        ("seven", 0),
        ("sNaN", 0),
        ("1e99999999", 0),
    ],
)
def test_lines_of_an_output_are_equal_or_equal_numbers(output: str, right: int) -> None:
    assert is_output(output, "7\n") == bool(right)


class Runs:
    def __reduce__(self) -> Any:
        return (print, ("run",))


def test_packed_tests_are_read_without_running_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert unpacked(packed(PRIVATE)) == PRIVATE
    assert unpacked(base64.b64encode(zlib.compress(json.dumps(PRIVATE).encode())).decode()) == PRIVATE
    for content in (pickle.dumps(Runs()), pickle.dumps([1]), b"", b"[1]"):
        with pytest.raises(ValueError, match="tests of LiveCodeBench cannot be read"):
            unpacked(base64.b64encode(zlib.compress(content)).decode())
    with pytest.raises(ValueError, match="cannot be read"):
        unpacked("no base64")
    assert capsys.readouterr().out == ""


def test_dates_are_checked() -> None:
    for wrong in (
        {"since": "2024"},
        {"since": "20240801"},
        {"until": "2024-W31-4"},
        {"until": "1.1.2024"},
        {"since": "2024-02-01", "until": "2024-01-01"},
    ):
        with pytest.raises(ValueError, match=r"--since|--until"):
            LiveCodeBenchOptions(**wrong)  # type: ignore[arg-type]
