"""The clipped surrogate of a policy gradient as loss weights, and how far learner and sampler are apart.

L = -(1/N) sum min(r A, clip(r, 0.8, 1.28) A) over the N drawn ids of a batch, r = exp(log-probability of the learner
minus that of the sampler) (Schulman et al. 2017, arXiv 1707.06347; the bounds are DAPO's, arXiv 2503.14476). Its
gradient is that of a cross-entropy whose weights are r A where the minimum is not the clipped term, and 0 elsewhere; at
r = 1 they are A. Pure; knows nothing of devices."""

from typing import NamedTuple

import numpy as np

LOWEST_RATIO, HIGHEST_RATIO = 0.8, 1.28
USUAL_MISMATCH = 1.1e-7
"""Mean difference, in nats, between log-probabilities of the learner and of the sampler with the same weights:
nano-chat, float32 on a CPU, 813 ids."""
MOST_MISMATCH = 100 * USUAL_MISMATCH
"""Mean difference at which a run stops: the sampler does not serve the learner's weights, or computes otherwise."""


class Ratios(NamedTuple):
    """Loss weights of a batch, and differences of log-probabilities, in nats, between learner and sampler."""

    weights: np.ndarray
    """Loss weights, float32, in the shape of the batch."""
    largest: float
    """Largest difference of a log-probability."""
    mean: float
    """Mean absolute difference."""
    equal: float
    """Share of ids whose log-probabilities are equal to the bit."""
    k3: float
    """Estimate of the divergence of the sampler from the learner (Schulman's k3), mean of an id."""
    clipped: float
    """Share of ids whose gradient is clipped away."""


def ratios(learner: np.ndarray, sampler: np.ndarray, advantage: np.ndarray, drawn: np.ndarray) -> Ratios:
    """Compute the weights and differences of a batch. learner, sampler: log-probabilities of ids; advantage: of each
    id; drawn: 1 where an id was drawn, else 0. All are float32 of one shape. Without drawn ids numbers are 0 (``equal``
    1)."""
    trained = drawn > 0
    difference = np.where(trained, learner - sampler, 0).astype(np.float64)
    ratio = np.exp(difference)
    free = np.where(advantage >= 0, ratio <= HIGHEST_RATIO, ratio >= LOWEST_RATIO)
    weights = np.where(trained & free, ratio * advantage, 0).astype(np.float32)
    if not (count := int(trained.sum())):
        return Ratios(weights, 0.0, 0.0, 1.0, 0.0, 0.0)
    size = np.abs(difference)
    k3 = (ratio - 1 - difference).sum() / count
    equal, clipped = ((trained & one).sum() / count for one in (size == 0, ~free))
    return Ratios(weights, float(size.max()), float(size.sum() / count), float(equal), float(k3), float(clipped))
