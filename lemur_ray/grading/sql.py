"""The two rewards of InterCode-SQL: overlap of two results (iou), and overlap times agreement of order (tau).

Published numbers use one or the other (protocol: princeton-nlp/intercode c3e46d8 and its logs), so every result must
name its reward. Pure functions of two lists of rows; knows nothing of databases."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

Reward = Literal["iou", "tau"]
Row = tuple[Any, ...]


def sql_reward(got: Sequence[Row] | None, gold: Sequence[Row], reward: Reward) -> float:
    """Reward of a query's rows ``got`` compared with the rows of the gold query. Solved means exactly 1.0. ``got``:
    None if the query failed, which gives 0. Rows are compared as their Python text, so 1 and 1.0 differ. iou: shared
    rows over all rows, as multisets, in [0, 1]; 1 where both are empty. tau: where rows are shared and their order is
    defined, round(tau-b * iou, 2), which may be negative; else iou."""
    if got is None:
        return 0.0
    left, right = [str(row) for row in got], [str(row) for row in gold]
    shared = Counter(left) & Counter(right)
    num_shared = sum(shared.values())
    union = len(left) + len(right) - num_shared
    if union == 0:
        return 1.0
    iou = num_shared / union
    if reward == "iou" or not shared:
        return iou
    rank = {row: i for i, row in enumerate(sorted(shared))}  # the correlation is of values, not positions
    tau = kendall_tau_b(*([rank[row] for row in _restricted(rows, shared)] for rows in (left, right)))
    return iou if math.isnan(tau) else round(tau * iou, 2)


def _restricted(rows: list[str], shared: Counter[str]) -> list[str]:
    """The rows that are in the multiset ``shared``, each at most as often as there, in their order."""
    left = Counter(shared)
    common = []
    for row in rows:
        if left[row] > 0:
            left[row] -= 1
            common.append(row)
    return common


def kendall_tau_b(x: Sequence[int], y: Sequence[int]) -> float:
    """Kendall's tau-b of two equally long sequences, with ties; NaN for fewer than two pairs or a constant sequence.
    Knight's algorithm, O(n log n): sort by (x, y), then discordant pairs are the exchanges of a merge sort by y."""
    n = len(x)
    pairs = sorted(zip(x, y, strict=True))
    total = n * (n - 1) // 2
    ties_x, ties_y, ties_both = _tied(x), _tied(y), _tied(pairs)
    if total in (ties_x, ties_y):
        return math.nan
    _, exchanges = _sort_counting([b for _, b in pairs])
    concordant_minus_discordant = total - ties_x - ties_y + ties_both - 2 * exchanges
    tau = concordant_minus_discordant / math.sqrt(total - ties_x) / math.sqrt(total - ties_y)
    return max(-1.0, min(1.0, tau))


def _tied(values: Sequence[Any]) -> int:
    """Number of pairs of equal values."""
    return sum(count * (count - 1) // 2 for count in Counter(values).values())


def _sort_counting(values: list[int]) -> tuple[list[int], int]:
    """Sorted values, and the number of pairs in the wrong order before."""
    if len(values) < 2:
        return values, 0
    middle = len(values) // 2
    left, in_left = _sort_counting(values[:middle])
    right, in_right = _sort_counting(values[middle:])
    merged: list[int] = []
    i = j = 0
    exchanges = in_left + in_right
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
            exchanges += len(left) - i
    return merged + left[i:] + right[j:], exchanges
