"""Compares two query results by Spider's test-suite rule (Zhong et al. 2020, arXiv 2010.02840).

Rows are a multiset, whose order counts if the gold query orders; columns may be in any order."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

Row = tuple[Any, ...]
_QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`"
_DISTINCT = re.compile(rf"({_QUOTED})|\bdistinct\b", re.IGNORECASE)
_SPLIT_OPERATOR = re.compile(rf"({_QUOTED})|([<>!])\s+=")
_THIS_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", re.IGNORECASE)
_END = re.compile(rf"({_QUOTED})|;")


def as_compared(query: str) -> str:
    """The query as the test suite runs it: the first statement, without DISTINCT, operators as one token, the current
    year as 2020."""
    for match in _END.finditer(query):
        if match[1] is None:
            query = query[: match.start()]
            break
    query = _SPLIT_OPERATOR.sub(lambda m: m[1] or f"{m[2]}=", query)
    return _THIS_YEAR.sub("2020", _DISTINCT.sub(lambda m: m[1] or "", query)).strip()


def orders(gold: str) -> bool:
    """Whether the order of rows counts: the gold query has ORDER BY, in a subquery too."""
    return "order by" in re.sub(r"\s+", " ", gold.lower())


def same_rows(got: Sequence[Row], gold: Sequence[Row], ordered: bool) -> bool:
    """Whether the rows equal the gold's for some order of ``got``'s columns. ``ordered``: order of rows counts."""
    if len(got) != len(gold):
        return False
    if not gold:
        return True
    width = len(gold[0])
    if len(got[0]) != width:
        return False
    columns = list(zip(*got, strict=True))
    wanted = list(zip(*gold, strict=True))
    counts = [Counter(column) for column in columns]
    fits = [[n for n in range(width) if counts[n] == Counter(column)] for column in wanted]
    return _fit([], fits, columns, wanted, ordered)


def _fit(chosen: list[int], fits: list[list[int]], columns: list[Row], wanted: list[Row], ordered: bool) -> bool:
    """Whether ``chosen``, the columns for the first of ``wanted``, extends to a permutation with equal rows. ``fits``:
    candidate columns of each wanted one. A choice that already differs is pruned."""
    if chosen:
        mine = zip(*(columns[n] for n in chosen), strict=True)
        gold = zip(*wanted[: len(chosen)], strict=True)
        if not (list(mine) == list(gold) if ordered else Counter(mine) == Counter(gold)):
            return False
    if len(chosen) == len(wanted):
        return True
    free = (n for n in fits[len(chosen)] if n not in chosen)
    return any(_fit([*chosen, n], fits, columns, wanted, ordered) for n in free)
