"""Which call a tool's result answers: ``tool_call_id`` of a message, and the calls of the assistant's turn before it.

Most chat templates show results without the ids of their calls, so that a model that made several knows them by their
order alone: that of its calls. Results and calls without ids stay as they are. Knows nothing of what tools or templates
look like.
"""

from __future__ import annotations

from collections.abc import Sequence

from lemur_ray.agents.messages import Message


def sort_results_by_call(messages: Sequence[Message]) -> list[Message]:
    """The conversation, the results of calls made together in the order of these."""
    out: list[Message] = []
    calls: list[str] = []
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        out += [*_sorted(results, calls), message]
        results, calls = [], _ids(message)
    return out + _sorted(results, calls)


def stray_result(messages: Sequence[Message]) -> tuple[int, list[str]] | None:
    """The place of the first result whose id none of the calls before it has, and the ids that these have."""
    calls: list[str] = []
    for number, message in enumerate(messages):
        if message.role != "tool":
            calls = _ids(message)
        elif message.tool_call_id and calls and message.tool_call_id not in calls:
            return number, calls
    return None


def _ids(message: Message) -> list[str]:
    return [call.id for call in message.tool_calls if call.id]


def _sorted(results: list[Message], calls: list[str]) -> list[Message]:
    if not all(message.tool_call_id in calls for message in results):
        return results
    return sorted(results, key=lambda message: calls.index(message.tool_call_id))
