"""A person plays at a terminal: told all at first, then each page, in a pseudo terminal with its echo and its lines."""

from __future__ import annotations

import io
import os
import pty

from envs.webarena.env import WebEnv
from lemur_ray.agents.baselines.human import HumanPolicy
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Outcome, Task
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from tests.envs.webarena.small_site import SmallSites, record


def test_a_person_plays_at_a_terminal(browser: None, sites: SmallSites) -> None:
    keyboard, terminal = pty.openpty()
    lines, out = os.fdopen(terminal, "rb", 0), io.StringIO()
    policy = HumanPolicy(lambda: lines.readline().decode(), out)
    os.write(keyboard, b"```\nscroll [down]\n```\n```stop [$7.25]```\n")
    task = Task("webarena/webarena", "1", "small", "shopping", {"record": record(1), "wait_s": 0.1}, 5)
    spec = EpisodeSpec(EpisodeKey("webarena/webarena", "1", "human", "r"), task, Sampling())
    attempt = run_episode(spec, policy, clock=lambda: 0.0, make_env=lambda name: WebEnv(sites))
    lines.close()
    os.close(keyboard)
    assert attempt.outcome is Outcome.SOLVED
    shown = out.getvalue()
    assert shown.startswith("\n=== 1\n--- system\nYou are an agent that does tasks in a web browser"), (
        "told the actions"
    )
    assert shown.count("OBJECTIVE: How much is the ink?") == 2, "each page once"
    assert "PREVIOUS ACTION: scroll [down]" in shown
    assert shown.count("You are an agent") == 1
