"""inspect_ai's openai-api provider against a server: python inspect_client.py URL LOGS. Prints JSON."""

import json
import os
import sys
from collections.abc import Awaitable, Callable

os.environ |= {"LEMUR_API_KEY": "none", "LEMUR_BASE_URL": sys.argv[1], "INSPECT_LOG_DIR": sys.argv[2]}

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool

MODEL = "openai-api/lemur/tiny"


@tool
def add() -> Tool:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: The first.
            y: The second.
        """
        return x + y

    run: Callable[..., Awaitable[int]] = execute
    return run


def main() -> None:
    samples = [Sample(input="say hello", target="x"), Sample(input="long " * 4000, target="x")]
    task = Task(dataset=samples, solver=[generate()], scorer=includes())
    (plain,) = eval(task, model=MODEL, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2, display="none")
    must = [use_tools(add(), tool_choice="any"), generate(tool_calls="single")]
    task = Task(dataset=[Sample(input="add 1 and 2", target="3")], solver=must, scorer=includes())
    (called,) = eval(task, model=MODEL, max_tokens=120, temperature=1, seed=3, display="none")
    messages = called.samples[0].messages
    calls = [call for message in messages for call in getattr(message, "tool_calls", None) or []]
    print(
        json.dumps(
            {
                "status": [plain.status, called.status],
                "stop_reasons": [sample.output.stop_reason for sample in plain.samples],
                "logprobs": len(plain.samples[0].output.choices[0].logprobs.content),
                "calls": [[call.function, call.arguments] for call in calls],
                "results": [message.text for message in messages if message.role == "tool"],
            }
        )
    )


if __name__ == "__main__":
    main()
