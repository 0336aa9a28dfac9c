"""``jobs/agent_eval.py`` from the command line to the report, without Ray and without a model of ours."""

import json
import os
import re
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from envs.intercode.benchmark import SqlOptions
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest, all_options
from lemur_ray.rollout import evaluation_config
from lemur_ray.rollout.endpoints.policy_target import checkpoint_label, newest_run, pin_checkpoint
from lemur_ray.rollout.evaluation_folder import EvaluationError
from lemur_ray.rollout.ledger import Ledger, read_episodes
from tests.agents.misbehaving import completion, serving
from tests.e2e.conftest import Run


@pytest.mark.parametrize("benchmark", ["alfworld/text", "intercode/sql"])
def test_the_expert_solves_everything_and_the_last_line_says_so(run: Run, lemur_home: Path, benchmark: str):
    code, out, err = run("--benchmark", benchmark, "--policy", "expert", "--limit", "12")
    folder = lemur_home / "episodes" / f"{benchmark.replace('/', '-')}-expert"
    printed = json.loads(out[-1])
    wanted = {"benchmark": benchmark, "n": 12, "scored": 12, "solved": 12, "success_rate": 1.0, "missing": 0}
    assert code == 0
    assert {name: printed[name] for name in wanted} == wanted
    assert printed["out"] == str(folder)
    assert str(folder) in err
    assert "12/12 done, 12 solved" in err
    assert json.loads((folder / "report.json").read_text())["solved"] == 12
    assert "<html" in (folder / "index.html").read_text()


def test_the_same_command_again_plays_nothing_and_says_the_same(run: Run, lemur_home: Path):
    argv = ("--benchmark", "intercode/sql", "--policy", "random", "--limit", "6")
    _, first, _ = run(*argv)
    ledger = lemur_home / "episodes" / "intercode-sql-random" / "episodes.jsonl"
    before = ledger.read_bytes()
    code, second, err = run(*argv)
    assert (code, second[-1]) == (0, first[-1])
    assert ledger.read_bytes() == before
    assert "6 of 6 episodes are in the ledger" in err
    code, more, err = run(*argv[:-1], "8")
    assert json.loads(more[-1])["n"] == 8
    assert ledger.read_bytes().startswith(before)
    assert "6 of 8 episodes are in the ledger" in err


def test_the_configuration_that_a_run_wrote_is_the_same_run(run: Run, lemur_home: Path):
    _, first, _ = run("--benchmark", "intercode/sql", "--policy", "random", "--limit", "3", "--epochs", "2")
    file = lemur_home / "episodes" / "intercode-sql-random" / "config.yaml"
    code, second, err = run("--config", str(file))
    assert (code, second[-1]) == (0, first[-1])
    assert "6 of 6 episodes are in the ledger" in err
    assert json.loads(run("--config", str(file), "--limit", "4")[1][-1])["n"] == 8


def test_epochs_play_each_task_again_with_other_seeds(run: Run, lemur_home: Path):
    code, out, _ = run("--policy", "random", "--limit", "3", "--epochs", "2")
    assert code == 0
    assert json.loads(out[-1])["n"] == 6
    episodes = read_episodes(lemur_home / "episodes" / "alfworld-text-random" / "episodes.jsonl")
    actions = {(e.key.task, e.key.epoch): [s.action for s in e.trajectory.steps] for e in episodes}
    assert all(actions[task, 0] != actions[task, 1] for task, _ in actions)


