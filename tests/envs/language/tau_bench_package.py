"""A package in the form of tau-bench with one small domain, a kiosk, and a recorded run of it, for tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

TYPES = """
from pydantic import BaseModel

class Action(BaseModel):
    name: str
    kwargs: dict

class Task(BaseModel):
    user_id: str
    actions: list[Action]
    instruction: str
    outputs: list[str]
"""
ENVS = """
import time
from types import SimpleNamespace
from litellm import completion
from tau_bench.types import Action, Task

RULES = "Sell what the customer wants."

class User:
    def __init__(self):
        self.reset("")
    def reset(self, instruction):
        self.messages = [dict(role="system", content=f"You are a customer. {instruction}")]
        self.messages.append(dict(role="user", content="Yes?"))
        return self._next()
    def step(self, content):
        self.messages.append(dict(role="user", content=content))
        return self._next()
    def _next(self):
        message = completion(model="m", custom_llm_provider="p", messages=self.messages).choices[0].message
        self.messages.append(message.model_dump())
        return message.content

def tool(name, *names):
    properties = {one: {"type": "string"} for one in names}
    parameters = {"type": "object", "properties": properties, "required": list(names)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}

def action(name, **kwargs):
    return Action(name=name, kwargs=kwargs)

def task(instruction, actions=(), outputs=()):
    return Task(user_id="u", instruction=instruction, actions=list(actions), outputs=list(outputs))

TASKS = [
    task("Buy a pear.", [action("price", fruit="pear"), action("sell", fruit="pear")]),
    task("What is a fig?", [action("price", fruit="fig")], ["1200"]),
    task("Buy a car.", [action("leave")]),
]

def hashable(item):
    return tuple(hashable(one) for one in item) if isinstance(item, list) else item

class Env:
    def __init__(self):
        tools = {"price": ["fruit"], "sell": ["fruit"], "calculate": ["expression"], "wait": [], "leave": []}
        self.tools_info = [tool(name, *names) for name, names in tools.items()]
        self.wiki, self.tasks, self.terminate_tools, self.user = RULES, list(TASKS), ["leave"], User()
    def reset(self, index):
        self.task, self.sold, self.said = self.tasks[index], [], []
        return SimpleNamespace(observation=self.user.reset(self.task.instruction))
    def tool(self, name, fruit):
        if name == "sell":
            self.sold.append(fruit)
        return {"pear": "5", "fig": "1200"}[fruit]
    def step(self, action):
        done, name = False, action.name
        print("noise")
        try:
            if name == "respond":
                self.said.append(action.kwargs["content"])
                observation = self.user.step(self.said[-1])
                done = "###STOP###" in observation
            elif name == "leave":
                observation, done = "Handed over.", True
            elif name == "wait":
                observation = time.sleep(60)
            elif name == "calculate":
                observation = str(eval(action.kwargs["expression"]))
            elif name in ("price", "sell"):
                observation = self.tool(name, **action.kwargs)
            else:
                observation = f"Unknown action {name}"
        except (KeyError, TypeError) as error:
            observation = f"Error: {error}"
        wanted = [one.kwargs["fruit"] for one in self.task.actions if one.name == "sell"]
        heard = all(any(text in said.replace(",", "") for said in self.said) for text in self.task.outputs)
        right = done and heard and hashable(self.sold) == tuple(wanted)
        return SimpleNamespace(observation=observation, done=done, reward=float(right))

def get_env(name, user_strategy, user_model, task_split, user_provider, task_index):
    return Env()
"""


def write_package(data: Path) -> None:
    """Write the package's archive below a data folder."""
    path = data / "tau_bench" / "package.tar.gz"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (("__init__.py", ""), ("types.py", TYPES), ("envs/__init__.py", ENVS)):
            member = tarfile.TarInfo(f"tau_bench/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


def recorded_run() -> list[dict[str, Any]]:
    """Four episodes as the package writes them: solved, wrong, one without an end, and one that an error ended."""

    def says(content: str | None, *calls: tuple[str, str]) -> dict[str, Any]:
        listed = [{"id": "c", "type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
        return {"role": "assistant", "content": content, "tool_calls": listed or None}

    def episode(trial: int, reward: float, *messages: dict[str, Any]) -> dict[str, Any]:
        task = {"user_id": "u", "instruction": "Buy two.", "outputs": []}
        task["actions"] = [{"name": "sell", "kwargs": {"fruit": fruit}} for fruit in ("fig", "pear")]
        opening = [{"role": "system", "content": "Sell."}, {"role": "user", "content": "A fig and a pear."}]
        traj = [*opening, *messages] if messages else []
        return {"task_id": 0, "trial": trial, "reward": reward, "info": {"task": task}, "traj": traj}

    fig = says(None, ("sell", '{"fruit": "fig"}'), ("sell", '{"fruit": "fig"}'))
    pear, sold = says("", ("sell", '{"fruit": "pear"}')), {"role": "tool", "content": "1200"}
    five, stop = {"role": "tool", "content": "5"}, {"role": "user", "content": "###STOP###"}
    more = {"role": "user", "content": "And the pear?"}
    return [
        episode(0, 1.0, fig, sold, says("Here."), more, pear, five, says("Done."), stop),
        episode(1, 0.0, fig, sold, says("Done."), stop),
        episode(2, 0.0, fig, sold),
        episode(3, 0.0),
    ]
