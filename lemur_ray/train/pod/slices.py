"""TPU slices: chips and hosts of a topology, and checks that workers, mesh and batch of a recipe fit them.

The rules per generation are those of Cloud TPU: v4 and v5p are 3-D tori with 4 chips a host; v5e and v6e are 2-D with
4, and up to 8 if the whole slice is one host. An elastic run has one shape for each permitted number of workers. Knows
nothing of Ray, of jax and of which devices exist."""

import dataclasses
import math
import re
from dataclasses import dataclass

from lemur_ray.config import MeshConfig, Recipe, TrainConfig, did_you_mean
from lemur_ray.config.mesh import axis_sizes

CHIPS_PER_HOST = 4
"""Chips per host in a slice of several hosts, for every generation."""
_FLAT = ("1x1", "2x2", "2x4", "2x8", "4x4", "4x8", "8x8", "8x16", "16x16")
_FLAT_ON_ONE_HOST = ("1x1", "2x2", "2x4")
_CUBES_BELOW_64_CHIPS = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")


@dataclass(frozen=True)
class Generation:
    """Properties of a TPU generation: its names, axes of its topologies, cores of a chip."""

    name: str
    """Name in a topology of ``plan_pod.py``: v4, v5p, v5e, v6e."""
    accelerator_type: str
    """Ray's name of the generation."""
    num_axes: int
    """Number of axes of a topology: 2 or 3."""
    cores_per_chip: int
    """Factor between chips and the number in a pod type: v4-512 is 256 chips."""


GENERATIONS = {
    generation.name: generation
    for generation in (
        Generation("v4", "TPU-V4", 3, 2),
        Generation("v5p", "TPU-V5P", 3, 2),
        Generation("v5e", "TPU-V5LITEPOD", 2, 1),
        Generation("v6e", "TPU-V6E", 2, 1),
    )
}


def generation(name: str) -> Generation:
    """The generation called ``v5e``, ``TPU-V5E`` or, by Ray, ``TPU-V5LITEPOD``. Raises ValueError for another name."""
    short = name.strip().lower().removeprefix("tpu-").replace("v5litepod", "v5e")
    if short not in GENERATIONS:
        known = [known.accelerator_type for known in GENERATIONS.values()]
        raise ValueError(f"accelerator_type is {name!r}{did_you_mean(name.upper(), known)}")
    return GENERATIONS[short]


@dataclass(frozen=True)
class Slice:
    """A TPU slice: interconnected chips, reserved and lost together. ``topology``: chips by axis, as ``2x2x4``."""

    generation: Generation
    topology: str

    @classmethod
    def of(cls, accelerator_type: str, topology: str) -> "Slice":
        """The slice of that type and topology. Raises ValueError listing the existing ones."""
        kind, text = generation(accelerator_type), topology.strip().lower()
        axes = "AxBxC" if kind.num_axes == 3 else "AxB"
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text) or text.count("x") + 1 != kind.num_axes:
            raise ValueError(f"topology is {topology!r}: expected {axes} chips for {kind.accelerator_type}")
        if kind.num_axes == 2 and text not in _FLAT:
            raise ValueError(f"topology is {text}: {kind.accelerator_type} has {', '.join(_FLAT)}")
        if kind.num_axes == 3 and text not in _CUBES_BELOW_64_CHIPS and any(n % 4 for n in map(int, text.split("x"))):
            raise ValueError(
                f"topology is {text}: {kind.accelerator_type} has {', '.join(_CUBES_BELOW_64_CHIPS)} and multiples of "
                "4 along every axis"
            )
        return cls(kind, text)

    @property
    def name(self) -> str:
        """Name of the TPU generation, as "v5e"."""
        return self.generation.name

    @property
    def num_chips(self) -> int:
        return math.prod(map(int, self.topology.split("x")))

    @property
    def chips_per_host(self) -> int:
        alone = self.generation.num_axes == 2 and self.topology in _FLAT_ON_ONE_HOST
        return self.num_chips if alone else CHIPS_PER_HOST

    @property
    def num_hosts(self) -> int:
        return self.num_chips // self.chips_per_host

    @property
    def pod_type(self) -> str:
        """Cloud TPU's name: the number counts cores (v4-512 is 256 chips, v6e-16 is 16)."""
        version = self.generation.accelerator_type.lower().removeprefix("tpu-")
        return f"{version}-{self.num_chips * self.generation.cores_per_chip}"

    def devices_of(self, mesh: MeshConfig) -> int:
        """Number of devices of a run on ``mesh.dcn`` such slices."""
        return self.num_chips * mesh.dcn

    @property
    def tp_within(self) -> int:
        """Number of devices within which tensor parallelism stays (``mesh.tp`` must divide it): a slice's chips."""
        return self.num_chips

    def mesh_of(self, mesh: MeshConfig) -> MeshConfig:
        """``mesh`` with the workers of ``mesh.dcn`` such slices."""
        return dataclasses.replace(
            mesh, use_tpu=True, use_gpu=False, topology=self.topology,
            accelerator_type=self.generation.accelerator_type, num_workers=self.num_hosts * mesh.dcn,
        )  # fmt: skip

    def __str__(self) -> str:
        return (
            f"topology {self.topology} of {self.generation.accelerator_type} ({self.num_chips} chips, "
            f"{self.chips_per_host} per host)"
        )


