"""What a run needs before anything is begun: rows of its sources, devices, memory on them. All that lacks, in one list.

Takes seconds, starts nothing and writes nothing. Refuses only what is certain: a run that passes may still not fit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from lemur_ray.config import MeshConfig, ModelConfig, Recipe, differing_fields
from lemur_ray.config.mesh import FEED_CPUS
from lemur_ray.corpus.bucket_rows import open_rows
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.manifest import CorpusError, is_complete, read_manifest
from lemur_ray.corpus.rows import RowSetError
from lemur_ray.corpus.sources.embedded import SOURCES
from lemur_ray.doctor.devices import Devices
from lemur_ray.host.home import find_model, resolve_out
from lemur_ray.plan.plan import PlanError, plan_for
from lemur_ray.recipes import NAMES, get_recipe, with_vocabulary
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.published_folder import version_of
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.pod.chips import CHIPS
from lemur_ray.train.pod.memory import bytes_of_device, gib, kept_bytes, least_chips
from lemur_ray.train.pod.placement import check_recipe
from lemur_ray.train.pod.slices import Slice, run_shape
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped, check_writable
from lemur_ray.weights.model_faults import look_through
from lemur_ray.weights.open_model import MODEL_ERRORS, RANDOM, ModelNotFound, load_tokenizer, open_model

Look = Callable[[], object]
"""Raises what is said of it."""


RUN_ERRORS = (
    CorpusError,
    RowSetError,
    PlanError,
    RunFolderError,
    TrainingStopped,
    ModelNotFound,
    ValueError,
    OSError,
    ImportError,
)
"""Everything that beginning a run may raise about what it was given."""
_SHAPE_FREE = ("max_seq_len",)
"""Model fields that a run may change when it starts from other weights."""
MOST_NEW_ROWS = 256
"""Rows of vocabulary that a run may add: the ChatML tokens, rounded up to what a mesh divides."""


class NotBegun(ValueError):
    """The run would come to nothing here; the message lists everything that lacks."""


def look_first(recipe: Recipe, found: Devices, out: str, looks: Sequence[Look]) -> None:
    """Raises NotBegun. ``looks``: what else is needed; a run that has finished needs no devices."""
    checks = list(looks)
    if not _is_finished(out):
        checks += [lambda: of_mesh(recipe), lambda: of_devices(recipe, found), lambda: of_memory(recipe, found)]
    checks.append(lambda: check_writable(out))  # last, because it makes the folder
    lacking = []
    for look in checks:
        try:
            look()
        except RUN_ERRORS as error:
            lacking.append(str(error))
    if lacking:
        with contextlib.suppress(OSError):
            Path(out).rmdir()  # made to see whether it can be; what holds anything stays
        said = [f"{recipe.name} is not begun:", *dict.fromkeys(lacking)]
        raise NotBegun("\n- ".join(said) + f"\nrecipes whose devices and memory are here: {_fitting(found)}")


def look_before_tuning(
    recipe: Recipe,
    found: Devices,
    out: str,
    init_from: str,
    table: str,
    files: Sequence[str],
    of_table_made: Callable[[Tokenizer | None, bool], object] = lambda tokenizer, is_here: None,
) -> str:
    """The same for a run that tunes; the folder of its model. ``table``: empty where one is made of ``files``.

    ``of_table_made``: raises what such a table lacks; it is given the model's tokenizer, if that can be read, and
    whether the table is made on this machine. Raises NotBegun.
    """
    looks: list[Look] = [lambda: of_model(find_model(init_from, buckets=True), recipe), lambda: of_files(files)]
    if table:
        looks.append(lambda: of_table(recipe, resolve_out(table, "")))
    else:
        looks += [lambda: tokenizer_there(init_from), lambda: of_table_made(_tokenizer(init_from), found.is_here)]
    look_first(recipe, found, out, looks)
    return find_model(init_from, buckets=True)


def tokenizer_there(init_from: str) -> Tokenizer:
    """Of the model that starts a run. Raises ValueError."""
    try:
        return load_tokenizer(find_model(init_from, buckets=True))
    except ModelNotFound as error:
        raise ValueError(f"--init-from: {error}") from error


def _tokenizer(init_from: str) -> Tokenizer | None:
    with contextlib.suppress(ValueError):  # which is said already
        return tokenizer_there(init_from)
    return None


def of_files(files: Sequence[str]) -> None:
    """Whether all are there, on the disk or in a bucket. Raises FileNotFoundError."""
    if absent := [path for file in files if version_of(path := resolve_out(file, "")) is None]:
        raise FileNotFoundError(f"files: {', '.join(absent)}: not there; a relative name lies in $LEMUR_HOME")


def of_model(spec: str, recipe: Recipe) -> None:
    """Whether the model that starts a run is the recipe's. Reads no weights. Raises RunFolderError."""
    if spec.startswith(RANDOM):
        return  # is made on a device, and those are the workers'
    try:
        model = open_model(spec)
        if model.tokenizer is not None:
            recipe = with_vocabulary(recipe, model.tokenizer.vocab_size)
        check_same_model(spec, model.source.config, recipe)
    except MODEL_ERRORS as error:
        said = look_through(spec).faults or [str(error)]
        raise RunFolderError(f"--init-from: {'; '.join(said)}") from error


