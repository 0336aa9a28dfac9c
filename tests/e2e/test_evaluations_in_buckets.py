"""``jobs/agent_eval.py --out gs://...`` and what reads it: taken up on any host, one at a time, reported from there."""

import importlib
import json
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lemur_ray.agents.replay_goals import RecordedRun
from lemur_ray.host.exit_codes import ExitCode
from lemur_ray.rollout.ledger import read_episodes
from lemur_ray.storage import bucket_lease
from lemur_ray.storage.bucket_lease import BucketLease
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.growing_file import read_growing
from tests.agents.misbehaving import completion, serving
from tests.conftest import ROOT
from tests.e2e.conftest import Run
from tests.e2e.processes import kill_hard
from tests.e2e.test_chaos_agents import SAID, Driver, MoodyModel
from tests.storage.bucket_server import Service
from tests.storage.conftest import amazon, google, moto_url  # noqa: F401  # fixtures

SQL = ("--benchmark", "intercode/sql", "--policy", "random")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_lease, "HEARTBEAT_S", 0.2)


def report(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str], str]:
    code = importlib.import_module("report").main(argv)
    captured = capsys.readouterr()
    sys.modules.pop("report")
    return code, captured.out.splitlines(), captured.err


@pytest.mark.parametrize("kind", ["gs", pytest.param("s3", marks=pytest.mark.slow)])
def test_an_evaluation_in_a_bucket_goes_on_where_nothing_is_left_of_it_and_is_reported_from_there(
    kind: str,
    run: Run,
    lemur_home: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
):
    request.getfixturevalue("google" if kind == "gs" else "amazon")
    bucket = "gs://bucket" if kind == "gs" else str(request.getfixturevalue("amazon"))
    out = f"{bucket}/episodes/sql"
    code, printed, err = run(*SQL, "--limit", "4", "--out", f"{out}/")
    assert (code, json.loads(printed[-1])["out"], json.loads(printed[-1])["n"]) == (0, out, 4), err
    fs, there = file_system(out)
    ledger = fs.cat_file(f"{there}/episodes.jsonl")
    assert ledger.count(b"\n") == 4
    assert b"<html" in fs.cat_file(f"{there}/index.html")
    assert json.loads(fs.cat_file(f"{there}/report.json"))["n"] == 4
    shutil.rmtree(lemur_home / "copies")
    code, printed, err = run(*SQL, "--limit", "6", "--out", out)
    assert (code, json.loads(printed[-1])["n"]) == (0, 6)
    assert "4 of 6 episodes are in the ledger" in err
    assert fs.cat_file(f"{there}/episodes.jsonl").startswith(ledger)
    shutil.rmtree(lemur_home / "copies")
    code, lines, err = report(capsys, "--episodes", out, "--out", f"{bucket}/report")
    assert code == 0, err
    assert lines[-2] == f"{bucket}/report/index.html"
    assert json.loads(lines[-1])["agents"][0]["n"] == 6
    assert b"<html" in fs.cat_file(f"{bucket}/report/index.html")
    assert str(lemur_home).encode() not in fs.cat_file(f"{bucket}/report/report.json")
    code, lines, _ = report(capsys, "--episodes", out, "--find", "select")
    assert (code, json.loads(lines[-1])["find"]) == (0, "select")


