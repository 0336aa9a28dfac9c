"""Policies that are Python functions: from the messages of a conversation, as OpenAI writes them, to the reply's text.

A function is named by ``module:name``, or registered under a name by ``register`` if it cannot be imported again. It
must be safe to call from several threads."""

import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Policy, PolicyError
from lemur_ray.host.user_modules import look_here_for

Function = Callable[[Sequence[dict[str, Any]]], str]
_REGISTERED: dict[str, Function | Policy] = {}


@dataclass(frozen=True)
class FunctionPolicy:
    """A policy that calls ``function`` with the messages in OpenAI's form; ``name`` is its name in episode keys. An
    error in the function ends the run with one sentence."""

    function: Function
    name: str
    wants_hints: bool = False

    def reply(self, request: ChatRequest) -> ChatReply:
        """The function's reply. Raises EndpointRefused if it raises, or returns anything but a str or ChatReply."""
        try:
            value: Any = self.function([message.to_json() for message in request.messages])
        except PolicyError:
            raise
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(at.filename).name}:{at.lineno}"
            raise EndpointRefused(f"{self.name} raised {type(error).__name__} at {place}: {error}") from error
        if isinstance(value, ChatReply):
            return value
        if not isinstance(value, str):
            raise EndpointRefused(f"{self.name} returned {type(value).__name__}: expected the text of the reply, a str")
        return ChatReply(value)


def register(function: Function | Policy) -> str:
    """Return a name by which ``resolve`` finds ``function`` in this process: ``module:name`` if it can be imported by
    that. Else it is stored, a function under a name with a digest of its code, defaults and plain captured values, a
    policy object under its type and ``name``, with a number behind if another one has that name already."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if module in sys.modules and module != "__main__" and getattr(sys.modules[module], name, None) is function:
        return f"{module}:{name}"
    short = f"{name or type(function).__qualname__}@{_digest(function) or getattr(function, 'name', '')}"
    names = (short, *(f"{short}.{number}" for number in range(2, len(_REGISTERED) + 2)))
    free = next(name for name in names if _REGISTERED.get(name, function) is function)
    _REGISTERED[free] = function
    return free


def label_of(value: Function | Policy, name: str) -> str:
    """Name of a policy in keys and reports: an object's own, else that of the function with a digest of its code, so
    that two functions of one name differ. Raises ValueError for an object without ``name``."""
    if callable(getattr(value, "reply", None)):
        if not (own := getattr(value, "name", "")):
            raise ValueError(f"--policy function:{name}: a policy with a method reply needs a name, an attribute")
        return str(own)
    short = name.partition("@")[0].rpartition(":")[2].rpartition(".")[2].strip("<>")
    digest = _digest(value)
    return f"{short}-{digest}" if digest else short


def _digest(value: Any) -> str:
    """8 hex digits of the hash of a function's code, defaults and plain captured values; empty if not a function."""
    code = getattr(value, "__code__", None)
    if code is None:
        return ""
    held = [getattr(value, "__defaults__", None), *(c.cell_contents for c in getattr(value, "__closure__", None) or ())]
    plain = [item for item in held if isinstance(item, (str, int, float, tuple, type(None)))]
    return hashlib.sha256(repr((_constants(code), plain)).encode()).hexdigest()[:8]


def _constants(code: CodeType) -> list[Any]:
    nested = [_constants(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return [code.co_code, code.co_names, nested]


def resolve(name: str) -> Function | Policy:
    """The function or policy object called ``name``: a registered one, else ``MODULE:NAME``, imported (from the working
    folder, too). Raises ValueError if there is none or it is not callable."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    module, _, attribute = name.partition(":")
    look_here_for(module)
    try:
        value: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--policy function:{name}: expected function:MODULE:NAME; {error}") from error
    if not callable(value) and not callable(getattr(value, "reply", None)):
        raise ValueError(f"--policy function:{name}: neither a function nor a policy with a method reply")
    return value


def policy_of(value: Function | Policy, name: str) -> Policy:
    """``value`` itself if it has a method ``reply``, else a policy named ``name`` that calls it as a function."""
    reply: Any = getattr(value, "reply", None)
    return value if callable(reply) else FunctionPolicy(value, name)  # type: ignore[arg-type,return-value]
