"""Source becomes a tree in many threads at once."""

from __future__ import annotations

import ast
import gc
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from lemur_ray.host.python_source import parsed

SOURCE = "\n".join(f"def f{i}(a, b=({i}, [1, 2])):\n    return {{a: b, 'c': [a for a in b if a]}}" for i in range(60))


class _LetsOthersIn:
    """Garbage of a circle, whose end gives the interpreter away: a collection in mid-parse is such a moment."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def many_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    yield
    gc.set_threshold(*before)


def test_threads_at_different_depths_parse_at_once(many_collections: None) -> None:
    failures: list[BaseException] = []

    def parse(depth: int) -> None:
        if depth:
            return parse(depth - 1)
        for _ in range(40):
            [_LetsOthersIn() for _ in range(20)]
            try:
                assert len(parsed(SOURCE).body) == 60
            except BaseException as error:
                failures.append(error)
        return None

    threads = [threading.Thread(target=parse, args=(depth,)) for depth in (0, 7, 19, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:2]


def test_one_expression_and_no_warning_of_the_programs_own_affairs() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(parsed(r"'\w'", "eval").body, ast.Constant)
    with pytest.raises(SyntaxError):
        parsed("a = 1", "eval")