def test_replays_of_recorded_runs_are_kept_in_a_bucket_and_go_on_there(
    google: Service,  # noqa: F811
    lemur_home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job = importlib.import_module("fidelity")
    runs = [RecordedRun(Path(f"{name}.json"), name, "intercode/sql", "strict") for name in ("one", "two")]
    found_before: list[bool] = []

    def evaluate(config: Any) -> dict[str, Any]:
        ledger = Path(config.out) / "episodes.jsonl"
        found_before.append(ledger.exists())
        ledger.parent.mkdir(exist_ok=True)
        ledger.write_text('{"an": "episode"}\n')
        return {"agreement_counts": {"episodes": 4, "same_success": 4}}

    monkeypatch.setattr(job, "recorded_runs", lambda data, strict: iter(runs))
    monkeypatch.setattr(job, "evaluate", evaluate)
    monkeypatch.setattr(job, "parse_evaluation", lambda words, _: SimpleNamespace(out=words[words.index("--out") + 1]))
    try:
        for again in (False, True):
            assert job.main(["--data", "somewhere", "--out", "gs://bucket/replays"]) == 0
            said = json.loads(capsys.readouterr().out.splitlines()[-1])
            assert (said["runs"], said["page"]) == (2, "gs://bucket/replays/index.html")
            assert found_before == [again, again]
            found_before.clear()
            fs, there = file_system("gs://bucket/replays")
            assert fs.cat_file(f"{there}/two/episodes.jsonl") == b'{"an": "episode"}\n'
            assert json.loads(fs.cat_file(f"{there}/fidelity.json"))["runs"][1]["run"] == "two"
            assert fs.cat_file(f"{there}/index.html")
            shutil.rmtree(lemur_home / "copies")
    finally:
        for name in ("fidelity", "_path"):
            sys.modules.pop(name, None)


def test_what_is_not_in_a_bucket_is_one_sentence_of_a_report(
    google: Service,  # noqa: F811
    run: Run,
    capsys: pytest.CaptureFixture[str],
):
    for argv, said in (
        (("--episodes", "gs://bucket/none"), "gs://bucket/none has no episodes.jsonl: give the folder"),
        (("--runs", "gs://bucket/runs/x"), "gs://bucket/runs/x is not a run folder: it has no recipe.json"),
        (("--out", "gs://nowhere/report"), "gs://nowhere/report: there is no such bucket"),
    ):
        code, lines, err = report(capsys, *argv)
        assert (code, lines) == (1, [])
        assert said in err
        assert err.count("\n") == 1


def test_of_two_runs_with_one_out_the_second_ends_with_one_sentence(
    google: Service,  # noqa: F811
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(bucket_lease, "HEARTBEAT_S", 20.0)  # the other's first beat that is seen ends the wait
    other, over = BucketLease("gs://bucket/x", {"id": "other", "host": "elsewhere", "pid": 7}), threading.Event()
    other.take(0)

    def live() -> None:
        while not over.wait(0.1):
            other.renew()

    thread = threading.Thread(target=live)
    thread.start()
    try:
        code, out, err = run(*SQL, "--limit", "2", "--out", "gs://bucket/x")
    finally:
        over.set()
        thread.join()
    assert (code, out) == (ExitCode.TRY_AGAIN, [])
    assert "gs://bucket/x is being written by another run (process 7 on elsewhere): wait for it" in err
    assert err.count("\n") == 1
    assert google.objects.names("bucket") == ["x/.run.lease"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_bucket_that_stops_to_answer_ends_a_run_with_a_sentence_and_nothing_finished_is_played_again(
    google: Service,  # noqa: F811
    run: Run,
    lemur_home: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "10")  # as long as a busy machine may take
    asked: Counter[str] = Counter()

    def answer(body: dict[str, Any]) -> Any:
        asked[body["user"]] += 1
        if len(asked) == 4 and not google.troubles:
            monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "1")
            google.trouble(stop=True, times=10_000)
        time.sleep(0.1 if google.troubles else 0.0)
        return completion("SHOW TABLES")

    with serving(answer) as server:
        argv = ("--benchmark", "intercode/sql", "--policy", f"openai:{server.url}", "--limit", "40")
        argv += ("--in-flight", "2", "--out", "gs://bucket/x", "--max-tokens", "8")
        began = time.monotonic()
        code, out, err = run(*argv)
        assert (code, out) == (75, [])
        assert time.monotonic() - began < 120
        assert "agent_eval: gs://bucket did not answer within 1 s" in err.splitlines()[-1]
        assert "what has ended is kept in" in err.splitlines()[-1]
        (ledger,) = lemur_home.glob("copies/*/episodes.jsonl")
        finished = read_episodes(ledger)
        assert finished
        before = Counter(asked)
        google.troubles.clear()
        monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "30")
        code, out, _ = run(*argv[:5], "6", *argv[6:])
    assert (code, json.loads(out[-1])["missing"]) == (0, 0)
    assert all(asked[str(episode.key)] == before[str(episode.key)] > 0 for episode in finished)
    whole = google.objects.get("bucket", "x/episodes.jsonl", {}).data
    assert len({json.dumps(json.loads(line)["key"]) for line in whole.splitlines()}) == whole.count(b"\n")


@pytest.mark.slow
def test_a_suite_in_a_bucket_is_one_run_with_one_lease_and_a_report_takes_all_of_it(
    google: Service,  # noqa: F811
    run: Run,
    lemur_home: Path,
    data_dir: Path,
    capsys: pytest.CaptureFixture[str],
):
    with serving(lambda body: completion("<solution>1</solution>")) as server:
        argv = ("--suite", "table4", "--policy", f"openai:{server.url}", "--policy-model", "toy", "--limit", "1")
        argv += ("--data", str(data_dir), "--without", "mint/math,mint/mmlu,mint/hotpotqa", "--out", "gs://bucket/s")
        code, out, err = run(*argv)
        assert (code, json.loads(out[-1])["out"], json.loads(out[-1])["n"]) == (0, "gs://bucket/s", 2), err
        names = google.objects.names("bucket")
        assert {"s/index.html", "s/report.json", "s/mint-gsm8k/index.html", "s/mint-theoremqa/report.json"} <= {*names}
        assert [name for name in names if name.endswith(".lease")] == ["s/.run.lease"]
        numbers = json.loads(google.objects.get("bucket", "s/report.json", {}).data)
        assert [one["out"] for one in numbers["benchmarks"]] == ["mint-gsm8k", "mint-theoremqa"]
        shutil.rmtree(lemur_home / "copies")
        asked = len(server.asked)
        code, out, _ = run(*argv)
        assert (code, json.loads(out[-1])["left"], len(server.asked)) == (0, 0, asked), "nothing is played again"
    code, lines, err = report(capsys, "--episodes", "gs://bucket/s", "--out", "gs://bucket/report")
    assert code == 0, err
    assert [one["benchmark"] for one in json.loads(lines[-1])["agents"]] == ["mint/gsm8k", "mint/theoremqa"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_is_followed_by_one_on_an_empty_disk_and_every_episode_counts_once(
    google: Service,  # noqa: F811
    sample: Path,
    tmp_path: Path,
):
    program = tmp_path / "quicker.py"  # the same job, with a lease that is given up sooner
    program.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(ROOT / 'jobs')!r})\n"
        "from lemur_ray.storage import bucket_lease\nbucket_lease.HEARTBEAT_S = 0.3\n"
        f"runpy.run_path({str(ROOT / 'jobs' / 'agent_eval.py')!r}, run_name='__main__')\n"
    )
    url, model = "gs://bucket/episodes/sql", MoodyModel(SAID, 0.05)
    more = ("--benchmark", "intercode/sql", "--data", "", "--limit", "40", "--in-flight", "4", "--actors", "0")
    more += ("--out", url, "--patience-s", "60")
    seen = tmp_path / "seen.jsonl"

    def finished() -> int:
        return seen.read_bytes().count(b"\n") if read_growing(f"{url}/episodes.jsonl", seen) else 0

    with serving(model) as server:
        for home in ("first", "second"):
            (tmp_path / home / "intercode").mkdir(parents=True)
            shutil.copy(sample, tmp_path / home / "intercode")
        with Driver(server, tmp_path / "first", tmp_path / "first.log", "", *more, program=str(program)) as first:
            first.wait_for(lambda: finished() >= 10)
            kill_hard(first.process.pid)
        assert 10 <= finished() < 40
        before, asked_before = seen.read_bytes(), Counter(model.asked)
        in_bucket = read_episodes(seen)
        shutil.rmtree(tmp_path / "first")
        with Driver(server, tmp_path / "second", tmp_path / "second.log", "", *more, program=str(program)) as second:
            printed = second.end()
    assert (printed["n"], printed["out"]) == (40, url)
    assert finished() == 40
    assert seen.read_bytes().startswith(before), "what had ended was lost or rewritten"
    keys = [json.dumps(json.loads(line)["key"]) for line in seen.read_bytes().splitlines()]
    assert len(set(keys)) == 40
    for episode in in_bucket:
        assert model.asked[str(episode.key)] == asked_before[str(episode.key)] > 0, "it was played again"
    assert google.objects.get("bucket", "episodes/sql/episodes.jsonl", {}).data == seen.read_bytes()
    assert json.loads(google.objects.get("bucket", "episodes/sql/report.json", {}).data)["n"] == 40