def small_slices(name: str) -> list[Slice]:
    """The slices of a generation with at most 64 chips, the smallest first."""
    kind = GENERATIONS[name]
    texts = (*_CUBES_BELOW_64_CHIPS, "4x4x4") if kind.num_axes == 3 else _FLAT
    return [one for one in (Slice(kind, text) for text in texts) if one.num_chips <= 64]


def parse_slice(text: str) -> Slice:
    """Parse a slice such as ``v4:4x8x8``. Raises ValueError for another text."""
    name, colon, topology = text.partition(":")
    if not colon:
        raise ValueError(f"topology is {text!r}: expected GENERATION:TOPOLOGY, for example v4:4x8x8 or h100:8")
    return Slice.of(name, topology)


@dataclass(frozen=True)
class RunShape:
    """Numbers of workers and slices of a run, devices of a worker, and sizes of the mesh axes ``dcn``, ``fsdp`` and
    ``tp``, whose product is the number of devices. Ranks are numbered slice by slice."""

    num_workers: int
    num_slices: int
    devices_per_worker: int
    dcn: int
    fsdp: int
    tp: int

    @property
    def num_devices(self) -> int:
        return self.num_workers * self.devices_per_worker

    @property
    def num_shares(self) -> int:
        """Number of parts that a batch is read in: one per worker, or per group of workers that share a tp axis."""
        return self.num_workers // max(1, self.tp // self.devices_per_worker)

    def share_of(self, rank: int) -> int:
        return rank * self.num_shares // self.num_workers

    def slice_of(self, rank: int) -> int:
        return rank * self.num_slices // self.num_workers

    def __str__(self) -> str:
        return f"mesh dcn {self.dcn} x fsdp {self.fsdp} x tp {self.tp}"


def worker_counts(mesh: MeshConfig) -> list[int]:
    """Permitted numbers of workers, in decreasing order; several for an elastic run, in steps of a slice."""
    least = mesh.min_workers or mesh.num_workers
    step = Slice.of(mesh.accelerator_type, mesh.topology).num_hosts if mesh.use_tpu and mesh.topology else 1
    return list(range(mesh.num_workers, least - 1, -step))


