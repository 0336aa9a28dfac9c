"""Orders the devices of TPU slices so that mesh axes lie along torus axes and rings connect neighbours.

In process order hosts of 2 x 2 chips follow each other and a ring of fsdp takes every second chip: each hop is three
links long, and two rings share each link. Knows nothing of what a step computes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from jax.experimental.mesh_utils import create_device_mesh

log = logging.getLogger(__name__)


def along_torus(devices: Sequence[Any], dcn: int, fsdp: int, tp: int) -> list[Any]:
    """Reorder ``devices``, sorted by slice, for a mesh (dcn, fsdp, tp); returns a flat list.
    The order is unchanged off TPUs, and if a mesh axis is not a product of whole torus axes: splitting one shortens
    paths, but up to four rings then share a link (tests/train/pod/test_torus.py counts). It is also unchanged, with a
    warning, if the devices are not a whole torus."""
    if devices[0].platform != "tpu":
        return list(devices)
    ordered: list[Any] = []
    each = len(devices) // dcn
    for first in range(0, len(devices), each):
        one = list(devices[first : first + each])
        try:
            ordered += create_device_mesh((fsdp, tp), devices=one).ravel().tolist()
        except (AssertionError, NotImplementedError, ValueError) as error:
            if not isinstance(error, NotImplementedError):  # not all of the torus, or not one device a chip
                log.warning("devices of a slice stay in the order of processes: %s", str(error)[:300])
            ordered += one
    return ordered
