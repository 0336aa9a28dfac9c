"""The floor of a benchmark: what doing nothing and random answers solve, and rates without those tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.agents.misbehaving import completion, serving
from tests.e2e.conftest import Run


def test_tasks_that_random_answers_solve_are_named_and_left_out_of_a_second_rate(run: Run, tmp_path: Path) -> None:
    for name, rows in (("dev", 1), ("test", 12)):
        (tmp_path / "data/mmlu" / name).mkdir(parents=True)
        lines = [f"Which is number {row}?,one,two,three,four,{'ABCD'[row % 4]}\n" for row in range(rows)]
        (tmp_path / f"data/mmlu/{name}/astronomy_{name}.csv").write_text("".join(lines))
    common = ("--benchmark", "mmlu", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"))

    def printed(*policy: str) -> dict[str, Any]:
        code, lines, err = run(*common, *policy)
        assert code == 0, err
        return json.loads(lines[-1])

    nothing, chance = printed("--policy", "noop"), printed("--policy", "random")
    assert (nothing["n"], nothing["solved"]) == (12, 0)
    assert 0 < chance["solved"] < 12
    with serving(lambda asked: completion("A")) as server:
        assert printed("--policy", f"openai:{server.url}")["solved"] == 3
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert len(report["solved_without_skill"]["mmlu"]) == chance["solved"]
    page = (tmp_path / "out/index.html").read_text()
    assert f"without the {chance['solved']} tasks that doing nothing or random actions solve" in page
    assert report["solved_without_skill"]["mmlu"][0] in page


def test_every_benchmark_takes_both_baselines(run: Run, tmp_path: Path) -> None:
    for policy in ("noop", "random"):
        code, out, err = run(
            "--benchmark", "intercode/sql", "--policy", policy, "--limit", "2", "--out", str(tmp_path / policy)
        )
        assert (code, json.loads(out[-1])["scored"]) == (0, 2), err