def run_shape(mesh: MeshConfig, *, num_workers: int | None = None, cpu_devices: int = 1) -> RunShape:
    """The shape of a run with ``num_workers`` workers (None: ``mesh.num_workers``). cpu_devices: devices of one worker
    that has neither TPU nor GPU. In an elastic run dcn follows the number of slices, and on GPU and CPU fsdp that of
    workers. Raises ValueError if topology, workers and mesh do not agree."""
    workers = mesh.num_workers if num_workers is None else num_workers
    if mesh.use_tpu and mesh.use_gpu:
        raise ValueError("use_tpu and use_gpu are both set: choose one")
    if not mesh.use_tpu:
        return _fill(mesh, workers, 1, 1 if mesh.use_gpu else cpu_devices, mesh.dcn)
    if not (mesh.topology and mesh.accelerator_type):
        raise ValueError("use_tpu needs topology and accelerator_type, for example --mesh.topology 4x8x8 "
                         "--mesh.accelerator-type TPU-V4")  # fmt: skip
    one = Slice.of(mesh.accelerator_type, mesh.topology)
    for name, value in (("num_workers", workers), ("min_workers", mesh.min_workers or workers)):
        if value % one.num_hosts:
            more = -(-value // one.num_hosts) * one.num_hosts
            slices = "" if more == one.num_hosts else f" (or another multiple of {one.num_hosts}, one per slice)"
            raise ValueError(f"{name} {value} cannot hold {one}: use {more}{slices}")
    num_slices = workers // one.num_hosts
    if mesh.dcn != mesh.num_workers // one.num_hosts:
        raise ValueError(
            f"num_workers {mesh.num_workers} is {mesh.num_workers // one.num_hosts} slice(s) of {one}, but dcn is "
            f"{mesh.dcn}: use dcn {mesh.num_workers // one.num_hosts}, or num_workers {mesh.dcn * one.num_hosts}"
        )
    return _fill(mesh, workers, num_slices, one.chips_per_host, num_slices)


def _fill(mesh: MeshConfig, workers: int, slices: int, per_worker: int, dcn: int) -> RunShape:
    """The run shape on workers x per_worker devices. Raises ValueError if the mesh does not fill them exactly."""
    if mesh.min_workers > mesh.num_workers:
        raise ValueError(
            f"min_workers {mesh.min_workers} is more than num_workers {mesh.num_workers}: use at most that"
        )
    devices = workers * per_worker
    spelled = f"the {devices} devices of {workers} worker(s) with {per_worker} each"
    dcn, fsdp, tp = axis_sizes(dataclasses.replace(mesh, dcn=dcn), devices, spelled)
    if tp % per_worker and per_worker % tp:
        raise ValueError(
            f"tp {tp} neither divides the {per_worker} devices of a worker nor is a multiple of them: workers "
            "would share rows of a batch in part"
        )
    return RunShape(workers, slices, per_worker, dcn, fsdp, tp)


@dataclass(frozen=True)
class BatchSplit:
    """Division of a global batch over the devices of a run."""

    rows: int
    """Rows of the batch, padding included."""
    microbatches: int
    """Number of pieces that gradients are accumulated over."""
    padding: int
    """Rows of weight zero, appended so that the batch divides over the devices."""


MOST_PADDING = 1 / 8
"""Maximum padding rows per row of a batch: 1,024 rows on three slices of 64 shares become 1,152."""


def split_batch(train: TrainConfig, where: RunShape) -> BatchSplit:
    """Divide a batch over the devices, with the same rows and mathematics on any number of slices.
    A device never computes more rows at once than with ``train.microbatches`` on one slice; fewer rows per device mean
    fewer pieces. Raises ValueError if microbatches do not divide the rows or the padding would exceed MOST_PADDING."""
    parts, rows = where.dcn * where.fsdp, train.rows_per_step
    each = -(-rows // parts)
    padding = each * parts - rows
    if rows % train.microbatches or padding > rows * MOST_PADDING:
        over = f"{train.microbatches} microbatch(es)" if rows % train.microbatches else f"{parts} devices"
        unit = train.microbatches if rows % train.microbatches else parts
        works = " or ".join(f"{count:,}" for count in sorted({max(1, rows // unit) * unit, -(-rows // unit) * unit}))
        raise ValueError(
            f"a batch of {rows} rows does not split over {over} ({where.num_workers} worker(s), {where}, "
            f"{train.microbatches} microbatch(es)): set --train.rows-per-step to {works} or another multiple of "
            f"{unit:,}{_slices_that_work(rows, where)}"
        )
    pieces = next(n for n in range(min(train.microbatches, each), each + 1) if each % n == 0)
    return BatchSplit(rows + padding, pieces, padding)


def _slices_that_work(rows: int, where: RunShape) -> str:
    """Advice on the numbers of slices, up to eight, that a batch divides over; empty for a run of one slice."""
    counts = [n for n in range(1, 9) if -rows % (n * where.fsdp) <= rows * MOST_PADDING]
    if where.num_slices == 1 or not counts:
        return ""
    return f", or go from {where.num_slices} to {', '.join(map(str, counts[:-1]))} or {counts[-1]} slices"


def on_devices(recipe: Recipe, where: RunShape) -> Recipe:
    """The recipe with the padded rows and the microbatches of ``split_batch``, for which its step is compiled."""
    split = split_batch(recipe.train, where)
    train = dataclasses.replace(recipe.train, rows_per_step=split.rows, microbatches=split.microbatches)
    return dataclasses.replace(recipe, train=train)
