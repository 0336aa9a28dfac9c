"""Preflight checks of a training run: rows of its sources, devices, memory. Reports every failure in one error.

Takes seconds, starts nothing and writes nothing. Refuses only what cannot work: a run that passes may still not fit."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from lemur_ray.config import MeshConfig, ModelConfig, Recipe, differing_fields
from lemur_ray.config.mesh import FEED_CPUS
from lemur_ray.corpus.bucket_rows import most_pieces, open_rows
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.manifest import CorpusError, is_complete, read_manifest
from lemur_ray.corpus.rows import RowSetError
from lemur_ray.corpus.sources.embedded import SOURCES
from lemur_ray.doctor.devices import Devices
from lemur_ray.host.exit_codes import ExitCode, common_exit_code
from lemur_ray.host.home import find_model, resolve_out
from lemur_ray.plan.plan import PlanError, plan_for
from lemur_ray.recipes import NAMES, get_recipe, with_vocabulary
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.published_folder import version_of
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.pod.chips import CHIPS
from lemur_ray.train.pod.compiler_options import memory_fraction
from lemur_ray.train.pod.memory import bytes_per_device, gib, min_chips, state_bytes
from lemur_ray.train.pod.placement import check_recipe
from lemur_ray.train.pod.slices import Slice, run_shape
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped, check_writable, tokenizer_of
from lemur_ray.train.run.sinks import check_sinks
from lemur_ray.weights.model_faults import inspect_model
from lemur_ray.weights.open_model import MODEL_ERRORS, RANDOM, ModelNotFound, load_tokenizer, open_model

Check = Callable[[], object]
"""Raises one of RUN_ERRORS if something is missing."""

RUN_ERRORS = (
    CorpusError, RowSetError, PlanError, RunFolderError, TrainingStopped, ModelNotFound, ValueError, OSError,
    ImportError,
)  # fmt: skip
"""Every exception about its inputs that starting a run may raise."""
_SHAPE_FREE = ("max_seq_len", "family")
"""Model fields that may differ between a run and the weights it starts from."""
MOST_NEW_ROWS = 256
"""Vocabulary rows that a run may add to a model: the ChatML tokens, rounded up to a multiple that meshes divide."""


class TrainingPreflightError(ValueError):
    """Raised when a run cannot work here; the message lists everything that is missing."""

    exit_code = ExitCode.NEEDS_PERSON


def check_run(recipe: Recipe, devices: Devices | None, out: str, checks: Sequence[Check]) -> None:
    """Run ``checks`` and those of mesh, devices, memory, sinks and run folder. Raises TrainingPreflightError with all
    failures. A run that has finished needs no devices. devices: None if they do not exist yet; they are then not
    checked. out: run folder, which is made for a test write and removed if a check fails and it is empty."""
    checks = list(checks)
    fs, result = file_system(f"{out}/result.json")
    if not fs.isfile(result):
        checks.append(lambda: check_recipe(recipe))
        if devices is not None:
            checks += [partial(check_devices, recipe, devices), partial(check_memory, recipe, devices)]
    checks.append(lambda: check_sinks(recipe.watch.sinks, out))
    checks.append(lambda: check_writable(out))  # last, because it makes the folder
    failures: list[Exception] = []
    for check in checks:
        try:
            check()
        except RUN_ERRORS as error:
            failures.append(error)
    if failures:
        with contextlib.suppress(OSError):
            Path(out).rmdir()  # the folder that check_writable made; rmdir keeps one that holds anything
        lines = "\n- ".join([f"{recipe.name} is not begun:", *dict.fromkeys(map(str, failures))])
        fitting = f"\nrecipes whose devices and memory are here: {_fitting(devices)}" if devices else ""
        refusal = TrainingPreflightError(f"{lines}{fitting}")
        refusal.exit_code = common_exit_code(failures)
        raise refusal


def check_tuning_run(
    recipe: Recipe,
    devices: Devices | None,
    out: str,
    init_from: str,
    table: str,
    files: Sequence[str],
    check_rows_of_table: Callable[[Tokenizer | None, bool], tuple[Recipe, int] | None] = lambda tokenizer, is_here: (
        None
    ),
    check_chats: Check = lambda: None,
) -> str:
    """`check_run` for a tuning run; returns the path of the model it starts from. Raises TrainingPreflightError with
    all failures. table: instruction table; empty: made of ``files``. check_rows_of_table: raises if the table
    cannot be made or used; called with the model's tokenizer, if readable, and whether the table is made on this
    machine; returns the recipe with the table's steps and its vocabulary size, if known. check_chats: reads the user's
    conversations, and raises for an invalid one; not called if files are absent. out: run folder. init_from: name, path
    or URI of that model."""

    def check_all_files() -> None:
        check_files(files)
        check_chats()

    def check_table_fits() -> None:
        is_here = devices is not None and not devices.in_cluster
        if planned := check_rows_of_table(_tokenizer(init_from), is_here):
            check_recipe(fitted := with_vocabulary(*planned))
            if table:
                check_rows(fitted, folder)

    model, folder = partial(find_model, init_from, buckets=True), resolve_out(table, "")
    checks: list[Check] = [lambda: check_model(model(), recipe), check_all_files]
    if table:
        checks += [lambda: check_table(recipe, folder), lambda: check_tokenizer(folder, model())]
    else:
        checks.append(lambda: start_tokenizer(init_from))
    check_run(recipe, devices, out, [*checks, check_table_fits])
    return model()


def start_tokenizer(init_from: str) -> Tokenizer:
    """The tokenizer of the model that a run starts from. init_from: its name, path or URI. Raises ValueError if there
    is no such model or tokenizer."""
    try:
        return load_tokenizer(find_model(init_from, buckets=True))
    except ModelNotFound as error:
        raise ValueError(f"--init-from: {error}") from error


def _tokenizer(init_from: str) -> Tokenizer | None:
    with contextlib.suppress(ValueError):  # reported by start_tokenizer
        return start_tokenizer(init_from)
    return None


def pretraining_checks(recipe: Recipe, corpus: str, is_given: bool, init_from: str) -> list[Check]:
    """Checks of a pretraining run's corpus and of the model it starts from (name, path or URI; empty: none). is_given:
    the user named the corpus."""
    checks: list[Check] = [lambda: check_corpus(recipe, corpus, is_given)]
    if init_from:
        checks.append(lambda: check_model(find_model(init_from, buckets=True), recipe))
        if is_given or is_complete(corpus):
            checks.append(lambda: check_tokenizer(corpus, find_model(init_from, buckets=True)))
    return checks


def check_tokenizer(corpus: str, init_from: str) -> None:
    """Raise RunFolderError if the model ``init_from`` was trained with another tokenizer than the corpus's. Passes if
    ``init_from`` is "", one of them has no tokenizer, or the corpus's only adds tokens to the model's."""
    theirs, mine = tokenizer_of(init_from) if init_from else None, tokenizer_of(corpus)
    if theirs is None or mine is None or theirs == mine:
        return
    first, second = (
        Tokenizer.from_json(text, f"tokenizer.json of {where}") for text, where in ((theirs, init_from), (mine, corpus))
    )
    if not first.is_same(second) and not first.grows_to(second):
        raise RunFolderError(
            f"--init-from {init_from} was trained with another tokenizer than corpus {corpus}: build the corpus with "
            "jobs/build_corpus.py --tokenizer and that model's tokenizer.json"
        )


def check_files(files: Sequence[str]) -> None:
    """Raises FileNotFoundError for files that are neither on the disk nor in a bucket; ``hf://`` is not checked."""
    paths = [resolve_out(file, "") for file in files if not file.startswith("hf://")]
    if absent := [path for path in paths if version_of(path) is None]:
        raise FileNotFoundError(f"files: {', '.join(absent)}: not there; a relative name lies in $LEMUR_HOME, or here")


