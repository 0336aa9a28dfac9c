"""The user's own commands on a plain head: every job submitted from the repository, with and without a working dir."""

import json
import secrets
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray.cluster.demo import Head, private_head

ROOT = Path(__file__).resolve().parents[2]
RAY = str(Path(sys.executable).parent / "ray")
TINY = ("--train.steps", "3", "--train.checkpoint-every-steps", "3")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(840)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A LEMUR_HOME, and the environment of a user: nothing but the jobs themselves finds the project."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEMUR_HOME", str(folder))
        patch.delenv("PYTHONPATH")
        yield folder


@pytest.fixture(scope="module")
def head(home: Path) -> Iterator[Head]:
    with private_head(num_cpus=4) as running:
        yield running


@pytest.fixture(scope="module")
def sources(home: Path) -> tuple[str, ...]:
    folder = home / "raw"
    folder.mkdir()
    code = [f"def f{i}(x):\n    total = x * {i}\n    return total + {i % 7}\n" * 8 for i in range(60)]
    prose = [f"The {i} boats went out in the morning and came back with the tide. " * 12 for i in range(60)]
    (folder / "code.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in code))
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in prose))
    return ("--source", f"c:code:{folder}/code.jsonl", "--source", f"t:text:{folder}/text.jsonl")


def submit(head: Head, job: str, *args: str, form: tuple[str, ...] = ()) -> dict[str, object]:
    """Submit as a user would and return the JSON object the job printed last."""
    command = [RAY, "job", "submit", "--address", head.dashboard, *form, "--", sys.executable, f"jobs/{job}.py", *args]
    done = subprocess.run(command, env=head.env, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    objects = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert objects, done.stdout[-3000:]
    result: dict[str, object] = json.loads(objects[-1])
    return result


WITH_WORKING_DIR = ("--working-dir", str(ROOT))


def test_the_way_from_raw_text_to_a_report(head: Head, home: Path, sources: tuple[str, ...]) -> None:
    """Every other job with a working directory, in which Ray Train's workers and plain actors must find the project."""
    submit(head, "build_corpus", *sources, "--vocab-size", "600", "--out", "corpus/a")
    run = submit(head, "pretrain", "nano", "--corpus", "corpus/a", "--out", "runs/a", *TINY, form=WITH_WORKING_DIR)
    assert run["steps"] == 3
    again = submit(head, "pretrain", "--config", "runs/a/config.yaml")
    assert again.pop("already_finished")
    assert again == run
    tuned = submit(
        head, "instruct", "--init-from", "runs/a", "--out", "runs/a-chat", "--games", "12", "--chats", "4", *TINY
    )
    assert tuned["steps"] == 3
    playing = ("--policy", "checkpoint:a-chat", "--limit", "2", "--max-tokens", "4", "--out", "episodes/a")
    scores = submit(head, "agent_eval", *playing, form=WITH_WORKING_DIR)
    assert (scores["n"], scores["scored"], scores["missing"]) == (2, 2, 0)
    submit(
        head, "report", "--runs", "runs/a", "runs/a-chat", "--episodes", "episodes/a", "--corpus", "corpus/a", "--out",
        "report-a",
    )  # fmt: skip
    assert "alfworld/text" in (home / "report-a" / "index.html").read_text()


@pytest.mark.sweep
def test_with_a_working_dir_jobs_tasks_and_workers_find_the_project_there(
    head: Head, home: Path, sources: tuple[str, ...]
) -> None:
    """One job on Ray Data, one on Ray Train, one of plain actors: the others start as these do."""
    form = WITH_WORKING_DIR
    submit(head, "build_corpus", *sources, "--vocab-size", "600", "--out", "corpus/b", form=form)
    run = submit(head, "pretrain", "nano", "--corpus", "corpus/b", "--out", "runs/b", *TINY, form=form)
    assert run["steps"] == 3
    scores = submit(head, "agent_eval", "--policy", "expert", "--limit", "2", "--out", "episodes/b", form=form)
    assert (scores["n"], scores["solved"]) == (2, 2)


@pytest.mark.sweep
def test_with_nothing_given_nano_is_trained_on_the_embedded_corpus_and_the_newest_checkpoint_is_played(
    head: Head, home: Path
) -> None:
    run = submit(head, "pretrain", "--train.steps", "3")
    assert (run["name"], run["out"]) == ("nano", str(home / "runs" / "nano"))
    assert (home / "corpus" / "embedded" / "manifest.json").is_file()
    scores = submit(head, "agent_eval", "--limit", "1", "--max-tokens", "4")
    assert (scores["benchmark"], scores["n"], scores["scored"]) == ("alfworld/text", 1, 1)
    assert str(scores["policy"]).startswith("nano")


@pytest.mark.sweep
def test_an_installed_package_and_the_jobs_alone_are_enough(
    head: Head, home: Path, sources: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("lemur_ray", "envs", "jobs"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path / "source")
    shutil.copytree(tmp_path / "source" / "jobs", tmp_path / "elsewhere" / "jobs")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, str(tmp_path / "source")], check=True, timeout=300)
    installed = ("--runtime-env-json", json.dumps({"env_vars": {"PYTHONPATH": str(tmp_path / "site")}}))
    alone = ("--working-dir", str(tmp_path / "elsewhere"), *installed)
    for form, name in ((alone, "c"), (installed, "d")):  # the second: in the repository, with a PYTHONPATH of one's own
        options = (*sources, "--vocab-size", "600", "--out", f"corpus/{name}")
        built = submit(head, "build_corpus", *options, form=form)
        assert built["corpus"] == str(home / "corpus" / name)


def test_a_wrong_flag_fails_the_job_and_names_the_nearest(head: Head) -> None:
    command = [
        RAY,
        "job",
        "submit",
        "--address",
        head.dashboard,
        "--",
        sys.executable,
        "jobs/pretrain.py",
        "--train.stepz",
    ]
    done = subprocess.run([*command, "3"], env=head.env, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode != 0
    assert "--train.steps" in done.stdout


def test_under_kuberay_a_job_that_needs_a_person_is_stopped_and_one_to_try_again_has_failed(head: Head) -> None:
    """KubeRay starts a new cluster for a Ray job that has failed, and none for one that was stopped."""
    again = "from lemur_ray.cluster.job_end import run; run(lambda: 75)"
    settings = json.dumps({"env_vars": {"LEMUR_RETRIED_BY": "kuberay", "PYTHONPATH": str(ROOT)}})
    for words, status, says in (
        (["jobs/pretrain.py", "--train.stepz", "3"], "STOPPED", "exit code 2: a person must act"),
        (["-c", again], "FAILED", ""),
    ):
        job = f"job-{secrets.token_hex(4)}"
        command = [RAY, "job", "submit", "--address", head.dashboard, "--submission-id", job]
        command += ["--runtime-env-json", settings, "--", sys.executable, *words]
        done = subprocess.run(command, env=head.env, cwd=ROOT, capture_output=True, text=True, timeout=200)
        token = {"Authorization": f"Bearer {head.env['RAY_AUTH_TOKEN']}"}
        request = urllib.request.Request(f"{head.dashboard}/api/jobs/{job}", headers=token)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["status"] == status, done.stdout
        assert says in done.stdout
