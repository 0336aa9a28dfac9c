"""Rules for the entrypoint of a job or service: its command line, checked by the job's parser, and its hosts."""

import ast
import contextlib
import importlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cluster.checking import groups
from cluster.checking.groups import ACCELERATOR, GENERATIONS, GPU, TOPOLOGY, TPU
from cluster.checking.rules import Breach
from lemur_ray.config import MeshConfig, Recipe, parse
from lemur_ray.instruct.needs import filter_packages
from lemur_ray.train.pod.slices import Slice, generation, run_shape, split_batch

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "jobs"
_PARSED = ("agent_eval.py", "build_corpus.py", "instruct.py", "pretrain.py", "report.py", "serve.py")
"""Jobs whose command lines are checked."""
LASTING = "://"
"""Part of every URI; what is stored there outlives a pod."""


def breaches(entrypoint: str, cluster: Mapping[str, Any] | None) -> Iterator[Breach]:
    """Yield a Breach for each rule that a job's command line breaks. cluster: spec of its Ray cluster, if known."""
    try:
        job = parsed(entrypoint)
    except ValueError as error:
        yield Breach("entrypoint", str(error))
        return
    out = getattr(job, "out", None)
    if out is not None and LASTING not in out and not out.startswith("/mnt/"):
        yield Breach("out", f"--out {out or 'is not given'}: name a bucket, gs://...")
    if cluster is not None and (sets := getattr(job, "sets", None)):
        yield from _of_packages(filter_packages(sets), groups.groups(cluster))
    recipe = getattr(job, "recipe", None)
    if recipe is None:
        return
    if out and out.startswith("s3://"):
        yield Breach("out", f"--out {out}: checkpoints are written to gs:// or a mounted folder")
    if cluster is not None:
        yield from _of_run(recipe, groups.groups(cluster)[1:])


def breaches_of_application(application: Mapping[str, Any], cluster: Mapping[str, Any]) -> Iterator[Breach]:
    """Yield a Breach for each rule that an application of Serve breaks. cluster: spec of its Ray cluster."""
    target = str(application.get("import_path", ""))
    module, _, attribute = target.partition(":")
    file = ROOT / f"{module.replace('.', '/')}.py"
    nodes = ast.parse(file.read_text()).body if file.is_file() else []
    defined = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    if attribute not in defined:
        sentence = f"import_path {target!r} is not there: lemur_ray.serve.on_ray.application:build"
        yield Breach("serve-application", sentence)
        return
    command = str((application.get("args") or {}).get("command", ""))
    try:
        job = parsed(f"python jobs/serve.py {command}")
    except ValueError as error:
        yield Breach("serve-application", str(error))
        return
    if LASTING not in job.model:
        yield Breach("serve-application", f"--model {job.model or 'is not given'}: name one in a bucket, gs://...")
    wanted = job.replicas * job.hosts.num
    if job.hosts.topology:
        one = Slice.of(job.hosts.accelerator_type, job.hosts.topology)
        wanted = job.replicas * one.num_hosts
        if job.engine.tensor_parallel not in (0, one.num_chips):
            yield Breach("run-and-cluster", f"--engine.tensor-parallel {job.engine.tensor_parallel}: {one}")
    resource = TPU if job.hosts.topology else GPU if job.hosts.use_gpu else "cpu"
    fitting = [g for g in groups.groups(cluster)[1:] if g.amount(resource) and _is_of(g, job.hosts)]
    have = sum(g.num_hosts for g in fitting)
    if have < wanted:
        replicas = f"{job.replicas} replica(s) want {wanted} host(s)"
        yield Breach("run-and-cluster", f"{replicas}, the cluster has {have} of them")


def _of_packages(wanted: Mapping[str, str], hosts: Sequence[groups.Group]) -> Iterator[Breach]:
    """Breaches for packages that an image of the project lacks. wanted: package -> reason; other images are skipped."""
    for group in hosts:
        kind = re.search(r"lemur-ray-(\w+)[:@]", str(group.container.get("image", "")))
        lists = ROOT / "cluster/images" / (kind[1] if kind else "") / "python.txt"
        present = installed(lists) if kind and lists.is_file() else set(wanted)
        for package in wanted.keys() - present:
            yield group.breach("packages", f"its image has no {package}: {wanted[package]}")


