"""``jobs/agent_eval.py`` with an endpoint as its policy: what it is asked, what it refuses, what it must not tell."""

import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.rollout import evaluation
from lemur_ray.rollout.ledger import read_episodes
from lemur_ray.rollout.schedule.retries import RetryPolicy
from tests.agents.misbehaving import completion, refusal, serving
from tests.e2e.conftest import Run


def test_an_endpoint_is_asked_what_it_serves_and_its_garbage_is_scored(run: Run, tmp_path: Path):
    with serving(lambda asked: completion("dance" if len(asked["messages"]) % 4 else "x" * 200_000)) as server:
        code, out, _ = run("--policy", f"openai:{server.url}", "--limit", "2", "--out", str(tmp_path))
    printed = json.loads(out[-1])
    assert (code, printed["policy"], printed["scored"], printed["solved"]) == (0, "openai:toy", 2, 0)
    assert {e.outcome.value for e in read_episodes(tmp_path / "episodes.jsonl")} == {"invalid_actions"}


def test_an_overflow_is_scored_and_an_endpoint_that_refuses_is_missing_by_blame(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evaluation, "RetryPolicy", partial(RetryPolicy, unreachable_delay_s=0.01))

    def answer(asked: dict[str, Any]) -> Any:
        if "00000" in asked["user"]:
            return refusal(400, message="bad words")
        return refusal(400, "context_length_exceeded") if len(asked["messages"]) > 5 else completion("look")

    with serving(answer) as server:
        argv = ("--policy", f"openai:{server.url}", "--limit", "3", "--out", str(tmp_path), "--patience-s", "5")
        code, out, _ = run(*argv)
    printed = json.loads(out[-1])
    assert code == 0
    assert (printed["n"], printed["scored"], printed["solved"], printed["missing"]) == (3, 2, 0, 1)
    outcomes = {e.key.task[-5:]: e for e in read_episodes(tmp_path / "episodes.jsonl")}
    assert outcomes["00001"].outcome.value == "context_overflow"
    assert outcomes["00000"].outcome.value == "policy_unreachable"
    assert "bad words" in outcomes["00000"].detail
    assert outcomes["00000"].attempts == 4


def test_a_model_of_ours_gets_the_brief_prompt_and_a_prompt_that_does_not_fit_is_said(run: Run, tmp_path: Path):
    with serving(lambda asked: refusal(400, "context_length_exceeded")) as server:
        options = ("--policy", f"openai:{server.url}", "--limit", "2")
        code, _, err = run(*options, "--out", str(tmp_path / "full"))
        assert (code, [m["role"] for m in server.asked[0]["messages"]]) == (0, ["system", "user"])
        assert "2 of 2 episodes did not fit the model's context after at most one turn" in err
        assert "say nothing of its skill" in (tmp_path / "full" / "index.html").read_text()
        server.version = "1500-3f9a01bc"
        server.asked.clear()
        run(*options, "--out", str(tmp_path / "brief"))
        assert [m["role"] for m in server.asked[0]["messages"]] == ["user"]


def test_an_evaluation_in_which_nothing_was_scored_fails_and_can_be_run_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evaluation, "RetryPolicy", partial(RetryPolicy, unreachable_delay_s=0.01))
    answers = [refusal(500, message="no memory")]
    with serving(lambda asked: answers[-1]) as server:
        argv = ("--policy", f"openai:{server.url}", "--limit", "2", "--out", str(tmp_path), "--patience-s", "0.3")
        code, out, err = run(*argv)
        assert (code, json.loads(out[-1])["missing"]) == (75, 2)
        assert "nothing was scored (2 by infra)" in err
        assert "without a score: " in err
        assert "no memory" in err
        answers.append(completion("look"))
        code, out, err = run(*argv)
    assert (code, json.loads(out[-1])["scored"]) == (0, 2)
    assert "are in the ledger" not in err


