"""Inputs that a run refuses, each in one line and with exit code 2, before anything is started."""

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from lemur_ray.benchmarks.discovery import find
from lemur_ray.doctor.devices import Devices
from lemur_ray.improve.config import BadInput
from lemur_ray.improve.learner import Learner
from lemur_ray.improve.on_ray import backend
from lemur_ray.improve.on_ray.backend import SwapFailed, swap
from lemur_ray.improve.prepare import prepare
from lemur_ray.rollout.actors.actor_resources import MINIMAL
from lemur_ray.train.run.folder import RunFolderError
from tests.conftest import ROOT
from tests.improve.capital_game import MODEL, NAME, SEQ_LEN, config_of, start_run

Run = Callable[..., tuple[int, str]]
PLAIN = ("--benchmark", "tests.improve.capital_game:WITHOUT_SPLITS")
GAME = ("--benchmark", NAME, "--data.seq-len", str(SEQ_LEN))


@pytest.fixture
def job(lemur_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """``jobs/improve.py`` in this process: exit code and stderr."""
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.delenv("LEMUR_DATA", raising=False)
    main = importlib.import_module("improve").main
    monkeypatch.setattr("lemur_ray.improve.on_ray.backend.connect", lambda **_: pytest.fail("a run was begun"))

    def run(*argv: str) -> tuple[int, str]:
        try:
            code = main([*argv])
        except SystemExit as ended:
            code = ended.code
        return code, capsys.readouterr().err

    yield run
    for name in ("improve", "_path"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--keep", "1"), "--keep 1: expected a share from 0 to below 1"),
        (("--rounds", "3"), "--train.steps 256: expected a multiple of --rounds 3"),
        (("--games", "0"), "--games 0: expected 1 or more"),
        (("--temperature", "0"), "--temperature 0: expected a finite number above 0"),
        (("--algorithm", "rloo", "--temperature", "0.7"), "--temperature 0.7: expected 1 with --algorithm rloo"),
        (("--algorithm", "gigpo", "--samples", "1"), "--samples 1: a group of one episode has nothing to be compared"),
        (("--samples", "-1"), "--samples -1: expected 0 or more"),
        (("--replicas", "0"), "--replicas 0: expected 1 or more"),
        (("--train-tasks", "0:5"), "--train-tasks and --eval-tasks: expected both or neither"),
        (
            (*PLAIN, "--train-tasks", "0:5", "--eval-tasks", "4:9"),
            "task all-4 of tests.improve.capital_game:WITHOUT",
        ),
        (("--first-task", "90"), "0 training and 40 held-out tasks (--first-task 90): expected at least one of each"),
        (("--data.seq-len", "4096"), "--data.seq-len 4096: expected at most 192, the model's context"),
        (("--model.dim", "64"), "--model.*: the model's shape is that of --init-from"),
        (("--float64", "--mesh.use-gpu"), "--float64 with --mesh.use-gpu: expected CPUs"),
        (("--lora.rank", "4"), "--lora.rank 4: adapters are not trained here"),
        (("--mesh.num-workers", "2"), "the learner is one process"),
        (("--init-from", "nowhere"), "--init-from nowhere: "),
        (("--compare-to", "nowhere"), "--compare-to nowhere: expected the folder of a finished improvement run ("),
        (("--out", "s3://bucket/run"), "--out s3://bucket/run: rounds are written to a local folder"),
        (("--benchmark", "alfworld/txt"), "--benchmark alfworld/txt: unknown benchmark"),
    ],
)
def test_a_wrong_command_line_ends_with_code_2_and_one_line(
    job: Run, start: Path, tmp_path: Path, given: tuple[str, ...], message: str
) -> None:
    code, err = job("--init-from", str(start), "--out", str(tmp_path / "run"), *GAME, *given)
    assert code == 2
    assert len(err.strip().splitlines()) == 1, err
    assert message in err


def test_a_benchmark_without_teacher_or_splits_is_refused(job: Run, start: Path, tmp_path: Path) -> None:
    given = ("--init-from", str(start), "--out", str(tmp_path / "run"), *GAME, *PLAIN)
    code, err = job(*given, "--algorithm", "teacher")
    assert (code, "--algorithm teacher: tests.improve.capital_game:WITHOUT_SPLITS has no expert" in err) == (2, True)
    code, err = job(*given, "--control")
    assert (code, "--control: tests.improve.capital_game:WITHOUT_SPLITS has no expert" in err) == (2, True)
    code, err = job(*given)
    assert (code, "no groups of tasks: give --train-tasks and --eval-tasks" in err) == (2, True)


def test_a_run_is_never_written_over_the_one_that_it_starts_from(job: Run, start: Path, tmp_path: Path) -> None:
    for given in (start, start / "checkpoints" / "0"):
        code, err = job("--init-from", str(given), "--out", str(start), *GAME)
        assert (code, "it is the folder of --init-from" in err) == (2, True)


