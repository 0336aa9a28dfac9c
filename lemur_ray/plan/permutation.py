"""A keyed pseudo-random permutation of [0, n) computed point by point, for a global shuffle without memory.

A Feistel network on the grid ceil(sqrt n) x ceil(n / ceil(sqrt n)), iterated until the value lies inside [0, n) (Black
and Rogaway, "Ciphers with arbitrary finite domains", 2002, generalised Feistel with cycle walking)."""

import math

import numpy as np

ROUNDS = 6
"""Rounds of the Feistel network."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def mix(x: np.ndarray) -> np.ndarray:
    """Hash of each element of a uint64 array: the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def derive_key(*parts: int | np.ndarray) -> np.ndarray:
    """Array of uint64 keys hashed from integers or arrays of them, such as seed, source and epoch; order matters."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = mix(key ^ mix(np.atleast_1d(np.asarray(part)).astype(np.int64).astype(np.uint64)))
    return key


def permute(indices: np.ndarray, size: int, key: np.ndarray) -> np.ndarray:
    """Position of each index in the permutation of [0, size) that ``key`` selects: int64, of the shape of ``indices``.
    key: uint64, one for all indices or one per index. Raises ValueError for an index outside [0, size)."""
    indices = np.asarray(indices, np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise ValueError(f"indices {indices.min()} to {indices.max()}: expected 0 to {size - 1}")
    if indices.size == 0:
        return indices.copy()
    width = math.isqrt(size - 1) + 1
    height = -(-size // width)
    keys = np.broadcast_to(key, indices.shape)
    value = _network(indices, width, height, keys)
    outside = np.flatnonzero(value >= size)
    while outside.size:
        value[outside] = _network(value[outside], width, height, keys[outside])
        outside = outside[value[outside] >= size]
    return value


def _network(x: np.ndarray, width: int, height: int, keys: np.ndarray) -> np.ndarray:
    left, right = np.divmod(x.astype(np.uint64), np.uint64(height))
    for round_number in range(ROUNDS):
        tweak = keys + np.uint64(round_number * int(_GOLDEN) % 2**64)
        # The high half of the hash, scaled to the range by a multiplication, is uniform enough and needs no division.
        if round_number % 2 == 0:
            left = _add_modulo(left, _below(mix(right ^ tweak), width), width)
        else:
            right = _add_modulo(right, _below(mix(left ^ tweak), height), height)
    return (left * np.uint64(height) + right).astype(np.int64)


def _below(hashed: np.ndarray, bound: int) -> np.ndarray:
    return ((hashed >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)


def _add_modulo(a: np.ndarray, b: np.ndarray, bound: int) -> np.ndarray:
    total = a + b
    return np.where(total >= np.uint64(bound), total - np.uint64(bound), total)
