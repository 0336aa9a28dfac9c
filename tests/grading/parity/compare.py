"""Verdicts of this project's graders beside those of the published ones, on stored replies.

``differences`` lists where two verdicts are not equal. A difference has a cause if a ``Cause`` fits it and passes the
checks that the cause names: this project's grader gives the reply as the published rule reads it the published verdict,
and the published grader gives another reply the verdict that then follows. One without a cause is unexplained.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

PEERS = Path(__file__).parent / "peers"
Verdict = bool | str | list[Any]
"""A published verdict; a text is a negative one with the published program's reason, a list has verdict and reason."""


@dataclass(frozen=True)
class Reply:
    """A stored reply. ``kind``: how it was made, for example ``gold`` or a mutation; ``item``: the task's id; ``more``:
    what a peer needs besides."""

    kind: str
    item: str
    text: str
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """A reply that this project (``ours``) and a published grader (``theirs``) grade differently."""

    comparison: str
    kind: str
    item: str
    ours: bool
    theirs: bool
    text: str
    cause: str = ""


@dataclass(frozen=True)
class Cause:
    """Why two graders differ. ``ours``: this project's verdict; ``kinds``: of replies, whole or up to a comma, empty
    for all; ``comparisons``: their names, empty for all; ``fits``: whether a reply of these has the cause; ``read``:
    the reply as the published rule reads it, in words that this project reads in the same way; ``again``: the reply
    without what the cause names, to which the published grader must give this project's verdict, or if ``blind`` a task
    with other answers, where it must give the same verdict as before."""

    why: str
    ours: bool
    kinds: tuple[str, ...] = ()
    comparisons: tuple[str, ...] = ()
    fits: Callable[[str], bool] = lambda text: True
    read: Callable[[Reply], str] | None = None
    again: Callable[[Reply], Reply] | None = None
    blind: bool = False

    def explains(self, one: Difference) -> bool:
        """Whether this is the cause of a difference."""
        of_kind = not self.kinds or one.kind in self.kinds or one.kind.partition(",")[0] in self.kinds
        named = of_kind and (not self.comparisons or one.comparison in self.comparisons)
        return named and one.ours == self.ours and self.fits(one.text)


def differences(
    comparison: str,
    replies: Sequence[Reply],
    ours: Sequence[bool],
    theirs: Sequence[Verdict],
    causes: Iterable[Cause],
    grade: Callable[[Reply], bool] | None = None,
    published: Callable[[Sequence[Reply]], Sequence[Verdict]] | None = None,
) -> list[Difference]:
    """The replies whose verdicts differ, each with its cause, or an empty one. ``grade``: this project's verdict on a
    reply, for causes with ``read``; ``published``: the published verdicts on replies, for those with ``again``."""
    causes = list(causes)
    differing, asked = [], []
    for reply, mine, other in zip(replies, ours, theirs, strict=True):
        right, reason = _verdict(other)
        if mine == right:
            continue
        one = Difference(comparison, reply.kind, reply.item, mine, right, reply.text)
        cause = next((cause for cause in causes if cause.explains(one)), None)
        if cause and cause.read and not (grade and grade(replace(reply, text=cause.read(reply))) == right):
            cause, reason = None, ""
        if cause and cause.again:
            asked.append((len(differing), cause.again(reply), right if cause.blind else mine))
        differing.append(replace(one, cause=cause.why if cause else reason))
    verdicts = published([reply for _, reply, _ in asked]) if asked and published else [None] * len(asked)
    for (place, _, expected), verdict in zip(asked, verdicts, strict=True):
        if verdict is None or _verdict(verdict)[0] != expected:
            differing[place] = replace(differing[place], cause="")
    return differing


def _verdict(other: Verdict) -> tuple[bool, str]:
    """A published verdict, and its reason if it has one."""
    if isinstance(other, list):
        return other[0], other[1]
    return other is True, other if isinstance(other, str) else ""


def ask_peer(python: str, script: str, asked: Any, *arguments: str, boxed: bool = False) -> Any:
    """Run a script of ``peers`` in another Python and return the JSON of its last line. ``boxed``: without network, and
    with all files but its own folder read-only (bwrap). Raises RuntimeError with the end of its output."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "asked.json"
        path.write_text(json.dumps(asked), encoding="utf-8")
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": folder, "PYTHONPATH": "", "HOME": folder}
        command = [str(Path(python).absolute()), str(PEERS / script), str(path), *arguments]
        if boxed:
            env["TMPDIR"] = folder
            shown = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", folder, folder]
            command = ["bwrap", "--unshare-all", "--die-with-parent", *shown, *command]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder)
        if done.returncode:
            raise RuntimeError(f"{script}: {(done.stdout + done.stderr)[-3000:]}")
        return json.loads(done.stdout.splitlines()[-1])


def summary(comparison: str, replies: Sequence[Reply], differing: Sequence[Difference]) -> str:
    """A line with the numbers of a comparison, and one for each cause."""
    lines = [
        f"{comparison}: {len(replies):,} replies, {len(differing)} differ, "
        f"{sum(not one.cause for one in differing)} unexplained"
    ]
    counts = Counter((one.cause or f"UNEXPLAINED: {one.kind}", one.ours) for one in differing)
    for (cause, ours), count in counts.most_common():
        lines.append(f"  {count:>5}  {'right here alone' if ours else 'right there alone'}: {cause}")
    return "\n".join(lines)
