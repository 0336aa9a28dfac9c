"""Before an endpoint is asked for a reply: models, keys and lengths that do not fit are said, and nothing is paid."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.conftest import Endpoint, Run


def test_a_model_that_is_not_served_and_a_key_that_is_refused_are_said_unpaid(
    run: Run, endpoint: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = endpoint({"id": "a"}, {"id": "b"})
    _, said = run("--policy", served.policy, "--policy-model", "c")
    assert "model 'c' is not served (served: a, b)" in said[0]
    _, said = run("--policy", served.policy)
    assert "--policy-model" in said[0]
    monkeypatch.setenv("WRONG", "secret-and-wrong")
    locked = endpoint({"id": "a"}, key="right")
    _, said = run("--policy", locked.policy, "--policy-key-env", "WRONG")
    assert "--policy-key-env WRONG" in said[0]
    assert "secret-and-wrong" not in said[0]
    assert served.paid == locked.paid == 0


@pytest.mark.parametrize("status", [403, 404, 405])
def test_a_gateway_that_lists_no_models_is_played_with_where_the_model_is_named(
    run: Run, data_dir: Path, endpoint: Callable[..., Endpoint], status: int
) -> None:
    gateway = endpoint(lists=status)
    argv = ("--benchmark", "mint/math", "--data", str(data_dir), "--policy", gateway.policy)
    code, said = run(*argv)
    assert (code, len(said)) == (1, 1)
    assert "say with --policy-model which model to ask (served: it does not say)" in said[0]
    with pytest.raises(pytest.fail.Exception, match="something was started"):
        run(*argv, "--policy-model", "m")


def test_an_address_with_a_query_is_one_line_that_does_not_show_it(run: Run) -> None:
    code, said = run("--policy", "openai:http://127.0.0.1:9/v1?api_key=sk-sesame")
    assert code == 1
    assert "must hold neither ? nor #" in said[0]
    assert "sesame" not in "\n".join(said)


def test_of_a_missing_key_alone_nothing_else_follows(run: Run, endpoint: Callable[..., Endpoint]) -> None:
    locked = endpoint({"id": "a"}, key="right")
    code, said = run("--policy", locked.policy, "--policy-key-env", "NO_SUCH_KEY")
    assert (code, len(said)) == (1, 1)
    assert "--policy-key-env NO_SUCH_KEY: there is no such environment variable" in said[0]


def test_a_silent_endpoint_is_given_up_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lemur_ray.evaluation.preflight.LOOK_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and never says a word
        code, said = run("--policy", f"openai:http://127.0.0.1:{listener.getsockname()[1]}/v1")
    assert code == 75, "the same command helps, once it answers"
    assert "is the server running?" in said[0]


@pytest.mark.parametrize("counts", [True, False])
def test_a_context_that_is_too_short_for_prompt_and_reply_is_refused(
    run: Run, data_dir: Path, endpoint: Callable[..., Endpoint], counts: bool
) -> None:
    short = endpoint({"id": "m", "max_model_len": 1024}, counts=counts)
    argv = ("--benchmark", "mint/math", "--data", str(data_dir), "--policy", short.policy)
    code, said = run(*argv)
    assert code == 1
    assert "the context of m is 1024 tokens" in said[-1]
    assert "a reply may have 512" in said[-1]
    assert short.paid == 0


def test_where_no_reply_fits_no_length_of_one_is_advised(
    run: Run, data_dir: Path, endpoint: Callable[..., Endpoint]
) -> None:
    tiny = endpoint({"id": "m", "max_model_len": 64})
    argv = ("--data", str(data_dir), "--policy", tiny.policy)
    _, said = run("--benchmark", "mint/math", *argv)
    assert "so no reply fits, however short: serve the model with a longer context, shorten the prompt" in said[-1]
    assert "--max-tokens" not in said[-1]
    assert "--shots" not in said[-1], "it has no such option"


def test_a_context_that_is_long_enough_lets_the_evaluation_begin(
    run: Run, data_dir: Path, endpoint: Callable[..., Endpoint]
) -> None:
    long = endpoint({"id": "m", "max_model_len": 4096})
    with pytest.raises(pytest.fail.Exception, match="something was started"):
        run("--benchmark", "mint/math", "--data", str(data_dir), "--policy", long.policy)
