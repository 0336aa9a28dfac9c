"""Program for a Python that has the package webarena-verified: ``verified_program.py tasks`` or ``... score``.

``tasks`` prints its version and tasks. ``score`` reads a list of episodes as JSON (see ``verdict``), and prints a
list of {"score", "status", "why"}. It imports nothing of this project, since that Python has only the package."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys
from typing import Any


def tasks() -> dict[str, Any]:
    """{``version``: of the installed package, ``tasks``: the tasks of its data set as JSON values}."""
    from webarena_verified.api import WebArenaVerified

    rows = json.loads(WebArenaVerified().config.test_data_file.read_text(encoding="utf-8"))
    return {"version": importlib.metadata.version("webarena-verified"), "tasks": rows}


def verdict(episode: dict[str, Any]) -> dict[str, Any]:
    """Score one episode by the package's evaluators; returns its ``score``, ``status`` and ``why``, at most 300
    characters. ``episode``: ``urls`` by site, ``task``, ``answer``, and ``entries`` of the request log."""
    from pathlib import Path

    from webarena_verified.api import WebArenaVerified
    from webarena_verified.types.config import WebArenaVerifiedConfig
    from webarena_verified.types.eval import TaskEvalContext
    from webarena_verified.types.task import WebArenaVerifiedTask
    from webarena_verified.types.tracing import NetworkEvent, NetworkTrace

    sites = {f"__{name}__": {"urls": [url]} for name, url in episode["urls"].items()}
    config = WebArenaVerifiedConfig(environments=sites)
    events = tuple(NetworkEvent.model_construct(data=entry) for entry in episode["entries"])
    context = TaskEvalContext(
        task=WebArenaVerifiedTask(**episode["task"]),
        agent_response_raw=episode["answer"],
        network_trace=NetworkTrace.model_construct(is_playwright=False, src_file=Path("episode"), events=events),
        config=config,
    )
    result = WebArenaVerified(config=config)._evaluator.evaluate_task(context=context)
    reasons = [result.error_msg] + [one.error_msg for one in result.evaluators_results]
    for one in result.evaluators_results:
        reasons += [text for check in one.assertions or () for text in check.assertion_msgs or ()]
    why = "; ".join(text for text in reasons if text)
    return {"score": result.score, "status": str(getattr(result.status, "value", result.status)), "why": why[:300]}


def main() -> None:
    logging.disable(logging.CRITICAL)
    written = tasks() if sys.argv[1] == "tasks" else [verdict(one) for one in json.load(sys.stdin)]
    sys.stdout.write(f"\n{json.dumps(written)}\n")


if __name__ == "__main__":
    main()