def test_flags_of_sql_reach_the_environment_and_change_the_recipe(run: Run, lemur_home: Path, tmp_path: Path):
    recipes = set()
    for more in ((), ("--handicap",), ("--reward", "tau"), ("--prompt", "brief")):
        out = tmp_path / "-".join(("out", *more))
        code, _, _ = run("--benchmark", "intercode/sql", "--policy", "expert", "--limit", "1", "--out", str(out), *more)
        assert code == 0
        (episode,) = read_episodes(out / "episodes.jsonl")
        recipes.add(episode.key.recipe)
        assert ("packages(name" in episode.trajectory.opening[0].content) == ("--handicap" in more)
    assert len(recipes) == 4


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ("--benchmark", "alfwrld/text"),
            r"did you mean 'alfworld/text'\? \(known: alfworld/.*intercode/bash, .*mint/",
        ),
        (("--policy", "rndom"), "expected one of openai:URL"),
        ((), r"runs: no checkpoint yet; run jobs/pretrain.py"),
        (("--policy", "checkpoint:nothing"), "neither a folder nor a run"),
        (("--policy", "random", "--out", "nosuch://x"), "nosuch://x cannot be written from here: Protocol not known"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(run: Run, lemur_home: Path, argv: tuple[str, ...], message: str):
    code, out, err = run(*argv)
    assert code == 1
    assert out == []
    assert re.search(message, err), err
    assert err.count("\n") <= 2


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_begun(run: Run, tmp_path: Path):
    (tmp_path / "file").write_text("")
    code, _, err = run("--policy", "openai:http://127.0.0.1:9/v1", "--out", str(tmp_path / "file" / "out"))
    assert code == 1
    assert "is not writable" in err


def test_no_tasks_are_an_error_and_never_a_success(run: Run, monkeypatch: pytest.MonkeyPatch):
    empty = Benchmark(SqlOptions, lambda options, request: [], {"full": 1, "brief": 1}, has_hints=True)
    monkeypatch.setattr("envs.intercode.benchmark.EMPTY", empty, raising=False)
    code, out, err = run("--benchmark", "envs.intercode.benchmark:EMPTY", "--policy", "random")
    assert (code, out) == (1, [])
    assert "envs.intercode.benchmark:EMPTY: no tasks, so nothing to evaluate" in err


def test_an_unknown_flag_names_the_nearest_one(run: Run, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        run("--benchmrk", "alfworld/text")
    assert ended.value.code == 2
    assert "--benchmark" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    ["--in-flight 0", "--epochs 0", "--actors -1", "--limit -1", "--temperature -1", "--temperature nan",
     "--step-s nan", "--step-s 0", "--patience-s inf"],
)  # fmt: skip
def test_a_number_that_makes_no_sense_is_refused_before_anything_is_begun(
    run: Run, capsys: pytest.CaptureFixture[str], argv: str
):
    with pytest.raises(SystemExit) as ended:
        run("--policy", "random", *argv.split())
    assert ended.value.code == 2
    assert f"{argv}: expected" in capsys.readouterr().err


def test_a_second_run_into_the_same_folder_is_refused(run: Run, tmp_path: Path):
    (tmp_path / "out").mkdir()
    with Ledger(tmp_path / "out" / "episodes.jsonl"):
        code, _, err = run("--policy", "expert", "--limit", "1", "--out", str(tmp_path / "out"))
    assert code == 1
    assert "another run is writing" in err


def test_a_broken_ledger_is_named_by_file_and_line(run: Run, tmp_path: Path):
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    code, _, err = run("--policy", "expert", "--limit", "1", "--out", str(tmp_path))
    assert code == 1
    assert "episodes.jsonl, line 1: not an episode record" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_says_how_to_go_on_and_goes_on(run: Run, tmp_path: Path, number: signal.Signals):
    once = threading.Lock()
    ledger = tmp_path / "episodes.jsonl"
    # A shell's background ignores Ctrl-C, and libraries that were loaded before may have taken it for themselves.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def answer(asked: dict[str, Any]) -> Any:
        if ledger.stat().st_size and once.acquire(blocking=False):
            os.kill(os.getpid(), number)
        return completion("SHOW TABLES")

    with serving(answer) as server:
        argv = ("--benchmark", "intercode/sql", "--policy", f"openai:{server.url}", "--limit", "12")
        argv += ("--in-flight", "2", "--out", str(tmp_path))
        code, out, err = run(*argv)
        assert (code, out) == (130, [])
        assert "the same command goes on" in err
        finished = ledger.read_bytes()
        code, out, _ = run(*argv)
    assert code == 0
    assert json.loads(out[-1])["n"] == 12
    assert ledger.read_bytes().startswith(finished)


# Checkpoints by name


def write_checkpoint(folder: Path, weights: str = "") -> Path:
    """Files as orbax leaves them, without arrays."""
    for name in ("plan", "state"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder.parents[1] / "recipe.json").write_text("{}")
    (folder / "plan" / "metadata").write_text('{"rows": 1}')
    (folder / "state" / "_METADATA").write_text("{}")
    (folder / "state" / "manifest.ocdbt").write_text(weights)
    return folder


def test_the_newest_whole_checkpoint_is_found_and_its_name_changes_with_its_weights(tmp_path: Path):
    written = (("old", "100", 1_000), ("new", "7", 9_000), ("new", "20", 3_000), ("half", "5.tmp", 9_999))
    for run, step, time_ns in written:
        os.utime(write_checkpoint(tmp_path / run / "checkpoints" / step), ns=(time_ns, time_ns))
    (write_checkpoint(tmp_path / "new" / "checkpoints" / "21") / "state" / "_METADATA").unlink()  # torn: plan only
    assert newest_run(tmp_path) == tmp_path / "new"
    newest = pin_checkpoint(str(tmp_path / "new"))
    assert newest == str(tmp_path / "new" / "checkpoints" / "20")
    label = checkpoint_label(newest)
    assert re.fullmatch("new@20-[0-9a-f]{8}", label)
    write_checkpoint(Path(newest), "other weights")
    assert checkpoint_label(newest) != label
    assert checkpoint_label("random:nano") == pin_checkpoint("random:nano") == "random:nano"
    with pytest.raises(EvaluationError, match="no committed checkpoint yet"):
        pin_checkpoint(str(tmp_path / "half"))


def test_every_set_of_weights_has_a_name_of_its_own(tmp_path: Path):
    steps = [write_checkpoint(tmp_path / run / "checkpoints" / "500", run) for run in ("a", "b")]
    folders = [tmp_path / place / "Llama" for place in ("x", "y")]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"a" * 9_000 + bytes([number]) * 9_000)
    names = [checkpoint_label(str(folder)) for folder in (*steps, *folders)]
    assert [name.split("-")[0] for name in names[:2]] == ["a@500", "b@500"]
    assert [name.split("@")[0] for name in names[2:]] == ["Llama", "Llama"]
    assert len(set(names)) == 4