def check_model(spec: str, recipe: Recipe) -> None:
    """Raises RunFolderError if a run of the recipe cannot start from the model ``spec``. Reads no weights."""
    if spec.startswith(RANDOM):
        return  # its weights are made on a device of the workers
    try:
        model = open_model(spec)
        if model.tokenizer is not None:
            recipe = with_vocabulary(recipe, model.tokenizer.vocab_size)
        check_same_model(spec, model.source.config, recipe)
    except MODEL_ERRORS as error:
        faults = inspect_model(spec).faults or [str(error)]
        raise RunFolderError(f"--init-from: {'; '.join(faults)}") from error


def check_same_model(spec: str, stored: ModelConfig, recipe: Recipe) -> None:
    """Raise RunFolderError, naming every differing field, if the model with config ``stored`` has other arrays than the
    recipe's. The recipe's vocabulary may have up to 256 rows more. spec: the model, for the message."""
    wanted = recipe.model
    if stored.vocab_size < wanted.vocab_size <= stored.vocab_size + MOST_NEW_ROWS:
        stored = dataclasses.replace(stored, vocab_size=wanted.vocab_size)
    every = differing_fields(dataclasses.asdict(stored), dataclasses.asdict(wanted))
    differing = [field for field in every if field.name not in _SHAPE_FREE]
    if differing:
        raise RunFolderError(
            f"--init-from {spec} is another model than recipe {recipe.name!r} (model != recipe):\n  "
            + "\n  ".join(map(str, differing))
            + "\nto train that model give "
            + " ".join(f"--model.{field.name.replace('_', '-')} {field.left!r}" for field in differing)
        )


