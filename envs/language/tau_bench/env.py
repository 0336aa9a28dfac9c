"""TauBench-v0: a reply with a call gets its result, one without goes to the simulated user.

The conversation ends when the user says so, or by the tool that hands it to a person; then the package's own rule gives
the reward: the database is the one that the gold actions lead to, and replies contain the outputs that are asked for.
Of several calls in a reply only the first is carried out, as in the published runs. The turn limit scores 0.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from envs.language.tau_bench.domain import Ask, Domain
from envs.language.tau_bench.recording import read_recording
from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.agents.external_calls import ExternalCallError, ask_quoting, external_call
from lemur_ray.agents.messages import ChatRequest, EndpointRefused, Message, PolicyError, Sampling, ToolCall
from lemur_ray.agents.policy_spec import policy_at
from lemur_ray.host.json_process import ProcessEnded
from lemur_ray.sandbox.sandbox import SandboxDestroyed
from lemur_ray.text.tools_in_words import arguments_of, describe_tools, read_calls, spell_out, tool_function

TURNS = 30
"""Maximum replies of an episode (tau_bench/agents/tool_calling_agent.py)"""
RESPOND = "respond"
"""The package's name for a message to the user, which is no tool"""
NOT_CALLED = "Not carried out: only the first call of a reply is."
USER_TOKENS = 1024
"""Maximum tokens of one message of the simulated user"""


class TauBenchEnv(TextEnv):
    """One conversation. Options of ``reset``:

    - ``package``: folder of the fetched package; ``domain``, ``split``, ``index``: the task in it;
    - ``user``: a strategy of the package, whose model ``teacher`` (openai:URL#MODEL) is; ``scripted``; or ``recorded``,
      with ``recording`` (file), ``episode`` (its task id) and ``task`` (as it was then);
    - ``native``: whether tools are offered natively; ``database_id`` (not read: identifies the data).
    """

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"package", "domain", "split", "index", "user", "teacher", "recording", "episode", "task", "native"}
        | {"database_id"}
    )
    default_max_steps: ClassVar[int] = TURNS

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self._domain = self.opened.enter_context(closing(Domain(options["package"], self._user(options))))
        chosen = {name: options[name] for name in ("domain", "split", "index", "user")}
        begun = self._domain.begin({**chosen, "task": options.get("task")})
        self._gold, self._outputs, self._turn = begun["gold"], begun["outputs"], 0
        self._native, tools = options["native"], begun["tools"]
        self._names = {tool["function"]["name"] for tool in tools}
        if self._native:
            return Opening(begun["message"], begun["policy"], tools=tuple(tools))
        (system,) = describe_tools([Message("system", begun["policy"])], list(map(tool_function, tools)))
        return Opening(begun["message"], system.content)

    def _user(self, options: Mapping[str, Any]) -> Ask:
        """The model of the package's simulated user, or a recorded one."""
        if options["user"] == "recorded":
            messages = iter(read_recording(Path(options["recording"])).episodes[options["episode"]].user)
            return lambda asked: next(messages, "")
        return lambda asked: self._simulated(str(options["teacher"]), asked)

    def _simulated(self, teacher: str, asked: list[dict[str, Any]]) -> str:
        """The reply of the user's model. Raises UserMissing, and EndpointRefused if a retry would be useless."""
        sampling = Sampling(USER_TOKENS, 1.0, seed=int(self.np_random.integers(2**31)))
        messages = tuple(Message.from_json(message) for message in asked)
        with external_call("teacher") as count:
            try:
                reply = ask_quoting(policy_at(teacher, "teacher"), ChatRequest(messages, sampling, "teacher"))
            except EndpointRefused:
                raise
            except PolicyError as error:
                raise UserMissing(f"{teacher}: no message of the simulated user: {error}") from error
            count(prompt_tokens=reply.usage.prompt_tokens, completion_tokens=reply.usage.completion_tokens)
        return reply.text

    def respond(self, reply: str) -> Turn:
        self._turn += 1
        text, calls = read_calls(reply)
        name, arguments = (calls[0].name, arguments_of(calls[0])) if calls else (RESPOND, {"content": text})
        if calls and (arguments is None or name == RESPOND):
            fault = "is no tool" if name == RESPOND else "has arguments that are no JSON object"
            return self._turn_of(f"Nothing was called: {name} {fault}.", reply, len(calls), valid=False)
        try:
            observation, over, reward = self._domain.act(name, arguments or {})
        except ProcessEnded as error:
            raise SandboxDestroyed(str(error), error.blame) from error
        valid = name in self._names if calls else bool(text.strip())
        return self._turn_of(observation, reply, len(calls), valid, over, reward)

    def _turn_of(
        self, observation: str, reply: str, calls: int, valid: bool, over: bool = False, reward: float = 0.0
    ) -> Turn:
        results = [observation, *[NOT_CALLED] * (calls - 1)] if calls > 1 else []
        observation = ("" if self._native else "\n".join(results)) if results else observation
        results = results if self._native else []
        return Turn(observation, reply, valid, reward == 1, over and reward != 1, reward, results=results)

    def hints(self) -> dict[str, Any]:
        """For scripted policies, as "expert": the next gold action as a tool call; after the last one, a reply with the
        required outputs."""
        calls = [ToolCall(one["name"], json.dumps(one["kwargs"])) for one in self._gold[self._turn : self._turn + 1]]
        return {"expert": spell_out("" if calls else "\n".join(self._outputs) or "Done.", calls)}


class UserMissing(ExternalCallError):
    """Raised if the simulated user gives no message: the episode has to be played again."""
