"""What comes out of a sandbox is counted before it is read: no bytes of a policy cost more than they may."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemur_ray.sandbox.untrusted_output import Bounds, UntrustedData, has_shape, untrusted_json

WIDE = Bounds(2**20, nodes=10_000, depth=50)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


@given(JSON)
def test_what_is_json_is_read_as_it_is_but_for_halves_of_pairs(value: Any) -> None:
    for ascii_only in (True, False):
        data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "replace")
        found = untrusted_json(data, WIDE)
        json.dumps(found, ensure_ascii=False).encode()
        if not any("\ud800" <= letter <= "\udfff" for letter in json.dumps(value, ensure_ascii=False)):
            assert found == value


def nodes(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(map(nodes, value))
    if isinstance(value, dict):
        return 1 + sum(1 + nodes(item) for item in value.values())
    return 1


@given(JSON)
def test_no_value_has_more_nodes_than_were_counted(value: Any) -> None:
    with pytest.raises(UntrustedData, match="values"):
        untrusted_json(json.dumps(value).encode(), Bounds(2**20, nodes=nodes(value) - 1, depth=50))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[" * 2**21, "2097152 bytes of JSON: expected at most 1048576"),
        (b"[" * 200_000, "a JSON of 200001 values: expected at most 10000"),
        (b"[" * 9_000, "depth 9000: expected at most 50"),
        (b"{}," * 10_000, "values"),
        (b'{"a":' * 3_000, "depth 3000"),
        (b'["' + b"\\" * 99_999, "no JSON"),
        (b'"' * 99_999, "no JSON"),
        (b"]" * 99_999, "no JSON"),
        (b"9" * 9_999, "no JSON"),
        (b"[NaN]", "NaN is no number"),
        (b"-Infinity", "-Infinity is no number"),
        (b"", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b'{"a": 1} {"b": 2}', "no JSON"),
    ],
)
def test_what_is_larger_deeper_or_no_json_is_the_policys_fault(data: bytes, what: str) -> None:
    with pytest.raises(UntrustedData, match=what) as raised:
        untrusted_json(data, WIDE)
    assert raised.value.blame == "policy"


def test_a_megabyte_of_lists_costs_no_more_than_its_bytes() -> None:
    data = b'{"value": [' + b"[]," * 300_000 + b"[]]}"
    tracemalloc.start()
    try:
        with pytest.raises(UntrustedData):
            untrusted_json(data, WIDE)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b'\\"' * 2**19,
        b'"' + b'\\"' * 2**19 + b"\\",
        b'{"value": "' + b"\\" * 2**20,
        b'"' * 2**20,
        b'"' * (2**20 + 1),
        b'["\\""' + b'"\\"' * 2**18,
        b"]" * 2**20,
        b"9" * 2**20,
        b" " * 2**20,
    ],
    ids=lambda data: f"{data[:14]!r}...{data[-2:]!r}",
)
def test_a_megabyte_takes_no_more_time_than_its_bytes(data: bytes) -> None:
    """Who reads it holds the interpreter, and with it every neighbour's episode."""
    began = time.thread_time()
    with pytest.raises(UntrustedData):
        untrusted_json(data, Bounds(2 * len(data), nodes=100_000, depth=250))
    assert time.thread_time() - began < 0.3  # of what grows with the square of its size it would be minutes


def test_halves_of_pairs_and_bytes_that_are_no_text_become_text() -> None:
    assert untrusted_json(b'{"\\ud800": ["a\\udfff", "\\ud83d\\ude00"]}', WIDE) == {"\ufffd": ["a\ufffd", "\U0001f600"]}
    assert untrusted_json(b'["\xff\xc3"]', WIDE) == ["\ufffd\ufffd"]


@pytest.mark.parametrize(
    ("value", "shape", "has"),
    [
        ({"call": "x", "arguments": ["a"]}, {"call": str, "arguments": [str]}, True),
        ({"call": "x"}, {"call": str, "arguments": [str]}, False),
        ({"call": "x", "arguments": [], "more": 1}, {"call": str, "arguments": [str]}, False),
        ({"call": ["x"], "arguments": []}, {"call": str, "arguments": [str]}, False),
        ({"call": "x", "arguments": [1]}, {"call": str, "arguments": [str]}, False),
        ([["/a", "f", 420, ""]], [(str, str, int, str)], True),
        ([["/a", "f", True, ""]], [(str, str, int, str)], False),
        ([["/a", "f", 420]], [(str, str, int, str)], False),
        ("text", [str], False),
        (None, {"out": str}, False),
    ],
)
def test_a_shape_is_exact(value: Any, shape: Any, has: bool) -> None:
    assert has_shape(value, shape) is has
