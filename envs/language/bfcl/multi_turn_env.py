"""Environment of BFCL's multi-turn tasks: a user's requests one after another, and simulated APIs behind the tools."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

from envs.language.bfcl.simulated_apis import SimulatedApis, WrittenCall, written_call
from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.agents.messages import ToolCall
from lemur_ray.host.json_process import ProcessEnded
from lemur_ray.sandbox.sandbox import SandboxDestroyed
from lemur_ray.text.tools_in_words import arguments_of, describe_tools, read_calls, spell_out, tool_function

STEPS = 20
"""Number of replies with calls that a turn of the user may have; one more with calls ends the episode, as published."""


class MultiTurnEnv(TextEnv):
    """A dialogue in which the model calls tools over several turns of the user. A reply with calls gets their results;
    one without any ends the turn, whose calls are then checked against the reference. Options of ``reset``:

    - ``apis``: settings of ``SimulatedApis``; ``turns``: the user's requests; ``gold``: reference calls of each turn;
    - ``tools``: those offered from the start, in OpenAI's format; ``added``: turn number -> tools that are offered from
      that turn on, in which the user's request is ``news``;
    - ``native``: whether tools are offered natively; ``database_id`` (not read: identifies the data).
    """

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"apis", "turns", "gold", "tools", "added", "news", "native", "database_id"}
    )
    default_max_steps: ClassVar[int] = 1000

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self._apis = self.opened.enter_context(closing(SimulatedApis(options["apis"])))
        self._options, self._turn, self._steps = options, 0, 0
        self._gold: list[list[WrittenCall]] = [list(map(written_call, turn)) for turn in options["gold"]]
        self._tools: list[Mapping[str, Any]] = list(options["tools"])
        if options["native"]:
            return Opening(options["turns"][0], tools=tuple(self._tools))
        system = describe_tools([], list(map(tool_function, self._tools)))[0].content
        return Opening(options["turns"][0], system)

    def respond(self, reply: str) -> Turn:
        _, calls = read_calls(reply)
        try:
            return self._called(reply, calls) if calls else self._next_turn(reply)
        except ProcessEnded as error:
            raise SandboxDestroyed(str(error), error.blame) from error

    def _called(self, reply: str, calls: Sequence[ToolCall]) -> Turn:
        self._steps += 1
        read = [arguments_of(call) for call in calls]
        if malformed := [call.name for call, arguments in zip(calls, read, strict=True) if arguments is None]:
            results = [f"Nothing was called: the arguments of {malformed[0]} are no JSON object."] * len(calls)
        else:
            results = self._apis.call([(call.name, given or {}) for call, given in zip(calls, read, strict=True)])
        if self._steps > STEPS:
            return Turn("", reply, valid=not malformed, finished=True, note=f"more than {STEPS} replies in a turn")
        if self._options["native"]:
            several = results if len(calls) > 1 else ()
            return Turn("" if several else results[0], reply, valid=not malformed, results=several)
        shown = "\n".join(f"{call.name}: {result}" for call, result in zip(calls, results, strict=True))
        return Turn(shown, reply, valid=not malformed)

    def _next_turn(self, reply: str) -> Turn:
        fault = self._apis.fault_of_turn(self._gold[self._turn])
        self._turn, self._steps = self._turn + 1, 0
        if fault:
            return Turn("", reply, valid=True, finished=True, note=f"turn {self._turn}: {fault}")
        if self._turn == len(self._gold):
            return Turn("", reply, valid=True, solved=True, score=1.0)
        if added := self._options["added"].get(str(self._turn)):
            return self._with_tools(reply, added)
        return Turn(self._options["turns"][self._turn], reply, valid=True)

    def _with_tools(self, reply: str, added: Sequence[Mapping[str, Any]]) -> Turn:
        self._tools += added
        if self._options["native"]:
            return Turn(self._options["news"], reply, valid=True, tools=self._tools)
        words = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in added)
        return Turn(f"{words}\n{self._options['news']}", reply, valid=True)

    def hints(self) -> dict[str, Any]:
        """For scripted policies, as "expert": the turn's gold calls; a reply that ends the turn if it has none or calls
        were made."""
        gold = self._gold[self._turn] if self._turn < len(self._gold) and not self._steps else []
        every = [*self._options["tools"], *(tool for more in self._options["added"].values() for tool in more)]
        functions = {tool["function"]["name"]: tool["function"] for tool in every}
        return {"expert": spell_out("" if gold else "Done.", [_tool_call(call, functions) for call in gold])}


def _tool_call(call: WrittenCall, functions: Mapping[str, Mapping[str, Any]]) -> ToolCall:
    name, positional, named = call
    order = functions[name]["parameters"]["properties"]
    return ToolCall(name, json.dumps({**dict(zip(order, positional, strict=False)), **named}))
