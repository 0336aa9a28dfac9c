"""Before anything is played: each missing thing is really missing here, all are in one list, and nothing is started."""

from __future__ import annotations

import importlib
import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lemur_ray.benchmarks import sandboxed
from lemur_ray.benchmarks.contract import Asked
from lemur_ray.benchmarks.discovery import find, names
from lemur_ray.benchmarks.listing import lines, listed
from lemur_ray.benchmarks.needs import Need, lacking, there
from lemur_ray.benchmarks.sandboxed import Sandboxed, lacking_programs, sandbox_need, without
from lemur_ray.rollout.evaluation_config import EvalConfig
from tests.conftest import ROOT
from tests.envs.webarena.small_site import record

Run = Callable[..., tuple[int, list[str]]]


class Endpoint:
    """Tells of its models and counts tokens; whoever asks it for a reply has paid."""

    def __init__(self, models: list[dict[str, Any]], key: str = "", counts: bool = True, lists: int = 200) -> None:
        self.paid = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                refused = bool(key) and self.headers.get("Authorization") != f"Bearer {key}"
                status = 401 if refused else lists
                self._say(status, {"object": "list", "data": models} if status == 200 else {"error": "no"})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/tokenize" and counts:
                    return self._say(200, {"count": len(json.loads(body)["prompt"].split())})
                outer.paid += self.path.endswith("/completions")
                return self._say(404, {})

            def _say(self, status: int, value: Any) -> None:
                text = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.policy = f"openai:http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Callable[..., Endpoint]]:
    made: list[Endpoint] = []

    def make(*models: dict[str, Any], **options: Any) -> Endpoint:
        made.append(Endpoint(list(models), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def run(lemur_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The job in this process, where neither Ray nor a pool may be started: exit code, and what it says."""
    monkeypatch.delenv("LEMUR_DATA", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job, evaluation = importlib.import_module("agent_eval"), importlib.import_module("_evaluate")
    for name in ("pool_of", "_pool"):
        monkeypatch.setattr(evaluation, name, lambda *a: pytest.fail("something was started"))

    def run_job(*argv: str) -> tuple[int, list[str]]:
        code = job.main(list(argv))
        captured = capsys.readouterr()
        return code, (captured.err or captured.out).splitlines()

    return run_job


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nothing is on the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_everything_that_is_missing_is_in_one_list(run: Run, no_programs: None, tmp_path: Path) -> None:
    code, said = run(
        *("--benchmark", "mint/alfworld", "--data", str(tmp_path / "empty"), "--policy", "openai:http://127.0.0.1:9/v1"),
        *("--policy-key-env", "NO_SUCH_KEY", "--wikipedia", f"index:{tmp_path}/none", "--out", str(tmp_path / "out")),
        *("--feedback", "textual", "--teacher", "openai:http://127.0.0.1:7/v1#t", "--teacher-key-env", "NOR_THIS"),
    )  # fmt: skip
    assert code == 1
    assert said[0] == "agent_eval: mint/alfworld is not begun:"
    told = "\n".join(said[1:])
    for what in (
        "--policy-key-env NO_SUCH_KEY",
        "--teacher-key-env NOR_THIS",
        "nothing answers at http://127.0.0.1:9/v1",
        "nothing answers at http://127.0.0.1:7/v1",
        "Fetch it with: python jobs/fetch_data.py mint/alfworld --data",
    ):
        assert what in told
    assert "sandbox bwrap: not installed" in told
    assert "apt-get install -y bubblewrap" in told
    assert "no such index; build it with jobs/index_wikipedia.py" in told
    assert told.count("mint/tasks/alfworld/valid_unseen_134_games.tar.gz: not there") == 1
    assert not (tmp_path / "out").exists()


def test_one_thing_that_is_missing_is_one_line(run: Run, data_dir: Path, no_programs: None) -> None:
    code, said = run("--benchmark", "intercode/python", "--data", str(data_dir), "--policy", "expert")
    assert (code, len(said)) == (1, 1)
    assert "apt-get install -y bubblewrap" in said[0]


def test_a_policy_that_cannot_play_stands_among_what_is_missing(run: Run, tmp_path: Path) -> None:
    code, said = run("--benchmark", "mint/math", "--data", str(tmp_path), "--policy", "expert")
    assert code == 1
    assert "mint/math has neither expert nor actions to draw" in said[1]
    assert "math.test_prompts.jsonl.gz: not there" in said[2]


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
    monkeypatch.setattr("lemur_ray.preflight.LOOK_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and never says a word
        code, said = run("--policy", f"openai:http://127.0.0.1:{listener.getsockname()[1]}/v1")
    assert code == 1
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


def test_a_step_that_is_shorter_than_a_benchmarks_own_limits_is_refused(
    run: Run, data_dir: Path, endpoint: Callable[..., Endpoint]
) -> None:
    served = endpoint({"id": "m", "max_model_len": 4096})
    argv = ("--benchmark", "intercode/sql", "--data", str(data_dir), "--policy", served.policy, "--step-s")
    code, said = run(*argv, "10")
    assert code == 1
    assert "--step-s 10: a policy may keep a step of intercode/sql busy for up to 20 s: give --step-s 20 or" in said[-1]
    with pytest.raises(pytest.fail.Exception, match="something was started"):
        run(*argv, "20")


def test_chosen_tasks_that_cannot_be_played_here_end_an_evaluation_before_it_begins(
    run: Run, tmp_path: Path, endpoint: Callable[..., Endpoint]
) -> None:
    tasks, sites = tmp_path / "tasks.json", tmp_path / "sites.json"
    tasks.write_text(json.dumps([record(0), {**record(1), "sites": ["map"]}]))
    sites.write_text(json.dumps({"sets": [{"name": "a", "urls": {"SHOPPING": "http://127.0.0.1:9"}}]}))
    served = endpoint({"id": "m", "max_model_len": 4096})
    argv = ("--benchmark", "webarena/webarena", "--sites-file", str(sites), "--task-file", str(tasks))
    for chosen, num_lines in {"0:2": 1, "0": 0}.items():
        code, said = run(*argv, "--policy", served.policy, "--tasks", chosen)
        assert code == 1
        assert sum("1 of 2 tasks have to do with MAP" in line for line in said) == num_lines
        assert any("http://127.0.0.1:9: start them" in line for line in said)


def test_no_benchmark_needs_more_for_a_step_than_there_is_by_default_or_less_than_its_own_limits() -> None:
    from envs.intercode.python_env import TIME_S as CELL_S
    from envs.intercode.shell.bash_env import LIMITS
    from envs.mint.python_tool import _SLACK_S, TIME_S
    from envs.programs.multipl_e.toolchains import TOOLCHAINS
    from envs.programs.robocodegen.results import TOTAL_S
    from envs.programs.spider.execution import TOTAL_S as QUERIES_S
    from lemur_ray.grading import python_tests as tested
    from lemur_ray.sandbox.python_repl import HARD_S

    program_s = tested.PATIENCE * tested.TIME_S + tested.SLACK_S + tested._TESTER_S
    own = {
        "intercode/bash": LIMITS.time_s,
        "intercode/python": CELL_S + HARD_S + program_s,
        "mint/mbpp": max(TIME_S + _SLACK_S, program_s),
        "mbpp": program_s,
        "spider": QUERIES_S,
        "robocodegen": TOTAL_S,
        **{f"multipl_e/{name}": (len(t.steps) - 1) * t.compile_s + t.run_s for name, t in TOOLCHAINS.items()},
    }
    for name in names():
        assert own.get(name, 0) < find(name).step_s <= EvalConfig(None, "").step_s


def test_data_that_is_not_said_where_is_said_once(run: Run) -> None:
    code, said = run("--benchmark", "intercode/bash", "--policy", "expert")
    assert (code, len(said)) == (1, 1)
    assert "--data DIR or LEMUR_DATA" in said[0]


def test_a_database_server_that_is_not_there_is_missing(data_dir: Path) -> None:
    sql = find("intercode/sql")
    options = sql.options(engine="mysql://root@127.0.0.1:9")
    (said,) = lacking(sql.needs(options, Asked(data_dir)))
    assert "127.0.0.1:9" in said or "pymysql" in said.lower()


def test_recorded_submissions_are_graded_without_a_sandbox(data_dir: Path, no_programs: None, tmp_path: Path) -> None:
    graded = Asked(data_dir, recording=tmp_path / "log.json", mode="grading")
    for name in ("intercode/ctf", "mint/math"):
        benchmark = find(name)
        assert lacking(benchmark.needs(benchmark.options(), graded)) == []
        assert any("bubblewrap" in said for said in lacking(benchmark.needs(benchmark.options(), Asked(data_dir))))


def test_a_look_that_fails_in_any_way_is_something_missing() -> None:
    def broken() -> None:
        raise KeyError("x")

    assert lacking([there("a", broken), Need("b", lambda: None), Need("c", lambda: "c is gone")]) == [
        "'x'",
        "c is gone",
    ]
    assert lacking([there("d", partial(int, "z"))]) == ["invalid literal for int() with base 10: 'z'"]


def test_programs_that_the_sandbox_lacks_are_told_with_their_packages(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/gdb").touch(mode=0o755)
    tools = {"gdb": "gdb", "nc": "netcat-openbsd", "mmls": "sleuthkit"}
    assert lacking_programs(Sandboxed(), tools, str(root)) == {"nc": "netcat-openbsd", "mmls": "sleuthkit"}
    (said,) = without(Sandboxed(), tools, str(root))
    assert said == "sandbox without mmls, nc (apt-get install -y netcat-openbsd sleuthkit)"
    assert without(Sandboxed(), {"gdb": "gdb"}, str(root)) == ()


def test_an_image_of_an_earlier_list_of_packages_is_to_be_built_before_and_not_by_the_first_episode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lemur_ray.doctor.machine import Check
    from lemur_ray.sandbox.housing import docker_image

    there = Check("docker", "ok", "engine 27, sandbox image lemur-sandbox:0123", "")
    monkeypatch.setitem(sandboxed._CHECKS, "docker", lambda machine: there)
    monkeypatch.setattr(docker_image, "found", lambda image: None)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda *a: pytest.fail("a sandbox was opened"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")  # nobody has looked at that one
    said = sandbox_need(Sandboxed("docker")).missing()
    assert said is not None
    assert said.endswith("which is of an earlier list of packages: python -m lemur_ray.sandbox.docker_image")


def test_a_sandbox_is_really_opened() -> None:
    assert sandbox_need(Sandboxed()).missing() is None


def test_the_words_of_mint_are_ours_where_no_run_is_at_hand(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mint").mkdir()
    for name in ("tasks", "in_context_examples"):
        (tmp_path / "mint" / name).symlink_to(data_dir / "mint" / name)
    mint = find("mint/gsm8k")
    options = mint.options()
    for data, said in ((tmp_path, 1), (data_dir, 0)):
        tasks = list(mint.load(options, Asked(data)))
        assert len(mint.departures(options, Asked(data), tasks)) == said
        assert tasks[0].options["prompt"] in mint.opening(tasks[0])


def test_the_list_has_every_benchmark_and_what_is_missing_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = run("--list", "--data", str(tmp_path))
    assert code == 0
    first = {line.split()[0] for line in said if line and not line.startswith(" ")}
    assert set(names()) <= first
    assert said[0].split() == ["BENCHMARK", "HERE", "NEEDS", "TASKS"]
    assert any(line.startswith("alfworld/text") and line.split()[1:3] == ["ready", "nothing"] for line in said)
    assert sum("ic_ctf.json.gz: not there" in line for line in said) == 1
    assert run("--list", "--policy", "expert")[0] == 1
    _, said = run("--list")
    assert sum("say where it lies, --data DIR or LEMUR_DATA" in line for line in said) == 1


def test_a_package_that_cannot_be_imported_is_in_the_list_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lemur_ray.benchmarks.discovery._offered", lambda path: (("broken", "no_such_module"),))
    (line,) = [one for one in listed(None) if one.name == "broken"]
    assert "no_such_module cannot be imported: ModuleNotFoundError" in line.lacks[0]
    assert any("no_such_module" in shown for shown in lines([line]))
