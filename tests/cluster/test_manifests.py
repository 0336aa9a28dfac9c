"""The manifests of cluster/: schemas, rules, the samples of its README, and what they say of images and jobs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster import check
from cluster.checking import entrypoints, groups, schemas, surroundings
from cluster.checking.documents import Document, parsed, read, samples
from lemur_ray.recipes import get_recipe
from lemur_ray.train.pod.placement import check_recipe

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "cluster"
README = (HERE / "README.md").read_text()
FILES = sorted(check.files([HERE]))
OTHERS = ("kueue.x-k8s.io/", "monitoring.coreos.com/")
"""Whose definitions are not among the test data."""


@pytest.fixture(scope="module")
def known(data_dir: Path) -> schemas.Schemas:
    pytest.importorskip("kubernetes_validate")
    return schemas.Schemas(data_dir / "kuberay")


def test_all_manifests_and_the_samples_of_the_readme_pass_schemas_and_rules(known: schemas.Schemas) -> None:
    documents = [document for path in FILES for document in check.documents_of(path)]
    wrong, unknown = check.check(documents, known)
    assert not wrong, "\n".join(wrong)
    assert all(any(other in line for other in OTHERS) for line in unknown), "\n".join(unknown)
    kinds = {document.kind for document in documents}
    assert kinds >= {"RayCluster", "RayJob", "RayService", "NetworkPolicy", "ServiceAccount", "PodMonitor", "Dashboard"}
    assert sum("README" in document.where for document in documents) == len(list(samples(README, "yaml")))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("raycluster-cpu", ("rayVersion: ", "rayVersio: "), "'rayVersio' was unexpected"),
        ("raycluster-tpu-v4", ("numOfHosts: 4", "numOfHost: 4"), "'numOfHost' was unexpected"),
        ("raycluster-cpu", ("minReplicas: 0", "minReplicas: none"), "is not of type 'integer'"),
        ("raycluster-cpu", ("mode: token", "mode: tokens"), "'tokens' is not one of"),
        ("around/netpol", ("podSelector:", "podSelectors:"), "'podSelectors'"),
        ("around/serviceaccount", ("kind: ServiceAccount", "kind: ServicesAccount"), "has no ServicesAccount in v1"),
    ],
)
def test_schemas_catch_what_the_server_would_drop_in_silence(
    known: schemas.Schemas, name: str, change: tuple[str, str], says: str
) -> None:
    text = (HERE / f"{name}.yaml").read_text()
    assert change[0] in text
    found = [s for document in parsed(text.replace(*change), name) for s in known.problems(document)]
    assert any(says in sentence for sentence in found), found


def test_without_definitions_the_rules_are_held_and_the_rest_is_named() -> None:
    document = check.documents_of(HERE / "raycluster-cpu.yaml")[0]
    wrong, unknown = check.check([document], schemas.Schemas(None))
    assert not wrong
    assert "kubectl get crd" in unknown[0]


def test_definitions_as_kubectl_prints_them_are_read(tmp_path: Path) -> None:
    spec = {"type": "object", "properties": {"n": {"x-kubernetes-int-or-string": True}}}
    definition = {
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "things.example",
            "names": {"kind": "Thing"},
            "versions": [
                {"name": "v1", "served": True, "schema": {"openAPIV3Schema": {"properties": {"spec": spec}}}},
                {"name": "v0", "served": False, "schema": {"openAPIV3Schema": {}}},
            ],
        },
    }
    (tmp_path / "crds.json").write_text(json.dumps({"kind": "List", "items": [definition]}))
    known = schemas.Schemas(tmp_path)
    assert known.problems(Document("a", {"apiVersion": "things.example/v1", "kind": "Thing", "spec": {"n": "7"}})) == []
    wrong = known.problems(Document("a", {"apiVersion": "things.example/v1", "kind": "Thing", "spec": {"m": 7}}))
    assert "'m' was unexpected" in "".join(wrong)
    with pytest.raises(schemas.SchemaMissing):
        known.problems(Document("a", {"apiVersion": "things.example/v0", "kind": "Thing"}))


def shell_commands(markdown: str) -> list[str]:
    """Commands of the bash samples, with continued lines joined and comments removed."""
    joined = "\n".join(re.sub(r"\\\n\s*", " ", sample) for _, sample in samples(markdown, "bash"))
    return [bare for line in joined.splitlines() if (bare := re.sub(r"(^|\s)#.*$", "", line).strip())]


def test_commands_of_the_readme_name_files_that_are_there_and_jobs_that_take_them() -> None:
    seen = set()
    for command in shell_commands(README):
        for name in re.findall(r"cluster/[\w./-]+\.(?:yaml|py|sh)", command):
            assert (ROOT / name).is_file(), command
        if " -- " in command:
            job = entrypoints.parsed(command.partition(" -- ")[2])
            assert check_recipe(job.recipe)
        seen.add(command.split()[0])
    assert {"kubectl", "ray", "sed", "sudo", "python"} <= seen


def test_what_the_readmes_sed_makes_of_a_file_passes(known: schemas.Schemas) -> None:
    [command] = [c for c in shell_commands(README) if c.startswith("sed ")]
    words = shlex.split(command.partition(" | kubectl")[0])
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "your-bucket" not in made
    assert "image: images.acme.example/lemur-ray-tpu:" in made
    assert check.check(parsed(made, "made"), known) == ([], [])


def entrypoint(name: str) -> Any:
    [document] = read(HERE / f"rayjob-{name}.yaml")
    return entrypoints.parsed(document.value["spec"]["entrypoint"])


def test_what_one_job_leaves_in_the_bucket_the_next_one_reads() -> None:
    corpus, pretrain, instruct = entrypoint("corpus"), entrypoint("pretrain"), entrypoint("instruct")
    assert corpus.out == pretrain.corpus
    made = [tuple(source.split(":")[:2]) for source in corpus.config.source]
    assert made == [(source.name, source.kind) for source in pretrain.recipe.data.sources]
    assert corpus.config.seq_len == pretrain.recipe.data.seq_len
    assert corpus.config.tokenizer == pretrain.init_from, "the tokenizer of the model that training starts from"
    assert instruct.init_from == pretrain.out
    [service] = read(HERE / "rayservice-serve.yaml")
    assert f"--model {instruct.out} " in service.value["spec"]["serveConfigV2"]
    report = entrypoint("report")
    assert [*report.runs, *report.episodes, report.corpus] == [
        pretrain.out, instruct.out, entrypoint("agent-eval").out, corpus.out
    ]  # fmt: skip


def test_the_preflight_checks_what_the_job_of_pretraining_runs() -> None:
    [document] = read(HERE / "job-preflight.yaml")
    _python, *words = document.value["spec"]["template"]["spec"]["containers"][0]["command"]
    [job] = read(HERE / "rayjob-pretrain.yaml")
    assert ["python", *words] == [*shlex.split(job.value["spec"]["entrypoint"]), "--preflight"]


@pytest.mark.parametrize("name", ["pretrain", "instruct"])
def test_a_recipes_parameters_divide_over_the_slices_of_its_job(name: str) -> None:
    [document] = read(HERE / f"rayjob-{name}.yaml")
    recipe = entrypoints.parsed(document.value["spec"]["entrypoint"]).recipe
    assert recipe == get_recipe(recipe.name)
    [shape] = check_recipe(recipe)
    cluster = document.value["spec"]["rayClusterSpec"]
    [workers] = groups.groups(cluster)[1:]
    assert (shape.num_workers, shape.devices_per_worker) == (workers.num_hosts, workers.amount(groups.TPU))


def test_the_papers_pod_is_64_hosts_of_4_chips() -> None:
    [document] = read(HERE / "rayjob-pretrain.yaml")
    [workers] = groups.groups(document.value["spec"]["rayClusterSpec"])[1:]
    assert (workers.num_hosts, workers.amount(groups.TPU)) == (64, 4)
    assert workers.selector[groups.TOPOLOGY] == "4x8x8"


def test_every_image_is_one_that_the_build_script_makes_in_the_projects_version() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    kinds = {path.parent.name for path in (HERE / "images").glob("*/python.txt")}
    assert kinds == {"cpu", "tpu", "gpu", "env", "ds1000"}
    used = set(re.findall(r"image: (\S+)", "".join(p.read_text() for p in HERE.glob("*.yaml"))))
    of_one_benchmark = {"ds1000"}  # in place of env, for whoever plays it
    assert used == {f"lemur-ray-{kind}:{version[1]}" for kind in kinds - of_one_benchmark}


def test_packages_of_the_images_are_pinned_and_of_the_locks() -> None:
    locked = "".join(path.read_text() for path in ROOT.glob("requirements*.lock"))
    for file in (HERE / "images").glob("*/python.txt"):
        for line in filter(None, (line.partition("#")[0].strip() for line in file.read_text().splitlines())):
            if line.startswith("-r "):
                assert (file.parent / line[3:]).is_file(), f"{file}: {line}"
            elif file.parent.name in ("tpu", "env"):
                assert re.search(rf"^{re.escape(line)}$", locked, re.MULTILINE), f"{file}: {line} is in no lock"
            assert line.startswith("-r ") or "==" in line


def test_the_board_shows_metrics_of_serving_and_of_ray_that_are_exported() -> None:
    import ray

    board: Any = surroundings.board((HERE / "around/grafana.json").read_text(), "grafana.json").value
    spoken = {
        name
        for panel in board["spec"]["panels"]
        for t in panel["targets"]
        for name in re.findall(r"lemur_\w+", t["expr"])
    }
    assert len(spoken) > 12
    assert {"lemur_active", "lemur_generated_tokens", "lemur_first_token_seconds"} <= surroundings.exported()
    dashboards = Path(ray.__file__).parent / "dashboard/modules"
    sources = [*dashboards.glob("metrics/dashboards/*.py"), dashboards / "reporter/reporter_agent.py"]
    text = "".join(path.read_text() for path in sources)
    gone = [name for name in surroundings.OF_RAY if name not in text and f'"{name.removeprefix("ray_")}"' not in text]
    assert not gone, f"Ray {ray.__version__} no longer speaks of {gone}"


def test_the_command_line_says_what_is_wrong_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (HERE / "raycluster-tpu-v4.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("numOfHosts: 4", "numOfHosts: 3"))
    assert check.main([str(tmp_path), "--crds", str(tmp_path)]) == 1
    assert "mine.yaml: RayCluster tpu-v4: slices: numOfHosts 3" in capsys.readouterr().out
    (tmp_path / "mine.yaml").write_text("a: [")
    assert check.main([str(tmp_path)]) == 1
    assert "is no YAML" in capsys.readouterr().err
    assert check.main(["--rules"]) == 0
