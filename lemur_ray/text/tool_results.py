"""Matching of tool results to calls, by ``tool_call_id`` and the calls of the preceding assistant turn.

Most chat templates print results without call ids, so a model can only match them by order."""

from collections.abc import Sequence

from lemur_ray.agents.messages import Message


def sort_results_by_call(messages: Sequence[Message]) -> list[Message]:
    """Copy of the messages with the tool results after each assistant turn in the order of its calls.
    Results stay in place if one of them matches no call."""
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
    """(index of the first tool result whose id matches no call of the assistant turn before it, ids of those calls);
    None if all match. Results without id, and after a turn without call ids, count as matching."""
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