def check_corpus(recipe: Recipe, corpus: str, is_given: bool) -> None:
    """Raise ValueError, or another of RUN_ERRORS, if the corpus lacks rows that the recipe needs. is_given: the user
    named the corpus; otherwise the embedded one would be built if ``corpus`` does not exist."""
    if is_given or is_complete(corpus):
        check_rows(recipe, corpus)
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


def check_rows(recipe: Recipe, corpus: str) -> None:
    """Raise one of RUN_ERRORS if a source of the plan has no rows, or on GPU more documents in a row than allowed."""
    for source in plan_for(recipe, read_manifest(corpus)).sources:
        rows = open_rows(corpus, source.name)
        if not recipe.mesh.use_gpu or not recipe.data.mask_documents:
            continue
        if (most := most_pieces(f"{corpus}/rows/{source.name}", rows.index) + 1) > recipe.data.max_documents:
            raise ValueError(
                f"documents: rows of source {source.name} have up to {most}, padding included; attention on GPU is "
                f"compiled for {recipe.data.max_documents}: give --data.max-documents {most}"
            )


def check_table(recipe: Recipe, table: str) -> None:
    """Raise CorpusError if there is no instruction table, ValueError if its rows are not of the recipe's length."""
    if recipe.data.seq_len != (length := read_manifest(table)["seq_len"]):
        raise ValueError(
            f"rows: the recipe has {recipe.data.seq_len} tokens a row, {table} {length}: give --data.seq-len {length}, "
            "or leave --corpus out and a table is made"
        )


def check_devices(recipe: Recipe, devices: Devices) -> None:
    """Raise ValueError if devices are too few for the fewest permitted workers, or leave Ray Data no core."""
    needed: float
    available: float
    mesh = recipe.mesh
    workers = mesh.min_workers or mesh.num_workers
    if mesh.use_tpu:
        one = Slice.of(mesh.accelerator_type, mesh.topology)
        needed, available, what = workers * one.chips_per_host, devices.tpus, f"TPU chips: {workers} hosts of {one}"
    elif mesh.use_gpu:
        needed, available, what = workers, devices.gpus, "GPUs, one for each worker"
    else:
        needed, available = workers * mesh.cpus_per_worker, devices.cpus
        what = f"CPU cores: {workers} workers with {mesh.cpus_per_worker:g} each"
    if needed > available:
        raise ValueError(f"devices: it takes {needed:g} {what}; {devices}: {_alternatives(recipe, devices)}")
    if mesh.use_tpu and devices.tpu_hosts and devices.tpu_hosts.get(one.topology, 0) < workers:
        hosts_by_topology = sorted(devices.tpu_hosts.items())
        there_are = " and ".join(f"{hosts} of topology {name}" for name, hosts in hosts_by_topology)
        raise ValueError(
            f"devices: it takes {workers} hosts of {one}; {devices.where} has {there_are}, and Ray would wait for "
            "others for ever: give --mesh.topology and --mesh.num-workers as the slices are, or make a cluster of such "
            "slices (gke-tpu-topology and numOfHosts)"
        )
    _check_cores_for_data(mesh, int(available / needed * workers) if needed else workers, devices)


