"""Bounds of ``plan_serving.py --check`` on plans that nobody compiled."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from lemur_ray.recipes import get_recipe
from lemur_ray.serve.compute.ahead_of_time import Step
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.planning.machines import parse_machine
from lemur_ray.serve.planning.serving_plan import PlannedStep, ServingPlan

CHAT = get_recipe("lemur-70b-chat").model


def plan(
    where: str, *, traffic: float = 1.0, rows: int = 64, length: int = 1, singles: int = 0, temporaries: int = 0,
    **engine: Any,
) -> Any:  # fmt: skip
    devices = parse_machine(*((where, "") if ":" in where else ("", where)))
    assert devices is not None
    options = EngineOptions(dtype="bfloat16", batch_invariant=False, **engine)
    named: dict[str, Any] = {"rows": rows, "length": length, "weights": 2**30, "temporaries": temporaries}
    named["singles"] = singles
    step = Step(**{field.name: 0 for field in fields(Step)} | named)
    in_layers: Any = SimpleNamespace(count=160, origin="forward.py:1")
    planned = PlannedStep(step, (in_layers,), 0, traffic)
    return ServingPlan("chat", CHAT, options, devices, 80, (planned,)).broken()


@pytest.mark.parametrize(
    ("where", "engine", "rows", "length", "most"),
    [
        ("v4:2x2x2", {}, 64, 1, 1.02),
        ("v5e:2x4", {"quantization": "int8"}, 64, 1, 1.02),
        ("v4:2x2x2", {}, 128, 1, 1.04),
        ("v6e:2x4", {}, 14, 32, 1.20),
        ("v5p:2x2x2", {}, 64, 1, 1.10),
        ("v5p:2x2x2", {}, 16, 32, 1.70),
        ("v5p:2x2x2", {"quantization": "int8"}, 64, 1, 1.20),
    ],
)
def test_a_step_may_not_move_more_in_memory_than_its_weights_and_some(
    where: str, engine: dict, rows: int, length: int, most: float
) -> None:
    assert plan(where, traffic=most - 0.001, rows=rows, length=length, **engine) == []
    (sentence,) = plan(where, traffic=most + 0.001, rows=rows, length=length, **engine)
    kind = "decode" if length == 1 else "prefill"
    assert sentence == f"{kind}: memory traffic {most + 0.001:.3f} times the weights, at most {most:.3f}"


@pytest.mark.parametrize(
    ("where", "singles", "most", "text"),
    [("v4:2x2x2", 0, 96, "0.09"), ("h200x8", 0, 64, "0.06"), ("h200x8", 64, 64, "0.06")],
)
def test_temporaries_with_code_are_bounded_by_platform(where: str, singles: int, most: int, text: str) -> None:
    step = {"rows": 4, "length": 32, "singles": singles}
    assert plan(where, temporaries=most * 2**20, **step) == []
    (sentence,) = plan(where, temporaries=most * 2**20 + 2**23, **step)
    assert sentence.endswith(f"of temporaries and code, at most {text} GiB")