def test_a_finished_evaluation_of_an_old_version_does_not_hide_the_new_one(run: Run, tmp_path: Path, lemur_home: Path):
    with serving(lambda asked: completion("look")) as server:
        argv = ("--policy", f"openai:{server.url}", "--limit", "2")
        asked = []
        for version in ("500-aaaaaaaa", "500-bbbbbbbb"):
            server.version = version
            for out in ((), ("--out", str(tmp_path / "one"))):
                code, lines, err = run(*argv, *out)
                assert (code, json.loads(lines[-1])["policy"]) == (0, f"openai:toy@{version}")
                assert "are in the ledger" not in err
                assert "does not say which version" not in err
                asked.append(len(server.asked))
        assert len(set(asked)) == 4
        server.version = ""
        _, _, err = run(*argv)
        assert "does not say which version of toy it serves" in err
    assert sorted(folder.name for folder in (lemur_home / "episodes").iterdir()) == [
        "alfworld-text-openai-toy",
        "alfworld-text-openai-toy@500-aaaaaaaa",
        "alfworld-text-openai-toy@500-bbbbbbbb",
    ]
    assert len(read_episodes(tmp_path / "one" / "episodes.jsonl")) == 4
    page = (tmp_path / "one" / "index.html").read_text()
    assert "Earlier versions" in page
    assert "openai:toy@500-aaaaaaaa" in page


def test_the_recipe_of_an_evaluation_is_what_changes_its_numbers():
    def recipe(**changes: Any) -> str:
        own = {name: changes.pop(name) for name in ("reward", "handicap", "engine") if name in changes}
        config = evaluation_config.EvalConfig(options=SqlOptions(**own), benchmark="intercode/sql", **changes)
        identity = all_options(config.options, EvaluationRequest())
        return evaluation_config.settings_of(config, "full", 64, [], identity).hash

    assert recipe() == recipe(limit=3, epochs=2, in_flight=5, out="x", policy="random", actors=7, engine="mysql:x")
    changed = [recipe(), recipe(reward="tau"), recipe(handicap=True), recipe(max_tokens=9), recipe(temperature=0.5)]
    assert len({*changed, recipe(seed=1)}) == 6


def test_a_recording_is_known_by_its_content_and_not_by_its_name(tmp_path: Path):
    config: Any = evaluation_config.EvalConfig(options=None, benchmark="x")
    hashes = set()
    for folder, content in (("a", "{}"), ("b", "{ }")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_text(content)
        recording = str(tmp_path / folder / "run.json")
        hashes.add(evaluation_config.settings_of(config, "full", 64, [], {}, recording=recording).hash)
    assert len(hashes | {evaluation_config.settings_of(config, "full", 64, [], {}).hash}) == 3


def test_a_benchmark_without_expert_says_so_before_anything_is_played(run: Run, data_dir: Path, tmp_path: Path):
    code, _, err = run(
        *("--benchmark", "mint/math", "--policy", "expert", "--data", str(data_dir), "--out", str(tmp_path / "x"))
    )
    assert code == 1
    assert "neither expert nor actions to draw" in err
    assert not (tmp_path / "x" / "episodes.jsonl").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--feedback", "textual"), "option teacher: ''"),
        (("--wikipedia", "bogus"), "option wikipedia: 'bogus'"),
        (("--policy", "replay:{data}/mint/outputs/gpt-3.5-turbo-0613/F=None/gsm8k.results.jsonl.gz"), "run of another"),
    ],
)
def test_settings_of_mint_that_cannot_work_are_refused_before_anything_is_played(
    run: Run, data_dir: Path, tmp_path: Path, flags: tuple[str, ...], said: str
):
    chosen = tuple(flag.format(data=data_dir) for flag in flags)
    with serving(lambda asked: completion("x")) as server:
        policy = () if "--policy" in flags else ("--policy", f"openai:{server.url}")
        code, _, err = run(
            *("--benchmark", "mint/math", "--data", str(data_dir), "--out", str(tmp_path / "x"), *policy, *chosen)
        )
    assert code in (1, 2)
    assert said in err
    assert not (tmp_path / "x" / "episodes.jsonl").exists()


def test_a_view_on_a_port_that_is_taken_is_refused_before_anything_is_played(run: Run, lemur_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run("--benchmark", "intercode/sql", "--policy", "random", "--limit", "1", "--view", str(port))
    assert code == 1
    assert f"--view {port}: somebody listens there already; choose another port" in err
    assert not list(lemur_home.rglob("episodes.jsonl"))