def check_same_model(spec: str, found: ModelConfig, recipe: Recipe) -> None:
    """Raises RunFolderError where the model found is not the recipe's; every differing field is named."""
    asked = recipe.model
    if found.vocab_size < asked.vocab_size <= found.vocab_size + MOST_NEW_ROWS:
        found = dataclasses.replace(found, vocab_size=asked.vocab_size)
    every = differing_fields(dataclasses.asdict(found), dataclasses.asdict(asked))
    differing = [field for field in every if field.split(":")[0] not in _SHAPE_FREE]
    if differing:
        raise RunFolderError(
            f"--init-from {spec} is another model than recipe {recipe.name!r} (found != asked):\n  "
            + "\n  ".join(differing)
        )


def of_corpus(recipe: Recipe, corpus: str, is_given: bool) -> None:
    """Whether the corpus, or the embedded one that would be built in its place, has the rows. Raises."""
    if is_given or is_complete(corpus):
        for source in plan_for(recipe, read_manifest(corpus)).sources:
            open_rows(corpus, source.name)
        return
    planned = CorpusConfig()
    build = "build one (jobs/build_corpus.py --source NAME:KIND:PATH ...) and name it with --corpus DIR"
    if absent := [source.name for source in recipe.data.sources if source.name not in SOURCES]:
        raise ValueError(
            f"sources: {', '.join(absent)} are not in the embedded corpus, which would be built and has "
            f"{', '.join(SOURCES)}: {build}"
        )
    if recipe.data.seq_len != planned.seq_len:
        raise ValueError(
            f"rows: the recipe has {recipe.data.seq_len} tokens a row, the embedded corpus, which would be built, "
            f"{planned.seq_len}: {build}, with --seq-len {recipe.data.seq_len}"
        )


def of_table(recipe: Recipe, table: str) -> None:
    """Whether there is an instruction table with rows of the recipe's length. Raises."""
    if recipe.data.seq_len != (length := read_manifest(table)["seq_len"]):
        raise ValueError(
            f"rows: the recipe has {recipe.data.seq_len} tokens a row, {table} {length}: give --data.seq-len {length}, "
            "or leave --corpus out and a table is made"
        )


def of_mesh(recipe: Recipe) -> None:
    """Whether hosts, chips, batch and shapes agree. Raises ValueError."""
    check_recipe(recipe)


def of_devices(recipe: Recipe, found: Devices) -> None:
    """Whether the least number of workers has its devices. Raises ValueError."""
    asked: float
    there: float
    mesh = recipe.mesh
    workers = mesh.min_workers or mesh.num_workers
    if mesh.use_tpu:
        one = Slice.of(mesh.accelerator_type, mesh.topology)
        asked, there, what = workers * one.chips_per_host, found.tpus, f"TPU chips: {workers} hosts of {one}"
    elif mesh.use_gpu:
        asked, there, what = workers, found.gpus, "GPUs, one for each worker"
    else:
        asked, there = workers * mesh.cpus_per_worker, found.cpus
        what = f"CPU cores: {workers} workers with {mesh.cpus_per_worker:g} each"
    if asked > there:
        raise ValueError(f"devices: it takes {asked:g} {what}; {found}: {_instead(recipe, found)}")
    if mesh.use_tpu and found.tpu_hosts and found.tpu_hosts.get(one.topology, 0) < workers:
        there_are = " and ".join(f"{hosts} of topology {name}" for name, hosts in sorted(found.tpu_hosts.items()))
        raise ValueError(
            f"devices: it takes {workers} hosts of {one}; {found.where} has {there_are}, and Ray would wait for "
            "others for ever: give --mesh.topology and --mesh.num-workers as the slices are, or make a cluster of such "
            "slices (gke-tpu-topology and numOfHosts)"
        )
    _of_cores_for_data(mesh, int(there / asked * workers) if asked else workers, found)


