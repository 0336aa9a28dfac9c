"""BFCL in the published format: what is offered, which calls are accepted, and golds.

The verdicts of the table were compared with those of the published checker (bfcl-eval 2026.3.23).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.language.bfcl.benchmark import BfclOptions, grade
from envs.language.bfcl.calls import summary
from envs.language.bfcl.literals import java_value, javascript_value
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import ToolCall
from lemur_ray.agents.trajectory import Outcome, Task
from lemur_ray.text.tools_in_words import spell_out
from tests.envs.questions import Says, play, tasks_of

AREA = {
    "name": "math.area",
    "description": "Area of a rectangle.",
    "parameters": {
        "type": "dict",
        "properties": {
            "width": {"type": "float", "description": "Width."},
            "unit": {"type": "string", "description": "Unit.", "default": "m"},
            "sides": {"type": "array", "items": {"type": "integer"}, "description": "Sides."},
            "style": {"type": "dict", "description": "Style."},
        },
        "required": ["width"],
    },
}
ACCEPTED = {"width": [2.0, 3], "unit": ["sq. metre", ""], "sides": [[1, 2], ""], "style": [{"fill": ["red", ""]}, ""]}
JAVA = {
    "name": "Box.open",
    "description": "Opens.",
    "parameters": {
        "type": "dict",
        "properties": {
            "count": {"type": "long", "description": "Count."},
            "keys": {"type": "ArrayList", "items": {"type": "String"}, "description": "Keys."},
        },
        "required": ["count", "keys"],
    },
}
JAVASCRIPT = {
    "name": "open",
    "description": "Opens.",
    "parameters": {
        "type": "dict",
        "properties": {"options": {"type": "dict", "description": "Options."}},
        "required": ["options"],
    },
}
ROWS: dict[str, tuple[list[dict[str, Any]], list[Any] | None]] = {
    "simple_python": ([AREA], [{"math.area": ACCEPTED}]),
    "simple_java": ([JAVA], [{"Box.open": {"count": [5], "keys": [["a", "b"]]}}]),
    "simple_javascript": ([JAVASCRIPT], [{"open": {"options": [{"deep": [True], "name": ["x"]}]}}]),
    "parallel": ([AREA], [{"math.area": {"width": [1.0]}}, {"math.area": {"width": [2.0]}}]),
    "multiple": ([JAVASCRIPT, AREA], [{"math.area": {"width": [1.0], "unit": ["", "m"]}}]),
    "irrelevance": ([AREA], None),
    "live_relevance": ([AREA], None),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "bfcl" / "bfcl_eval" / "data"
    (folder / "possible_answer").mkdir(parents=True)
    for category, (functions, accepted) in ROWS.items():
        question = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Area?"}]]
        row = {"id": f"{category}_0", "question": question, "function": functions}
        (folder / f"BFCL_v4_{category}.json").write_text(json.dumps(row) + "\n")
        if accepted is not None:
            answer = {"id": f"{category}_0", "ground_truth": accepted}
            (folder / "possible_answer" / f"BFCL_v4_{category}.json").write_text(json.dumps(answer) + "\n")
    return tmp_path


def tasks(data: Path, **options: Any) -> dict[str, Task]:
    return {task.category: task for task in tasks_of("bfcl", data, categories=",".join(ROWS), **options)}


def score(task: Task, *calls: tuple[str, Any], text: str = "") -> float:
    written = [ToolCall(name, given if isinstance(given, str) else json.dumps(given)) for name, given in calls]
    return grade(spell_out(text, written), task.options).score


def test_golds_score_one_and_tools_are_offered_as_published(data: Path, tmp_path: Path) -> None:
    every = tasks(data)
    episodes = play(every.values(), ExpertPolicy(), tmp_path)
    assert [episode.outcome for episode in episodes] == [Outcome.SOLVED] * len(ROWS)
    assert summary(episodes)["non_live_ast"] == summary(episodes)["irrelevance_detection"] == 1
    (tool,) = every["simple_python"].options["tools"]
    assert tool["function"]["name"] == "math_area"
    assert tool["function"]["description"].endswith("rectangle. Note that the provided function is in Python 3 syntax.")
    properties = tool["function"]["parameters"]["properties"]
    assert properties["width"]["type"] == "number"
    assert properties["width"]["description"].endswith("This is a float type value.")
    assert properties["style"]["type"] == "object"
    (java,) = every["simple_java"].options["tools"]
    assert java["function"]["parameters"]["properties"]["keys"]["type"] == "string"
    assert AREA["parameters"]["properties"]["width"]["type"] == "float", "the row itself is as it was"


def test_in_words_the_tools_are_in_the_system_message(data: Path, tmp_path: Path) -> None:
    task = tasks(data, tools="words")["simple_python"]
    assert "tools" not in task.options
    policy = Says({task.id: task.options["gold"]})
    (episode,) = play([task], policy, tmp_path)
    request = policy.requests[task.id]
    assert (episode.outcome, request.tools) == (Outcome.SOLVED, ())
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[0].content.startswith("Be brief.\n\n")
    assert '"name": "math_area"' in request.messages[0].content


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"width": 2.0}, 1),
        ({"width": 2}, 1),
        ({"width": "2.0"}, 0),
        ({"width": 4}, 0),
        ({}, 0),
        ({"width": 2, "unit": "SQ METRE"}, 1),
        ({"width": 2, "unit": "foot"}, 0),
        ({"width": 2, "depth": 1}, 0),
        ({"width": 2, "sides": [1, 2]}, 1),
        ({"width": 2, "sides": [2, 1]}, 0),
        ({"width": 2, "sides": ["1", "2"]}, 0),
        ({"width": 2, "style": {"fill": "Red"}}, 1),
        ({"width": 2, "style": {}}, 1),
        ({"width": 2, "style": {"line": 1}}, 0),
        ("[2]", 0),
        ("{width: 2}", 0),
    ],
)
def test_arguments_are_accepted_by_the_published_rules(data: Path, arguments: Any, right: int) -> None:
    assert score(tasks(data)["simple_python"], ("math_area", arguments)) == right


def test_names_and_numbers_of_calls_count(data: Path) -> None:
    every = tasks(data)
    one, two = ("math_area", {"width": 1}), ("math_area", {"width": 2})
    assert score(every["simple_python"], ("math.area", {"width": 2})) == 0, "it is offered without the dot"
    assert score(every["simple_python"], two, two) == 0
    assert score(every["simple_python"], text="The area is 2.") == 0
    assert score(every["parallel"], two, one) == 1
    assert score(every["parallel"], two, two) == 0
    assert score(every["parallel"], one) == 0
    assert score(every["multiple"], one) == 1
    assert score(every["multiple"], ("open", {"options": "{}"})) == 0


def test_of_irrelevant_functions_none_is_called(data: Path) -> None:
    every = tasks(data)
    call = ("math_area", {"width": 1})
    assert (score(every["irrelevance"], call), score(every["irrelevance"], text="None fits.")) == (0, 1)
    assert (score(every["live_relevance"], call), score(every["live_relevance"], text="Hm.")) == (1, 0)
    assert score(every["live_relevance"], ("math_area", "{width")) == 0


def test_an_empty_reply_solves_nothing(data: Path, tmp_path: Path) -> None:
    every = tasks(data)
    episodes = play(every.values(), Says(dict.fromkeys((task.id for task in every.values()), "")), tmp_path)
    assert not any(episode.score for episode in episodes)


@pytest.mark.parametrize(
    ("text", "kind", "nested", "value"),
    [
        ("5L", "long", "", 5),
        ("5", "long", "", "5"),
        ("2.5f", "float", "", 2.5),
        ("1e3", "double", "", 1000.0),
        ("true", "boolean", "", True),
        ("new int[]{1, 2}", "Array", "integer", [1, 2]),
        ('new ArrayList<>(Arrays.asList("a", "b"))', "ArrayList", "String", ["a", "b"]),
        ("new ArrayList<Long>() {{ add(1L); add(2L); }}", "ArrayList", "long", [1, 2]),
        ("new ArrayList<>()", "ArrayList", "String", []),
        ('new HashMap<String, Object>() {{ put("a", 1); put("b", "x"); }}', "HashMap", "", {"a": 1, "b": "x"}),
        ("new HashMap<>()", "HashMap", "", {}),
        ("someList", "ArrayList", "String", "someList"),
    ],
)
def test_java_source_is_read_as_the_published_checker_reads_it(text: str, kind: str, nested: str, value: Any) -> None:
    assert java_value(text, kind, nested) == value


@pytest.mark.parametrize(
    ("text", "kind", "nested", "value"),
    [
        ("'x'", "String", "", "x"),
        ("x", "String", "", "x"),
        ("7n", "Bigint", "", 7),
        ("1.5", "float", "", 1.5),
        ("[1, 'two', true]", "array", "", [1, "two", True]),
        ('new Array("a", "b")', "array", "String", ["a", "b"]),
        ("[[1, 2], [3, 4]]", "array", "array", [[1, 2], [3, 4]]),
        ("{'a': 1, 'b': [1, 2], 'c': x}", "dict", "", {"a": 1, "b": [1, 2], "c": "x"}),
        ("{}", "dict", "", {}),
    ],
)
def test_javascript_source_is_read_as_the_published_checker_reads_it(
    text: str, kind: str, nested: str, value: Any
) -> None:
    assert javascript_value(text, kind, nested) == value


@pytest.mark.parametrize(
    ("category", "problem"),
    [
        ("simple_pyhton", "no category 'simple_pyhton'; expected"),
        ("memory_kv", "memory_kv is not played here: .* stored in earlier conversations"),
        ("web_search_base", "web_search_base is not played here: .* needs the network"),
    ],
)
def test_a_category_that_is_not_played_is_refused_with_the_reason(category: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BfclOptions(categories=f"multiple,{category}")
