"""One environment, called with deadlines: a call returns a checked result or raises an error with its blame."""

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from lemur_ray.agents.external_calls import CallMeter, ExternalCallError
from lemur_ray.agents.messages import EndpointRefused, PolicyUnreachable
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.calls.deadline import Call, DeadlineExceeded
from lemur_ray.rollout.calls.env_protocol import EnvironmentFault, EnvResult, MachineFault, PolicyFault, QuarantineFault
from lemur_ray.sandbox.sandbox import SandboxError, SandboxQuarantined

MakeEnv = Callable[[str], Any]


class EnvSession:
    """One environment for one attempt at an episode. Each method calls it with the deadline of ``limits`` and raises
    EnvironmentFault if it raises, hangs or returns invalid values, MachineFault if the machine or a service failed.
    ``call``: makes the calls with their deadlines; ``make_env``: creates the environment ``env_id``."""

    def __init__(self, env_id: str, limits: EpisodeLimits, call: Call, make_env: MakeEnv) -> None:
        """Create the environment. Like all methods, it raises EnvironmentFault, or EndpointRefused to end the run."""
        self._env_id, self._limits, self._make_call = env_id, limits, call
        self._env = self._call("make", lambda: make_env(env_id), limits.make_s)

    def reset(self, seed: int, options: Mapping[str, Any]) -> EnvResult:
        value = self._call("reset", lambda: self._env.reset(seed=seed, options=options), self._limits.reset_s)
        return EnvResult.of_reset(value, self._env_id)

    def step(self, reply: str, meter: CallMeter) -> EnvResult:
        """Give the policy's reply to the environment and return the checked result. ``meter`` measures the
        environment's external calls, by whose time the deadline is extended. Also raises PolicyFault if the policy's
        code destroyed the sandbox."""
        value = self._call("step", lambda: self._env.step(reply), self._limits.step_s, meter)
        return EnvResult.of_step(value, self._env_id)

    def close(self) -> None:
        """Call the environment's ``close``; after a call that hung, this ends its process or connection."""
        self._call("close", self._env.close, self._limits.close_s)

    def _call(
        self, operation: str, function: Callable[[], Any], timeout_s: float, meter: CallMeter | None = None
    ) -> Any:
        try:
            return self._make_call(function, timeout_s, f"{self._env_id}: {operation}", meter)
        except EndpointRefused:
            raise
        except (Exception, SystemExit) as error:
            raise env_fault(self._env_id, operation, error) from error


def env_fault(env_id: str, operation: str, error: BaseException) -> Exception:
    """The error to raise for an exception ``error`` of an environment: MachineFault if the machine or a service failed,
    QuarantineFault, PolicyFault if in a "step" the policy's code ended a sandbox, else EnvironmentFault. ``operation``:
    name of the call, such as "step"."""
    where = f"{env_id}: {operation}"
    match error:
        case DeadlineExceeded():
            return EnvironmentFault(str(error))
        case ExternalCallError() | PolicyUnreachable():
            return MachineFault(f"{where}: {type(error).__name__}: {error}")
        case SandboxQuarantined():  # its pool has dropped it, and an environment lives for one attempt
            return QuarantineFault(f"{where}: a sandbox was put in quarantine: {error}")
        case SandboxError():
            faults: dict[str, type[Exception]] = {"infra": MachineFault}
            if operation == "step":  # only `step` runs code of the policy
                faults["policy"] = PolicyFault
            return faults.get(error.blame, EnvironmentFault)(f"{where}: {error}")
    last_lines = "".join(traceback.format_exception(error)[-2:]).strip()
    return EnvironmentFault(f"{where} raised: {last_lines[-2000:]}")