def installed(lists: Path) -> set[str]:
    """Names of the Python packages in a list and in the lists it includes."""
    names: set[str] = set()
    for line in filter(None, (line.partition("#")[0].strip() for line in lists.read_text().splitlines())):
        names |= installed(lists.parent / line[3:]) if line.startswith("-r ") else {line.partition("==")[0].lower()}
    return names


def _is_of(group: groups.Group, mesh: Any) -> bool:
    """Whether a group's hosts have the topology and generation of a mesh, or of a server's hosts."""
    if not mesh.topology:
        return TPU not in group.limits
    named = GENERATIONS.get(group.selector.get(ACCELERATOR, ""), "")
    return group.selector.get(TOPOLOGY) == mesh.topology and named == generation(mesh.accelerator_type).name


def _of_run(recipe: Recipe, workers: Sequence[groups.Group]) -> Iterator[Breach]:
    """Rules that a training run on these groups of workers breaks: number of hosts, chips and free CPUs."""
    mesh = recipe.mesh
    try:
        where = run_shape(mesh)
        split_batch(recipe.train, where)
    except ValueError as error:
        yield Breach("entrypoint", str(error))
        return
    fitting = [group for group in workers if _is_of(group, mesh) and (group.amount(GPU) or not mesh.use_gpu)]
    have = sum(group.num_hosts for group in fitting)
    each = max((int(group.amount(GPU)) for group in fitting), default=1) if mesh.use_gpu else 1
    what = f"host(s) of {mesh.topology}" if mesh.use_tpu else "GPU(s)" if mesh.use_gpu else "host(s)"
    if (mesh.use_tpu and have != mesh.num_workers) or have * each < mesh.num_workers:
        yield Breach("run-and-cluster", f"the run wants {mesh.num_workers} {what}, the cluster has {have * each}")
        return
    yield from _of_cpus(mesh, fitting, each)


def _of_cpus(mesh: MeshConfig, fitting: Sequence[groups.Group], each: int) -> Iterator[Breach]:
    taken = (1.0 if mesh.use_tpu else mesh.cpus_per_worker) * each
    for group in fitting:
        if group.amount("cpu") < taken + 1:
            has = f"{group.amount('cpu'):g} CPUs, of which the workers of the run take {taken:g}"
            yield group.breach("cpu-for-data", f"{has}: give it {taken + 1:g} or more")


def parsed(entrypoint: str) -> Any:
    """Parse a command line into the job's configuration. Raises ValueError with the reason."""
    words = shlex.split(entrypoint)
    if len(words) < 2 or words[0] not in ("python", "python3") or not words[1].startswith("jobs/"):
        raise ValueError(f"entrypoint {entrypoint!r}: expected python jobs/NAME.py and its flags")
    file = words[1].removeprefix("jobs/")
    if file not in _PARSED:
        raise ValueError(f"entrypoint {entrypoint!r}: there is no {words[1]} (there: {', '.join(_PARSED)})")
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            return _configuration(file, words[2:])
    except SystemExit:
        reason = " ".join(output.getvalue().translate({ord(c): " " for c in "╭╮╰╯│─"}).split())
        raise ValueError(f"{words[1]} refuses {shlex.join(words[2:])}: {reason[:300]}") from None


def _configuration(file: str, words: Sequence[str]) -> Any:
    """Parse the arguments of a job of ``_PARSED`` as that job does."""
    from lemur_ray.train.job_arguments import RunJob, parse_job

    match file:
        case "pretrain.py":
            return parse_job(RunJob, words, prog=file)
        case "instruct.py":
            return parse_job(_job("instruct").InstructJob, words, prog=file, recipe="nano-chat")
        case "build_corpus.py":
            return parse(_job("build_corpus").Arguments, words, prog="build_corpus")
        case "report.py":
            from lemur_ray.report.inputs import ReportJob

            return parse(ReportJob, words, prog=file)
        case "serve.py":
            from lemur_ray.serve.config import ServeJob

            return ServeJob.parse(words)
    from lemur_ray.evaluation.suites.command_line import is_suite, parse_suite
    from lemur_ray.rollout.benchmark_tasks import parse_evaluation

    return parse_suite(words) if is_suite(words) else parse_evaluation(words, _job("agent_eval").DEFAULT)


@cache
def _job(name: str) -> Any:
    """Import ``jobs/<name>.py`` as a module and undo its changes to environment variables."""
    before = dict(os.environ)
    sys.path.insert(0, str(JOBS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(JOBS))
        os.environ.clear()
        os.environ.update(before)
