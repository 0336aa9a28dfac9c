"""A strip chart of an episode's turns: seconds of policy and environment, reply tokens and reward of each turn.

All bars of one kind are a single path, so that a strip takes about twenty bytes per turn. Knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from lemur_ray.agents.trajectory import Step

_WIDTH, _BAR, _HIGH, _LANE = 10, 8, 26, 14


def strip(steps: Sequence[Step]) -> Markup:
    """An SVG of three lanes; empty for fewer than two turns."""
    if len(steps) < 2:
        return Markup("")
    longest = max(step.policy_s + step.env_s for step in steps) or 1.0
    most = max(step.completion_tokens for step in steps) or 1
    policy = _bars(steps, lambda s: s.policy_s / longest * _HIGH, lambda s: _HIGH)
    env = _bars(steps, lambda s: s.env_s / longest * _HIGH, lambda s: _HIGH - s.policy_s / longest * _HIGH)
    tokens = _bars(steps, lambda s: s.completion_tokens / most * _LANE, lambda s: _HIGH + 4 + _LANE)
    top = _HIGH + _LANE + 8
    gained = _bars(steps, lambda s: 6.0 if s.reward > 0 else 0.0, lambda s: top + 6)
    lost = _bars(steps, lambda s: 6.0 if s.reward < 0 else 0.0, lambda s: top + 6)
    width = _WIDTH * len(steps)
    summary = (
        f"{len(steps)} turns: policy {sum(s.policy_s for s in steps):.1f} s, "
        f"environment {sum(s.env_s for s in steps):.1f} s, {sum(s.prompt_tokens for s in steps):,} tokens in, "
        f"{sum(s.completion_tokens for s in steps):,} out, reward {sum(s.reward for s in steps):g}; "
        f"the longest turn took {longest:.2f} s, the longest reply {most:,} tokens"
    )
    drawn = "".join(
        f'<path class="{kind}" d="{path}"/>'
        for kind, path in (("sp", policy), ("se", env), ("st", tokens), ("sg", gained), ("sl", lost))
        if path
    )
    return Markup(
        f'<figure class="strip"><svg viewBox="0 0 {width} {top + 7}" style="max-width:{width * 2}px" role="img" '
        f'preserveAspectRatio="none" aria-label="{summary}"><title>{summary}</title>{drawn}</svg>'
        '<figcaption><span><b class="sp"></b>policy</span><span><b class="se"></b>environment</span>'
        '<span><b class="st"></b>tokens of replies</span><span><b class="sg"></b>reward</span>'
        f"{summary}</figcaption></figure>"
    )


def turn_cost(step: Step) -> Markup:
    """The numbers of one turn in a line."""
    parts = [f"{step.policy_s:.2f} s policy"]
    parts += [f"{step.waited_s:.2f} s of it waiting"] if step.waited_s else []
    parts += [f"{step.env_s:.2f} s environment"]
    if step.prompt_tokens + step.completion_tokens:
        parts.append(f"{step.prompt_tokens:,} tokens in, {step.completion_tokens:,} out")
    return Markup(" · ".join([*parts, f"reward {step.reward:g}"]))


def _bars(steps: Sequence[Step], height: Callable[[Step], float], foot: Callable[[Step], float]) -> str:
    """One path of a rectangle per step; ``foot`` is the y of its lower edge, ``height`` its height."""
    parts = []
    for place, step in enumerate(steps):
        if (high := height(step)) > 0.05:
            parts.append(f"M{place * _WIDTH + 1} {foot(step):.4g}v-{max(high, 0.8):.3g}h{_BAR}v{max(high, 0.8):.3g}z")
    return "".join(parts)
