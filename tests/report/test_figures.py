"""Drawings are well-formed, hold every series, and survive odd numbers and names."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemur_ray.report.pages.figures import WIDTH, Mark, curves, intervals, shares, thin, ticks
from lemur_ray.report.pages.markup import DASH, cell

names = st.text(max_size=12).filter(lambda s: all(c.isprintable() for c in s))
points = st.lists(
    st.tuples(st.floats(0, 1e6), st.one_of(st.floats(-1e9, 1e9), st.sampled_from([math.nan, math.inf, -math.inf]))),
    max_size=30,
)


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html)


@given(st.dictionaries(names, points, max_size=12))
def test_curves_are_well_formed_for_any_names_and_numbers(series: dict[str, list[tuple[float, float]]]) -> None:
    tree = parsed(curves(series, x_label="step", y_label="loss"))
    drawn = [line for line in tree.iter("polyline") if line.get("class", "").startswith("line")]
    usable = [p for p in series.values() if any(math.isfinite(y) for _, y in p)]
    assert len(drawn) == len(usable)
    for line in drawn:
        numbers = [float(n) for pair in line.get("points", "").split() for n in pair.split(",")]
        assert all(math.isfinite(n) and -1 <= n <= 1000 for n in numbers)


def test_thinning_keeps_the_mean_and_at_most_so_many_points() -> None:
    many = [(float(i), float(i % 7)) for i in range(1000)]
    few = thin(many, 300)
    assert len(few) <= 300
    assert sum(y for _, y in few) / len(few) == pytest.approx(sum(y for _, y in many) / 1000, abs=0.05)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_ticks_are_a_handful_of_round_numbers_inside_the_range(low: float, factor: float) -> None:
    span = factor * max(abs(low), 1e-3)
    marks = ticks(low, low + span)
    assert 1 <= len(marks) <= 11
    if len(marks) > 1:
        steps = {round((b - a) / (marks[1] - marks[0]), 3) for a, b in itertools.pairwise(marks)}
        assert steps == {1.0}


def test_an_interval_chart_shows_every_mark_and_leaves_out_dots_without_a_value() -> None:
    marks = [Mark("model", 0.5, 0.4, 0.6, "5/10", 5), Mark("other", None, 0.0, 1.0, "none scored")]
    tree = parsed(intervals([("all", marks), ("put", marks)], label="success"))
    assert len(list(tree.iter("circle"))) == 2
    texts = [text.text for text in tree.iter("text")]
    assert texts.count("none scored") == 2


def test_names_and_numbers_of_an_interval_chart_have_room_beside_its_scale() -> None:
    name, text = "high school government and politics", "1926/7658 = 25.2 %"
    tree = parsed(intervals([(name, [Mark("model", 0.25, 0.2, 0.3, text)])], label="success"))
    scale = [float(line.get("x1", "")) for line in tree.iter("line") if line.get("class") == "grid"]
    (value,) = (float(one.get("x", "")) for one in tree.iter("text") if one.text == text)
    assert min(scale) >= 7 * len(name)
    assert value + 6 * len(text) <= WIDTH


def test_several_values_in_a_cell_are_told_and_not_written_as_code() -> None:
    notes = {"share_of_subfield": {"math": 0.25, "<law>": 0.123456}, "data": ["a1b2"], "none": {}}
    assert [cell(value) for value in notes.values()] == ["math 0.25, &lt;law&gt; 0.1235", "a1b2", DASH]


def test_shares_fill_the_width_in_proportion() -> None:
    tree = parsed(shares([("asked", {"code": 10.0, "text": 1.0}), ("built", {"code": 1.0})], label="mixture"))
    widths = [float(rect.get("width", "0")) for rect in tree.iter("rect")]
    assert len(widths) == 3
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.05)
    assert widths[2] == pytest.approx(widths[0] + widths[1], rel=0.01)


def test_names_are_escaped_in_drawings() -> None:
    html = curves({"<script>&\"'": [(0, 1), (1, 2)]}, x_label="<x>", y_label="y")
    assert "<script>" not in html
    parsed(html)