def _check_cores_for_data(mesh: MeshConfig, max_workers: int, devices: Devices) -> None:
    """Raises ValueError if the workers leave Ray Data less than FEED_CPUS of a core.
    max_workers: number of workers that the devices suffice for; an elastic run starts as many."""
    workers, each = min(mesh.num_workers, max_workers), 1.0 if mesh.use_tpu else mesh.cpus_per_worker
    if (left := round(devices.cpus - workers * each, 6)) >= FEED_CPUS:
        return
    most = math.floor((devices.cpus - FEED_CPUS) / workers * 100) / 100
    cores = "hosts with two cores each (ray start --num-cpus=2, the limit of cpu in their pods)"
    raise ValueError(
        f"cores for data: {workers} worker(s) with {each:g} each leave {max(0.0, left):g} CPU cores; Ray Data, which "
        f"reads for them, waits for ever without {FEED_CPUS:g}; {devices}: "
        + (f"give --mesh.cpus-per-worker {most:g}" if most > 0 and not mesh.use_tpu else f"give {cores}")
    )


def check_memory(recipe: Recipe, devices: Devices) -> None:
    """Raise ValueError if parameters, gradients and optimizer state do not fit: on each TPU or GPU, or, on CPUs, in the
    memory of the hosts. Activations are not counted; GPUs and hosts whose memory is unknown pass."""
    mesh = recipe.mesh
    where = run_shape(mesh)
    each = bytes_per_device(recipe, where)
    needs = f"memory: parameters, gradients and moments take {gib(state_bytes(recipe))}"
    if mesh.use_tpu:
        one = Slice.of(mesh.accelerator_type, mesh.topology)
        if each > (room := CHIPS[one.generation.name].hbm_bytes):
            raise ValueError(
                f"{needs}, {gib(each)} on each of {where.num_devices} chips with {gib(room)}: take at least "
                f"{min_chips(recipe, one)} chips a slice (jobs/plan_pod.py {recipe.name} --topology "
                f"{one.generation.name}:... --search 4), or adapters (--lora.rank 16)"
            )
    elif mesh.use_gpu:
        room = int((devices.gpu_bytes or 0) / max(1, devices.gpus) * memory_fraction())
        if devices.gpus and devices.gpu_bytes is not None and each > room:
            least = -(-state_bytes(recipe) // room)
            raise ValueError(
                f"{needs}, {gib(each)} on each of {where.num_devices} GPUs with {gib(room)} for jax: take at least "
                f"{least} (--mesh.num-workers {least}), or adapters (--lora.rank 16)"
            )
    elif devices.memory_bytes is not None and state_bytes(recipe) * where.dcn > devices.memory_bytes:
        raise ValueError(
            f"{needs}, {devices.where} has {gib(devices.memory_bytes)} to give: take a smaller model, adapters "
            "(--lora.rank 16), or GPUs or TPUs (--mesh...)"
        )


def _alternatives(recipe: Recipe, devices: Devices) -> str:
    """Advice for missing devices: another cluster, or available devices with enough memory."""
    size = state_bytes(recipe)
    off = "--mesh.no-use-tpu --mesh.dcn 1 --mesh.fsdp -1 --mesh.tp 1"
    elsewhere = "submit it to a cluster that has them (RAY_ADDRESS)"
    if devices.gpus and (devices.gpu_bytes or 0) >= size:
        return f"{elsewhere}, or use the GPUs: {off} --mesh.use-gpu --mesh.num-workers {devices.gpus}"
    if (devices.memory_bytes or 0) >= size:
        return f"{elsewhere}, or use the cores: {off} --mesh.no-use-gpu --mesh.num-workers 1"
    return elsewhere


def _fitting(devices: Devices) -> str:
    """Names of the recipes that the devices suffice for, or "none"."""
    names = []
    for name in NAMES:
        try:
            check_devices(get_recipe(name), devices)
            check_memory(get_recipe(name), devices)
        except ValueError:
            continue
        names.append(name)
    return ", ".join(names) or "none"
