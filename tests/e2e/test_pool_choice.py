"""Where episodes are played if --actors is not given: threads for text environments, Ray otherwise."""

import json
from pathlib import Path

import pytest

from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.evaluation import evaluate
from lemur_ray.rollout.benchmark_tasks import parse_evaluation
from tests.agents.misbehaving import completion, serving
from tests.e2e.conftest import Run

ENDPOINT = PolicySpec("openai", "http://127.0.0.1:1/v1", "toy")


def test_text_games_against_an_endpoint_are_played_in_threads(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(evaluate, "has_cluster", lambda: False)  # another test of this process may have joined one
    monkeypatch.setattr(evaluate, "connect", lambda **_: pytest.fail("Ray is started"))
    with serving(lambda asked: completion("look")) as server:
        words = ("--policy", f"openai:{server.url}", "--actors", "None", "--limit", "2", "--out", str(tmp_path))
        code, out, err = run(*words)
        assert (code, json.loads(out[-1])["scored"]) == (0, 2)
        assert "alfworld/text is played in threads: its episodes are texts and queries (--actors 2 starts Ray)\n" in err
        assert "is played in" not in run(*words)[2]  # nothing is left to play


@pytest.mark.parametrize(
    ("benchmark", "policy", "cluster", "expected", "printed"),
    [
        ("alfworld/text", ENDPOINT, False, 0, "threads: its episodes are texts and queries (--actors 2 starts Ray)"),
        ("alfworld/text", ENDPOINT, True, 2, "Ray actors: a Ray cluster is there (--actors 0 plays in threads)"),
        ("alfworld/text", PolicySpec("checkpoint"), False, 2, "Ray actors: the model is served on Ray"),
        ("gsm8k", ENDPOINT, False, 0, "threads"),
        ("intercode/sql", ENDPOINT, False, 0, "threads"),
        ("humaneval", ENDPOINT, False, 2, "Ray actors: its episodes run programs"),
        ("webarena/standin", ENDPOINT, False, 2, "Ray actors: its episodes run programs"),
        ("alfworld/text", PolicySpec("human"), True, 0, ""),
    ],
)
def test_the_choice_is_printed_with_the_flag_for_the_other_one(
    benchmark: str,
    policy: PolicySpec,
    cluster: bool,
    expected: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(evaluate, "has_cluster", lambda: cluster)
    words = [
        "--benchmark",
        benchmark,
        "--policy",
        policy.kind if policy.kind != "openai" else f"openai:{policy.target}",
    ]
    assert evaluate.choose_actors(parse_evaluation(words, benchmark), policy) == expected
    assert printed in capsys.readouterr().err


def test_a_named_cluster_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert evaluate.has_cluster()
