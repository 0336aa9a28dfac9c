"""The growing record of one episode, complete after every turn, so that it survives an exception in the turn loop."""

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lemur_ray.agents.external_calls import CallMeter
from lemur_ray.agents.messages import ChatReply, Message, ToolCall, Trace
from lemur_ray.agents.trajectory import Episode, Outcome, Step, Trajectory
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.calls.env_protocol import EnvResult, RequestOptions
from lemur_ray.text.tools_in_words import OPEN, spell_out

TRUNCATED_PROMPT = "fewer prompt tokens for a longer conversation: the endpoint cuts what it is sent"
"""Remark in the detail of an episode whose endpoint seems to truncate prompts."""
CALL_IN_TEXT = "a tool call is in the text: the endpoint parses no calls, or the call is malformed (try --tools words)"
"""Remark in the detail of an episode whose tools were offered natively."""
DETAIL_CHARS = 8000
"""Maximum characters of an episode's detail and of its note."""


class EpisodeRecord:
    """Collects messages, turns, scores and remarks of one attempt. Texts longer than ``limits`` allow are truncated,
    with a remark; ``attempt`` returns all as an ``Attempt``."""

    def __init__(self, limits: EpisodeLimits) -> None:
        self.opening: list[Message] = []
        self.steps: list[Step] = []
        self._traces: list[Trace | None] = []
        self._state = ""
        self.request_options = RequestOptions()
        self._reply_prefix = ""
        self.scores: dict[str, float] = {}
        self.remarks: list[str] = []
        """Errors and truncations, which become the episode's detail."""
        self.truncated_prompts = 0
        self._prompt_tokens = 0
        self._env_note = ""
        self._limits = limits

    def begin(self, reset: EnvResult) -> None:
        """Record the messages before the first reply (system prompt, examples, first observation). ``reset``: result of
        the environment's ``reset``. Raises EnvironmentFault for an invalid entry of ``info``."""
        self._env_note, self._state = reset.text("note") or "", reset.text("state") or ""
        if system := reset.text("system"):
            self.opening.append(Message("system", system))
        self.request_options = reset.request_options
        self.opening.extend(self.request_options.examples)
        observation = self._bounded(reset.observation, self._limits.observation_chars, "first observation")
        self.opening.append(Message("user", observation))
        self._reply_prefix = reset.text("reply_prefix") or ""

    @property
    def trajectory(self) -> Trajectory:
        options = self.request_options
        shared = min(options.shared_chars, sum(len(message.content) for message in self.opening))
        parts = tuple(self.opening), tuple(self.steps), shared, options.dialogue_limit, options.tools
        return Trajectory(*parts, self._reply_prefix)

    def messages(self) -> tuple[Message, ...]:
        """The messages of the next request: all so far, or the last ones if the environment sets ``dialogue_limit``."""
        return self.trajectory.shown(len(self.steps))

    def reasoning(self, messages: Sequence[Message]) -> dict[int, str]:
        """The model's reasoning before its past replies, by the index of the reply in ``messages``."""
        if self.request_options.dialogue_limit == 0:
            return {}
        steps = [step for step in self.steps if step.messages(self._reply_prefix)[0].role == "assistant"]
        indices = [index for index, message in enumerate(messages) if message.role == "assistant"]
        newest_first = zip(reversed(indices), reversed(steps), strict=False)
        return {index: step.reasoning for index, step in newest_first if step.reasoning}

    def accept(self, reply: ChatReply) -> ChatReply:
        """``reply`` truncated to ``limits.reply_chars``, without tool calls beyond that limit, and without any if no
        tools are offered. Adds a remark if the endpoint seems to have cut the prompt, or left a call in the text."""
        turn, tokens = len(self.steps) + 1, reply.usage.prompt_tokens - reply.usage.discarded_prompt_tokens
        before, self._prompt_tokens = self._prompt_tokens, tokens
        if self.request_options.dialogue_limit is None and 0 < tokens < before:
            self.truncated_prompts += 1
            self.remarks.append(f"turn {turn}: {TRUNCATED_PROMPT} ({tokens} after {before})")
        text = self._bounded(reply.text, self._limits.reply_chars, f"reply of turn {turn}")
        if self.request_options.tools and OPEN in text:
            self.remarks.append(f"turn {turn}: {CALL_IN_TEXT}")
        calls = reply.tool_calls if self.request_options.tools else None
        return replace(reply, text=text, tool_calls=None if calls is None else self._bounded_calls(calls, turn))

    def add_step(
        self, reply: ChatReply, result: EnvResult, policy_s: float, env_s: float, meter: CallMeter, picture: str
    ) -> None:
        """Append a turn. ``reply``: as ``accept`` returns it; ``policy_s``, ``env_s``: seconds of reply and step;
        ``meter``: the step's external calls; ``picture``: digest of the request's picture, or empty. Raises
        EnvironmentFault for an invalid entry of ``info``."""
        turn = len(self.steps) + 1
        self.scores.update(result.scores)
        self._env_note = result.text("note") or self._env_note
        self._traces.append(replace(reply.trace, state=self._state) if reply.trace else None)
        self._state = result.text("state") or ""
        self.steps.append(
            Step(
                reply=reply.text,
                action=result.text("action"),
                observation=self._bounded(result.observation, self._limits.observation_chars, f"observation {turn}"),
                reward=result.reward,
                valid=bool(result.info.get("valid", True)),
                policy_s=policy_s,
                env_s=env_s,
                prompt_tokens=reply.usage.prompt_tokens,
                completion_tokens=reply.usage.completion_tokens,
                version=reply.version,
                reasoning=self._bounded(reply.reasoning, self._limits.reasoning_chars, f"thoughts {turn}"),
                waited_s=reply.waited_s,
                outside=meter.counts,
                choices=reply.choices,
                pictured=bool(picture),
                picture=picture,
                cut=reply.cut or "",
                weight=reply.weight,
                instead=reply.instead,
                tool_calls=reply.tool_calls or (),
                results=tuple(
                    self._bounded(result_text, self._limits.observation_chars, f"result {turn}")
                    for result_text in (result.results if reply.tool_calls else ())
                ),
                tools=result.tools,
            )
        )

    def attempt(self, outcome: Outcome, score: float | None, wall_s: float, fatal_error: str = "") -> Attempt:
        return Attempt(
            outcome=outcome,
            score=score,
            trajectory=self.trajectory,
            wall_s=wall_s,
            detail=_storable("; ".join(self.remarks)[:DETAIL_CHARS]),
            scores=self.scores,
            note=_storable(self._env_note[:DETAIL_CHARS]),
            truncated_prompts=self.truncated_prompts,
            traces=tuple(self._traces) if any(self._traces) else (),
            fatal_error=fatal_error,
        )

    def _bounded_calls(self, calls: Sequence[ToolCall], turn: int) -> tuple[ToolCall, ...]:
        """The first calls whose names and arguments together stay within the limit of a reply."""
        lengths = itertools.accumulate(len(call.name) + len(call.arguments) for call in calls)
        fitting = calls[: sum(length <= self._limits.reply_chars for length in lengths)]
        if len(fitting) < len(calls):
            self.remarks.append(f"turn {turn}: {len(calls) - len(fitting)} tool calls beyond the limit of a reply")
        return tuple(ToolCall(_storable(c.name), _storable(c.arguments), _storable(c.id)) for c in fitting)

    def _bounded(self, text: str, limit: int, name: str) -> str:
        if len(text) > limit:
            self.remarks.append(f"{name}: {len(text)} characters, cut to {limit}")
        return _storable(text[:limit])