def test_a_model_without_tokenizer_is_refused(job: Run, tmp_path: Path) -> None:
    bare = start_run(tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    for model, message in ((str(bare), "no tokenizer.json"), ("random:nano", "it is no folder with a tokenizer")):
        code, err = job("--init-from", model, "--out", str(tmp_path / "run"), *GAME)
        assert (code, message in err) == (2, True)


def test_the_model_of_another_run_in_the_folder_is_refused(job: Run, start: Path, tmp_path: Path) -> None:
    other = start_run(tmp_path / "other", seed=1)
    given = ("--init-from", str(start), *GAME)
    code, err = job(*given, "--out", str(other))
    assert (code, f"--out {other} belongs to another run (stored != requested): " in err) == (2, True)
    (other / "recipe.json").unlink()
    code, err = job(*given, "--out", str(other))
    assert (code, "it has checkpoints and no recipe.json: choose another folder" in err) == (2, True)
    prepared = prepare(config_of(start, tmp_path / "run"))
    prepared.open_folder()
    shutil.copytree(start / "checkpoints", tmp_path / "run" / "checkpoints")
    with pytest.raises(RunFolderError, match=r"checkpoints/0 belongs to another run \(stored != requested\)"):
        Learner(prepared.learner).open()


def test_a_run_on_other_held_out_tasks_is_nothing_to_compare_with(start: Path, tmp_path: Path) -> None:
    (played := tmp_path / "other" / "heldout" / "2").mkdir(parents=True)
    (tmp_path / "other" / "result.json").write_text('{"rounds": 2, "control": true}')
    (played / "episodes.jsonl").write_text("")
    with pytest.raises(BadInput, match="it has none of the held-out tasks of this run"):
        prepare(config_of(start, tmp_path / "run", compare_to=str(tmp_path / "other")))
    for name, content in (("heldout/2/episodes.jsonl", "{}\n{}\n"), ("result.json", '{"rounds": 2}')):
        (tmp_path / "other" / name).write_text(content)
        with pytest.raises(BadInput, match="expected the folder of a finished improvement run"):
            prepare(config_of(start, tmp_path / "run", compare_to=str(tmp_path / "other")))


def test_a_folder_that_was_not_prepared_whole_is_prepared_again(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(config_of(start, tmp_path / "run"))
    names: list[str] = []

    def killed(path: str, content: object) -> None:
        names.append(Path(path).name)
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("lemur_ray.improve.prepare.write_json", killed)
        with pytest.raises(OSError, match="killed"):
            prepared.open_folder()
    assert names == ["recipe.json"]
    assert prepared.open_folder() is None
    assert {"config.yaml", "recipe.json"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_sql_trains_on_half_of_the_databases_and_is_measured_on_the_others(
    start: Path, tmp_path: Path, data_dir: Path
) -> None:
    given = {"benchmark": "intercode/sql", "data": str(data_dir), "eval_games": 2000}
    tasks, database_of = (
        prepare(config_of(start, tmp_path / "run", **given)).tasks,
        find("intercode/sql").details.cluster,
    )
    databases = [{database_of(task) for task in one.tasks} for one in (tasks.training, tasks.held_out)]
    assert not databases[0] & databases[1]
    assert len(tasks.training.tasks) + len(tasks.held_out.tasks) == 1028
    assert list(map(len, databases)) == [10, 10]


@pytest.mark.parametrize(
    ("replicas", "use_gpu", "has", "refused"),
    [
        (2, False, Devices(2), "2.1 CPU cores, the cluster has 2 CPU cores, 0 GPUs and 0 TPU chips: ask for fewer rep"),
        (1, False, Devices(2), ""),
        (2, False, Devices(8, 2), ""),
        (3, False, Devices(8, 2), "3 GPUs, the cluster has 8 CPU cores, 2 GPUs and 0 TPU chips: ask for fewer replica"),
        (2, True, Devices(8, 2), "3 GPUs, the cluster has 8 CPU cores, 2 GPUs and 0 TPU chips: ask for fewer replicas, "
         "leave --mesh.use-gpu out"),
        (2, True, Devices(8, 3), ""),
        (1, True, Devices(8), "1 GPUs, the cluster has 8 CPU cores, 0 GPUs"),
    ],
)  # fmt: skip
def test_replicas_that_leave_nothing_to_learner_and_play_are_refused(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    replicas: int, use_gpu: bool, has: Devices, refused: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(backend, "available_devices", lambda: replace(has, in_cluster=True))
    monkeypatch.setattr(backend, "actor_request", lambda *_: MINIMAL)
    monkeypatch.setattr(backend.ray, "nodes", list)
    monkeypatch.delenv("JAX_PLATFORMS")
    config = config_of(start, tmp_path / "run", replicas=replicas)
    config = replace(config, recipe=replace(config.recipe, mesh=replace(config.recipe.mesh, use_gpu=use_gpu)))
    with pytest.raises(BadInput, match=refused) if refused else nullcontext():
        backend.check_devices(config, MODEL)


class Replicas:
    """Two replicas, one of which refuses weights a number of times."""

    def __init__(self, refusals: int) -> None:
        self.served, self.refusals = ["old", "old"], refusals

    def update(self, folder: str) -> list[str]:
        self.served[0] = folder
        if folder == "new" and self.refusals:
            self.refusals -= 1
            raise RuntimeError("no memory left")
        self.served[1] = folder
        return list(self.served)


def test_replicas_take_new_weights_all_or_none() -> None:
    replicas, pauses = Replicas(refusals=2), list[float]()
    swap(replicas.update, "new", "new", "old", 2, pauses.append)
    assert replicas.served == ["new", "new"]
    assert pauses == [0, 5, 15], "a replica that died is being started again meanwhile"
    replicas = Replicas(refusals=4)
    with pytest.raises(SwapFailed, match="weights new are not served by all replicas after 4 tries: no memory left"):
        swap(replicas.update, "new", "new", "old", 2, pauses.append)
    assert replicas.served == ["old", "old"]


def test_a_swap_waits_for_a_replica_that_is_starting_and_refuses_two_versions() -> None:
    pauses, answers = list[float](), [["new"], ["old"], ["new", "old"], ["old", "old"], ["new", "new"]]
    swap(lambda folder: answers.pop(0), "new", "new", "old", 2, pauses.append)
    assert (pauses, answers) == ([0, 5, 15], [])
    with pytest.raises(SwapFailed, match="1 of 2 replicas answered, with versions new"):
        swap(lambda folder: [folder], "new", "new", "old", 2, pauses.append)
