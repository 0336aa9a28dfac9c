"""The devices of TPU slices in an order in which the axes of a mesh follow those of the torus: rings of neighbours.

In the order of processes, hosts of 2 x 2 chips follow each other, and the chips that share a batch (fsdp) are every
second one: their rings are three links long from one to the next, and two of them go over each link. Knows nothing of
what a step computes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from jax.experimental.mesh_utils import create_device_mesh

log = logging.getLogger(__name__)


def along_torus(devices: Sequence[Any], dcn: int, fsdp: int, tp: int) -> list[Any]:
    """Devices for a mesh (dcn, fsdp, tp), flat. devices: slice by slice.

    They stay as they are off TPUs, and where an axis of the mesh is no product of whole axes of the torus: cutting one
    makes ways shorter, but up to four rings share a link then (tests/train/pod/test_torus.py counts). Likewise, with a
    warning, where the devices are no whole torus: a run is not refused for an order that would be better.
    """
    if devices[0].platform != "tpu":
        return list(devices)
    ordered: list[Any] = []
    each = len(devices) // dcn
    for first in range(0, len(devices), each):
        one = list(devices[first : first + each])
        try:
            ordered += create_device_mesh((fsdp, tp), devices=one).ravel().tolist()
        except NotImplementedError:
            ordered += one
        except (AssertionError, ValueError) as error:  # not all of the torus, or not one device a chip
            log.warning("devices of a slice stay in the order of processes: %s", str(error)[:300])
            ordered += one
    return ordered