class TurnFile:
    """The turns of a running episode in a file that can be read meanwhile: one JSON line each, appended. The reader
    creates the folder ``spec.turns``; nothing is written while it is missing. The first line is a record of the episode
    with outcome infra_lost, which is right if its process dies. A disk error ends the file, not the episode."""

    def __init__(self, spec: EpisodeSpec) -> None:
        self._spec, self._num_steps, self._begun = spec, 0, False
        self._path = _turn_file(spec)
        self._started = datetime.now(UTC).isoformat(timespec="milliseconds")

    def write(self, record: EpisodeRecord) -> None:
        """Append to the file what it lacks of ``record``: at first the record itself as lost, with the turns so far,
        then one line for each new turn. Does nothing if the folder is missing or after a disk error, which removes the
        file. Raises nothing."""
        # Path.is_dir raises if the folder may not be read.
        if self._path is None or not os.path.isdir(self._path.parent):
            return
        is_new = not (self._begun and os.path.isfile(self._path))
        if is_new:
            task = self._spec.task
            lost = Episode(self._spec.key, task.category, Outcome.INFRA_LOST, None, 1, record.trajectory)
            lines = [replace(lost, started=self._started).to_json()]
        else:
            lines = [step.to_json() for step in record.steps[self._num_steps :]]
        try:
            with self._path.open("w" if is_new else "a", encoding="utf-8") as file:
                file.write("".join(f"{json.dumps(line)}\n" for line in lines))
        except FileNotFoundError:  # the reader has removed the folder
            self._begun = False
            return
        except OSError:
            discard_turns(self._spec)
            self._path = None
        self._begun, self._num_steps = True, len(record.steps)

    def remove(self) -> None:
        """Remove the file, if there is one. Raises nothing."""
        if self._begun:
            discard_turns(self._spec)


def discard_turns(spec: EpisodeSpec) -> None:
    """Remove the file of an episode, which may be one that a dead process left. Raises nothing."""
    if (path := _turn_file(spec)) is not None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _turn_file(spec: EpisodeSpec) -> Path | None:
    name = hashlib.blake2b(str(spec.key).encode(errors="replace"), digest_size=8).hexdigest()
    return Path(spec.turns, f"{name}.jsonl") if spec.turns else None


def running_episodes(folder: Path) -> Iterator[Episode]:
    """Yield the episodes that ``TurnFile`` writes in a folder, with their turns so far; their outcome means nothing.
    Files that cannot be read are skipped."""
    for path in sorted(folder.glob("*.jsonl")):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # it ends meanwhile
            first, *steps = (json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1])
            first["trajectory"]["steps"] += steps
            yield Episode.from_json(first)


def env_reply(reply: ChatReply) -> str:
    """The text that an environment gets for a reply: its text, then its tool calls as ``text.tools_in_words`` writes
    them. If the policy has a field for calls, text that looks like a call is changed so that it is not read as one."""
    if reply.tool_calls is None:
        return reply.text
    return spell_out(reply.text.replace(OPEN, f"{OPEN[:1]} {OPEN[1:]}"), reply.tool_calls)


def _storable(text: str) -> str:
    """The text without lone surrogates and NUL, which not every reader can store."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