def _of_cores_for_data(mesh: MeshConfig, fitting: int, found: Devices) -> None:
    """Whether Ray Data has a part of a core beside the workers. ``fitting``: for how many the devices are there.

    An elastic run takes as many as fit. Raises ValueError.
    """
    workers, each = min(mesh.num_workers, fitting), 1.0 if mesh.use_tpu else mesh.cpus_per_worker
    if (left := round(found.cpus - workers * each, 6)) >= FEED_CPUS:
        return
    most = math.floor((found.cpus - FEED_CPUS) / workers * 100) / 100
    cores = "hosts with two cores each (ray start --num-cpus=2, the limit of cpu in their pods)"
    raise ValueError(
        f"cores for data: {workers} worker(s) with {each:g} each leave {max(0.0, left):g} CPU cores; Ray Data, which "
        f"reads for them, waits for ever without {FEED_CPUS:g}; {found}: "
        + (f"give --mesh.cpus-per-worker {most:g}" if most > 0 and not mesh.use_tpu else f"give {cores}")
    )


def of_memory(recipe: Recipe, found: Devices) -> None:
    """Whether parameters, gradients and moments have room. Raises ValueError."""
    mesh = recipe.mesh
    where = run_shape(mesh)
    each = bytes_of_device(recipe, where)
    needs = f"memory: parameters, gradients and moments take {gib(kept_bytes(recipe))}"
    if mesh.use_tpu:
        one = Slice.of(mesh.accelerator_type, mesh.topology)
        if each > (room := CHIPS[one.generation.name].hbm_bytes):
            raise ValueError(
                f"{needs}, {gib(each)} on each of {where.num_devices} chips with {gib(room)}: take at least "
                f"{least_chips(recipe, one)} chips a slice (jobs/plan_pod.py {recipe.name} --topology "
                f"{one.generation.name}:... --search 4), or adapters (--lora.rank 16)"
            )
    elif mesh.use_gpu:
        if found.gpus and found.gpu_bytes is not None and each > (room := found.gpu_bytes // found.gpus):
            least = -(-kept_bytes(recipe) // room)
            raise ValueError(
                f"{needs}, {gib(each)} on each of {where.num_devices} GPUs with {gib(room)}: take at least {least} "
                f"(--mesh.num-workers {least}), or adapters (--lora.rank 16)"
            )
    elif found.memory_bytes is not None and kept_bytes(recipe) * where.dcn > found.memory_bytes:
        raise ValueError(
            f"{needs}, {found.where} has {gib(found.memory_bytes)} to give: take a smaller model, adapters "
            "(--lora.rank 16), or GPUs or TPUs (--mesh...)"
        )


def _instead(recipe: Recipe, found: Devices) -> str:
    """What to do where the devices are not there: other ones that are, where they have room."""
    size = kept_bytes(recipe)
    off = "--mesh.use-tpu False --mesh.dcn 1 --mesh.fsdp -1 --mesh.tp 1"
    elsewhere = "submit it to a cluster that has them (RAY_ADDRESS)"
    if found.gpus and (found.gpu_bytes or 0) >= size:
        return f"{elsewhere}, or use the GPUs: {off} --mesh.use-gpu True --mesh.num-workers {found.gpus}"
    if (found.memory_bytes or 0) >= size:
        return f"{elsewhere}, or use the cores: {off} --mesh.use-gpu False --mesh.num-workers 1"
    return elsewhere


def _fitting(found: Devices) -> str:
    names = []
    for name in NAMES:
        try:
            of_devices(get_recipe(name), found)
            of_memory(get_recipe(name), found)
        except ValueError:
            continue
        names.append(name)
    return ", ".join(names) or "none"


def _is_finished(out: str) -> bool:
    fs, inner = file_system(f"{out}/result.json")
    return bool(fs.isfile(inner))
