"""Listing requests of a restart from a bucket: as many for a thousand workers as for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.train import checkpoint
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.on_ray.trainer import newest_step, next_row
from lemur_ray.train.run.fence import Fence
from tests.storage.bucket_server import Service
from tests.storage.conftest import google  # noqa: F401  # a fixture

RUN = "gs://bucket/run"
FOLDER = f"{RUN}/checkpoints"
KEPT = 3
LISTING = "GET listing"


def state(seed: int) -> dict[str, jax.Array]:
    return {"w": jax.random.normal(jax.random.key(seed), (64, 64)), "step": jnp.int32(seed)}


class Shared:
    """Values that rank 0 shares, in the order of its calls; the real ``share`` is tested in train/run."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def of(self, rank: int) -> Callable[[Callable[[], Any]], Any]:
        left = iter(self.values)

        def share(make: Callable[[], Any]) -> Any:
            if rank == 0:
                self.values.append(json.dumps(make()))
                return json.loads(self.values[-1])
            return json.loads(next(left))

        return share


@pytest.fixture
def kept(google: Service) -> Service:  # noqa: F811
    """The service after two attempts of a run; each has left some of the newest checkpoints."""
    for steps in (range(1, KEPT + 1), [KEPT + 1]):
        with Checkpoints(FOLDER, keep=KEPT, fence=Fence(RUN)) as checkpoints:
            for step in steps:
                checkpoints.save(step, state(step), {"rows": 2 * step})
    return google


@pytest.mark.parametrize("num_workers", [4, pytest.param(1000, marks=[pytest.mark.sweep, pytest.mark.timeout(3000)])])
def test_only_rank_0_lists_what_the_workers_restore(
    kept: Service, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), state(0))
    shared, asked, fence = Shared(), list[int](), Fence(RUN)
    for rank in range(num_workers):
        monkeypatch.setattr(checkpoint, "share", shared.of(rank))
        before = kept.asked[LISTING]
        with Checkpoints(FOLDER, keep=KEPT, primary=rank == 0, fence=fence) as checkpoints:
            newest = checkpoints.newest()
            assert newest is not None
            assert (newest.step, newest.plan["rows"]) == (KEPT + 1, 2 * (KEPT + 1))
            assert checkpoints.path(newest.step) == newest.folder == f"{FOLDER}/{KEPT + 1}.attempt-2"
            restored = checkpoints.restore(newest.step, like)
        assert np.array_equal(restored["w"], state(newest.step)["w"])
        asked.append(kept.asked[LISTING] - before)
    assert asked[1:] == [0] * (num_workers - 1)
    before = kept.asked[LISTING]
    assert (next_row(FOLDER), newest_step(FOLDER)) == (2 * (KEPT + 1), KEPT + 1)
    controller = kept.asked[LISTING] - before
    assert (asked[0], controller) == (1, 2), "of 50 that a restart of 1,000 workers may make"
