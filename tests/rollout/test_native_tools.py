"""Tools in the channel: offered to a model in its request, called in its reply, answered in the next request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import gymnasium
import pytest

from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Message, Policy, Sampling, ToolCall
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.openai_wire import parse_reply, request_body
from lemur_ray.agents.recording import record_episodes
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task
from lemur_ray.instruct.conversation import fault
from lemur_ray.instruct.solved import conversations_of
from lemur_ray.report.ledgers.export_and_search import find_text
from lemur_ray.report.ledgers.inspect_log import write_log
from lemur_ray.report.ledgers.stored_episodes import stored_episodes
from lemur_ray.report.pages.transcripts import transcript
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.stored_replies import stored_policy
from lemur_ray.text.tools_in_words import describe_tools, read_calls, spell_out, tool_function
from tests.agents.misbehaving import completion, serving
from tests.rollout.scripted_policy import ScriptedPolicy

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": NUMBERS}}


class SumEnv(TextEnv):
    """Asks for 1 + 2 + 4: the model may call ``add``, and answers with the sum. With ``words``, tools are described."""

    option_names = frozenset({"words"})
    default_max_steps = 4

    def begin(self, options: Mapping[str, Any]) -> Opening:
        if options.get("words"):
            system = describe_tools([], [tool_function(ADD)])[0].content
            return Opening("What is 1 + 2 + 4?", system=system)
        return Opening("What is 1 + 2 + 4?", tools=(ADD,))

    def respond(self, reply: str) -> Turn:
        text, calls = read_calls(reply)
        if not calls:
            return Turn("", text, valid=bool(text), solved=text == "7", finished=True, score=float(text == "7"))
        results = []
        for call in calls:
            values = json.loads(call.arguments)
            known = isinstance(values, dict) and {"a", "b"} <= values.keys()
            results.append(str(values["a"] + values["b"]) if known else "error: expected a and b")
        return Turn(
            "\n".join(results) if len(calls) == 1 else "", reply, valid=True, results=results if len(calls) > 1 else ()
        )


if "tools/Sum-v0" not in gymnasium.registry:  # imported by the tests of the server, too
    gymnasium.register("tools/Sum-v0", SumEnv)


def task(**options: Any) -> Task:
    return Task("sums", "sums/0", f"{__name__}:tools/Sum-v0", "sums", options, max_turns=4)


def play(policy: Policy, limits: EpisodeLimits | None = None, **options: Any) -> Episode:
    key = EpisodeKey("sums", "sums/0", policy.name, "r")
    spec = EpisodeSpec(key, task(**options), Sampling(max_tokens=90), limits or EpisodeLimits())
    with closing(policy) if isinstance(policy, OpenAIPolicy) else nullcontext():
        attempt = run_episode(spec, policy, clock=lambda: 0.0)
    episode = Episode(key, "sums", attempt.outcome, attempt.score, 1, attempt.trajectory, detail=attempt.detail)
    return Episode.from_json(json.loads(json.dumps(episode.to_json())))


def called(*calls: tuple[str, str, Any], text: Any = None) -> Any:
    """A completion with these calls: id, name, arguments."""
    listed = [{"id": i, "type": "function", "function": {"name": name, "arguments": given}} for i, name, given in calls]
    message = {"role": "assistant", "content": text, "tool_calls": listed}
    return completion(choices=[{"index": 0, "finish_reason": "tool_calls", "message": message}])


REPLIES = [
    called(("c1", "add", '{"a": 1, "b": 2}')),
    called(("c2", "add", '{"a": 3, "b": 4}'), ("", "add", '{"a": 1}'), text="Both."),
    completion("7"),
]


@pytest.fixture
def solved() -> Iterator[tuple[Episode, list[dict[str, Any]]]]:
    """An episode with an endpoint that calls tools, and the bodies of its requests."""
    replies = iter(REPLIES)
    with serving(lambda body: next(replies)) as server:
        yield play(OpenAIPolicy(server.url, "toy")), server.asked


def test_an_endpoint_gets_tools_and_the_results_of_its_calls(solved: Any) -> None:
    episode, asked = solved
    assert [body["tools"] for body in asked] == [[ADD]] * 3
    assert (episode.outcome, episode.score) == (Outcome.SOLVED, 1.0)
    assert [m["role"] for m in asked[2]["messages"]] == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    assert [(m["tool_call_id"], m["content"]) for m in asked[2]["messages"] if m["role"] == "tool"] == [
        ("c1", "3"),
        ("c2", "7"),
        ("call_1", "error: expected a and b"),
    ]
    first, second = [m for m in asked[2]["messages"] if m["role"] == "assistant"]
    assert (first["content"], first["tool_calls"][0]["function"]["arguments"]) == ("", '{"a": 1, "b": 2}')
    assert (second["content"], [c["id"] for c in second["tool_calls"]]) == ("Both.", ["c2", "call_1"])
    assert episode.trajectory.tools == (ADD,)
    assert not any(step.cut for step in episode.trajectory.steps), "a call without text is no empty reply"


def test_pages_search_and_exports_show_calls_and_results(solved: Any, tmp_path: Path) -> None:
    episode, asked = solved
    page = str(transcript(episode, "e1"))
    assert "tools offered natively: add" in page
    assert "&#34;b&#34;: 2" in page or "&quot;b&quot;: 2" in page
    assert "error: expected a and b" in page
    (tmp_path / "run").mkdir()
    with Ledger(tmp_path / "run" / "episodes.jsonl") as ledger:
        ledger.append(episode)
    assert [(m.turn, m.who) for m in find_text([tmp_path / "run"], '"b": 4')] == [(2, "tool call")]
    assert [(m.turn, m.who) for m in find_text([tmp_path / "run"], "expected a")] == [(2, "tool result")]
    write_log(tmp_path / "run.eval", stored_episodes(tmp_path / "run" / "episodes.jsonl"), {})
    sample = json.loads(ZipFile(tmp_path / "run.eval").read("samples/sums%2F0_epoch_1.json"))
    assert [m["role"] for m in sample["messages"]][:-1] == [m["role"] for m in asked[2]["messages"]] + ["assistant"]
    assert sample["messages"][3]["tool_calls"][0]["arguments"] == {"a": 3, "b": 4}
    shown = [event["input_refs"][0][1] for event in sample["events"]]
    assert shown == [len(body["messages"]) for body in asked]
    (conversation,) = conversations_of(episode)
    assert fault(conversation) is None
    assert conversation.tools == (ADD,)
    assert [m.to_json() for m in conversation.messages[:-1]] == asked[2]["messages"]


def test_replays_of_a_ledger_and_of_its_episodes_are_the_same_episodes(solved: Any, tmp_path: Path) -> None:
    episode, _ = solved
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        ledger.append(episode)
    again = play(ReplayPolicy(record_episodes([replace(episode, key=replace(episode.key, policy="replay"))], "x")))
    spec = stored_policy(f"ledger:{tmp_path}", "", "sums")
    assert spec is not None
    graded = play(spec())
    for other in (again, graded):
        assert [s.observation for s in other.trajectory.steps] == [s.observation for s in episode.trajectory.steps]
        assert [s.results for s in other.trajectory.steps] == [s.results for s in episode.trajectory.steps]
        assert (other.outcome, other.score) == (episode.outcome, episode.score)
    calls = [[(c.name, c.arguments) for c in s.tool_calls] for s in graded.trajectory.steps]
    assert calls == [[(c.name, c.arguments) for c in s.tool_calls] for s in episode.trajectory.steps]


def test_tools_in_words_need_no_field_and_leave_the_record_as_it_was() -> None:
    call = spell_out("", [ToolCall("add", '{"a": 3, "b": 4}')])
    with serving(lambda body: completion("7" if len(body["messages"]) > 2 else call)) as server:
        episode = play(OpenAIPolicy(server.url, "toy"), words=True)
    assert episode.outcome is Outcome.SOLVED
    assert "tools" not in server.asked[0]
    assert '"name": "add"' in server.asked[0]["messages"][0]["content"]
    assert server.asked[1]["messages"][2:] == [
        {"role": "assistant", "content": call},
        {"role": "user", "content": "7"},
    ]
    record = episode.to_json()["trajectory"]
    assert "tools" not in record
    assert not any({"tool_calls", "results"} & step.keys() for step in record["steps"])


def test_a_policy_without_a_field_for_calls_writes_them_in_its_text() -> None:
    call = spell_out("I add.", [ToolCall("add", '{"a": 3, "b": 4}')])
    episode = play(ScriptedPolicy([call, "7"]))
    assert episode.outcome is Outcome.SOLVED
    step = episode.trajectory.steps[0]
    assert (step.reply, step.tool_calls) == ("I add.", (ToolCall("add", '{"a": 3, "b": 4}', "call_0"),))


def test_text_of_an_endpoint_that_resembles_a_call_is_none_and_is_remarked() -> None:
    call = spell_out("", [ToolCall("add", '{"a": 3, "b": 4}')])
    with serving(lambda body: completion(call)) as server:
        episode = play(OpenAIPolicy(server.url, "toy"))
    assert episode.outcome is Outcome.FAILED
    assert episode.trajectory.steps[0].tool_calls == ()
    assert "--tools words" in episode.detail


@pytest.mark.parametrize("arguments", ["{not json", "[1]", '{"a": "x\\u0000"}'])
def test_malformed_arguments_reach_the_environment_as_the_model_wrote_them(arguments: str) -> None:
    text, (call,) = read_calls(spell_out("Hm.", [ToolCall("add", arguments)]))
    assert text == "Hm."
    if arguments.startswith("{not"):
        assert call.arguments == arguments
    else:
        assert json.loads(call.arguments) == json.loads(arguments)


def test_tags_inside_of_arguments_and_prose_end_no_call() -> None:
    calls = [
        ToolCall("write", '{"content": "see </tool_call> and <tool_call>"}', "call_0"),
        ToolCall("ls", "{}", "call_1"),
    ]
    text, read = read_calls(spell_out("Tags are <tool_call>.", calls))
    assert text == "Tags are <tool_call>."
    assert [json.loads(one.arguments) for one in read] == [json.loads(one.arguments) for one in calls]


def test_broken_arguments_are_sent_on_as_json_that_every_server_parses() -> None:
    said = Message("assistant", "", (ToolCall("add", '{"a": 3', "x"), ToolCall("add", '{"a": 3}', "y")))
    body = request_body("m", ChatRequest((Message("user", "?"), said)), EndpointOptions(), "max_tokens", None)
    sent = [json.loads(call["function"]["arguments"]) for call in body["messages"][1]["tool_calls"]]
    assert sent == [{"arguments": '{"a": 3'}, {"a": 3}]


def test_calls_that_nobody_offered_cost_no_reply() -> None:
    odd = {"content": "hello", "tool_calls": [{"type": "custom", "id": 7}]}
    reply, _ = parse_reply({"choices": [{"message": odd, "finish_reason": "stop"}]}, tools=())
    assert (reply.text, reply.tool_calls) == ("hello", ())
    call = {"id": "a", "function": {"name": "now", "arguments": None}}
    reply, _ = parse_reply({"choices": [{"message": {"content": None, "tool_calls": [call]}}]})
    assert reply.tool_calls == (ToolCall("now", "{}", "a"),)


def test_calls_beyond_the_limit_of_a_reply_are_left_out() -> None:
    calls = tuple(ToolCall("add", json.dumps({"a": n, "b": "x" * 50}), f"c{n}") for n in range(3))

    class Chatty:
        name = "chatty"

        def reply(self, request: ChatRequest) -> ChatReply:
            return ChatReply("", tool_calls=calls if request.turn == 0 else ())

    # The calls do not add up (a text and a number), so the environment would raise.
    first = play(Chatty(), EpisodeLimits(reply_chars=10)).trajectory.steps[0]
    assert first.tool_calls == ()


def test_models_that_take_one_text_are_offered_no_tools() -> None:
    with serving(lambda body: completion()) as server:
        policy = OpenAIPolicy(server.url, "toy", options=EndpointOptions(api="completions"))
        with closing(policy), pytest.raises(EndpointRefused, match="--tools words"):
            policy.reply(ChatRequest((Message("user", "?"),), tools=(ADD,)))