def test_a_model_that_is_not_served_and_an_endpoint_that_is_not_there_are_errors(run: Run, tmp_path: Path):
    with serving(lambda asked: completion(), models=("a", "b")) as server:
        code, _, err = run("--policy", f"openai:{server.url}", "--policy-model", "c", "--out", str(tmp_path))
        assert code == 1
        assert "model 'c' is not served (served: a, b)" in err
        code, _, err = run("--policy", f"openai:{server.url}", "--out", str(tmp_path))
        assert code == 1
        assert "say with --policy-model" in err
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"openai:http://127.0.0.1:{free.getsockname()[1]}/v1"  # nobody listens, nor can while it is ours
        code, _, err = run("--policy", url, "--patience-s", "1", "--out", str(tmp_path))
    assert code == 1
    assert "is the server running?" in err
    assert not (tmp_path / "episodes.jsonl").exists()


SECRET = "sk-test-4711-sesame"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--policy-key-env", "NO_SUCH_KEY"), "--policy-key-env NO_SUCH_KEY: there is no such environment variable"),
        (("--policy-body", "[1]"), "--policy-body"),
        (("--teacher-key-env", "NO_SUCH_KEY"), "no environment of this evaluation asks an endpoint"),
        (("--tasks", "nothing"), "--tasks: no task 'nothing'"),
    ],
)
def test_what_is_wrong_with_an_endpoints_flags_is_one_line_before_anything_is_begun(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
):
    with serving(lambda asked: completion("look")) as server:
        try:
            code, out, err = run("--policy", f"openai:{server.url}", "--out", str(tmp_path), *argv)
        except SystemExit as ended:
            code, out, err = 1 if ended.code else 0, [], capsys.readouterr().err
        assert (code, out, server.asked) == (1, [], [])
    assert message in err
    assert not (tmp_path / "episodes.jsonl").exists()


def test_a_key_is_sent_and_stands_in_nothing_that_is_kept_or_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("THEIR_KEY", SECRET)
    with serving(lambda asked: completion(f"look {SECRET}")) as server:
        argv = ("--policy", f"openai:{server.url}", "--limit", "1")
        code, out, err = run(*argv, "--policy-key-env", "THEIR_KEY", "--out", str(tmp_path / "kept"))
        assert code == 0
        assert {headers["authorization"] for headers in server.headers} == {f"Bearer {SECRET}"}
        server.headers.clear()
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        run(*argv, "--out", str(tmp_path / "without"))
        assert SECRET not in str(server.headers), "the key of another endpoint"
    written = "".join(p.read_text(errors="replace") for p in (tmp_path / "kept").rglob("*") if p.is_file())
    assert "THEIR_KEY" in written
    assert SECRET not in f"{written}{out}{err}"


@pytest.mark.parametrize("fault", [refusal(401, message="bad key"), refusal(404, message="no such model")])
def test_an_endpoint_that_refuses_for_good_ends_the_job_at_once_in_one_line(run: Run, tmp_path: Path, fault: Any):
    with serving(lambda asked: fault) as server:
        code, out, err = run("--policy", f"openai:{server.url}", "--limit", "8", "--out", str(tmp_path))
    assert (code, out) == (1, [])
    (line,) = [line for line in err.splitlines() if "status 40" in line]
    assert line.startswith(f"agent_eval: {server.url}: status 40")
    assert len(server.asked) <= 8, "each episode in flight asks once"


def test_limits_of_an_episode_are_settings_outcomes_and_costs(run: Run, tmp_path: Path):
    with serving(lambda asked: completion("look")) as server:
        argv = ("--policy", f"openai:{server.url}", "--limit", "2", "--out", str(tmp_path), "--price-in", "1000")
        code, out, _ = run(*argv, "--episode-tokens", "18")
        printed = json.loads(out[-1])
    assert (code, printed["scored"]) == (0, 2)
    assert printed["cost"] == {"policy": 0.028, "outside": 0.0}
    episodes = read_episodes(tmp_path / "episodes.jsonl")
    assert {(e.outcome.value, len(e.trajectory.steps)) for e in episodes} == {("token_limit", 2)}
    assert json.loads((tmp_path / "report.json").read_text())["notes"]["episode_tokens"] == 18
