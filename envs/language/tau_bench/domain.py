"""A domain of the package tau-bench in a process of its own: its tasks, tools, database, simulated users and reward.

``Domain`` starts this file as a program, which uses the fetched package as it is. Its one dependency for models,
litellm, is replaced by a module that sends the package's requests for a user's message to this side.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from lemur_ray.host.json_process import START_S, JsonProcess, ProcessEnded, open_channel

ACTION_S = 40.0
"""Time limit of one action, in seconds, without the time of the user's model"""
STOP = "###STOP###"
"""Message by which a simulated user ends the conversation (tau_bench/envs/base.py)"""
Ask = Callable[[list[dict[str, Any]]], str]
"""From the messages of the package for its user's model, in OpenAI's format, to that model's reply"""


class Domain(JsonProcess):
    """Runs a domain of tau-bench in a process of its own. ``package``: folder of the fetched package. ``ask``: function
    that asks the model of the simulated user."""

    def __init__(self, package: str, ask: Ask) -> None:
        super().__init__(__file__, "the package tau_bench")
        self._package, self._ask = package, ask

    def tasks(self, domain: str, split: str) -> list[dict[str, Any]]:
        """All tasks of a split, as the package writes them. Raises RuntimeError if its process ends."""
        tasks: list[dict[str, Any]] = self._start({"domain": domain, "split": split})
        return tasks

    def begin(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Start a task: ``policy`` (the domain's rules), ``tools``, the user's first ``message``, ``gold`` (actions
        that lead to the right database) and ``outputs`` (texts that replies must contain). ``options``: domain, split,
        index, user, and a task to play in place of that index or None. Raises RuntimeError if the package does not
        start, and what ``ask`` raises."""
        started: dict[str, Any] = self._start(dict(options))
        return started

    def act(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool, float]:
        """(observation, whether the conversation is over, reward) of an action: a tool, or ``respond`` with the
        ``content`` for the user. Raises ProcessEnded, blamed on the policy if the package fails, and what ``ask``
        raises."""
        observation, over, reward = self._answer({"name": name, "arguments": dict(arguments)}, ACTION_S)
        return str(observation), bool(over), float(reward)

    def _start(self, request: Mapping[str, Any]) -> Any:
        try:
            return self._answer({"package": self._package, **request}, START_S)
        except ProcessEnded as error:
            raise RuntimeError(f"{self._package}: tau_bench does not start: {error}") from error

    def _answer(self, request: Any, time_s: float) -> Any:
        answer = self.ask(request, time_s)
        while "messages" in answer:
            answer = self.ask(self._ask(answer["messages"]), time_s)
        if "error" in answer:
            raise ProcessEnded(f"the package tau_bench failed: {answer['error']}")
        return answer["value"]


class _ScriptedUser:
    """A user without a model, who says the whole instruction at once and ends the conversation at the first reply."""

    def reset(self, instruction: str) -> str:
        return instruction

    def step(self, content: str) -> str:
        return STOP

    def get_total_cost(self) -> float:
        return 0.0


class _Program:
    """What runs in the process."""

    def __init__(self) -> None:
        self._requests, self._send = open_channel()
        self._types: Any = None
        self._env: Any = None
        self._has_begun = False

    def run(self) -> None:
        """Answer requests until there are no more."""
        for request in self._requests:
            try:
                answer = {"value": self._value(request)}
            except Exception as error:  # of the package, which is not this project's
                answer = {"error": f"{type(error).__name__}: {error}"}
            self._send(answer)

    def _value(self, request: Mapping[str, Any]) -> Any:
        if "package" not in request:
            done = self._env.step(self._types.Action(name=request["name"], kwargs=request["arguments"]))
            return done.observation, done.done, done.reward
        self._load(request)
        return self._begin(request) if "index" in request else [task.model_dump() for task in self._env.tasks]

    def _begin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        env, index = self._env, request["index"]
        if request["task"]:
            env.tasks, index = [self._types.Task(**request["task"])], 0
        if request["user"] == "scripted":
            env.user = _ScriptedUser()
        self._has_begun = True
        begun = env.reset(index)
        gold = [action.model_dump() for action in env.task.actions if action.name not in env.terminate_tools]
        texts = {"policy": env.wiki, "message": begun.observation, "outputs": env.task.outputs}
        return {**texts, "tools": env.tools_info, "gold": gold}

    def _load(self, request: Mapping[str, Any]) -> None:
        models: Any = ModuleType("litellm")
        models.completion, models.provider_list = self._completion, []
        sys.modules["litellm"] = models
        sys.path.insert(0, request["package"])
        self._types = import_module("tau_bench.types")
        strategy = {"scripted": "llm", "recorded": "llm"}.get(request.get("user", ""), request.get("user", "llm"))
        # Nobody reads the names of model and provider.
        user = {"user_strategy": strategy, "user_model": "teacher", "user_provider": "teacher"}
        get_env = import_module("tau_bench.envs").get_env
        self._env = get_env(request["domain"], task_split=request["split"], task_index=0, **user)

    def _completion(self, messages: Any = (), **_: Any) -> Any:
        """In the place of ``litellm.completion``. Users ask once when they are made, before there is a task."""
        reply = STOP
        if self._has_begun:
            self._send({"messages": [dict(message) for message in messages]})
            reply = next(self._requests)
        message = SimpleNamespace(content=reply, model_dump=lambda: {"role": "assistant", "content": reply})
        return SimpleNamespace(choices=[SimpleNamespace(message=message)], _hidden_params={"response_cost": 0.0})


if __name__ == "__main__":
    _Program().run()
