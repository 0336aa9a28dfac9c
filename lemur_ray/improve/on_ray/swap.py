"""Switches all replicas of a served model to new weights, or none of them. Knows nothing of Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lemur_ray.host.exit_codes import CausedError, ExitCode

PAUSES_S = (5.0, 15.0, 45.0)
"""Seconds before each further try to send new weights to all replicas: one that died is being started again."""


class SwapFailed(CausedError):
    """Raised if a replica does not serve the new weights after all tries; the same command starts new replicas."""

    exit_code = ExitCode.TRY_AGAIN


def swap(
    update: Callable[[str], Sequence[str]],
    folder: str,
    version: str,
    before: str = "",
    replicas: int = 1,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Switch every replica to the weights in ``folder``; if one does not, all go back to ``before``, and again. update:
    switches all replicas to a checkpoint folder and returns the version of each; raises RuntimeError if one refuses.
    before: folder of the weights that are served now; empty: unknown. replicas: number that must answer: one that is
    starting may have read the weights before. sleep: waits between tries. Raises SwapFailed after all tries."""
    problem = ""
    for pause in (0.0, *PAUSES_S):
        sleep(pause)
        try:
            versions = list(update(folder))
            if len(versions) >= replicas and {*versions} == {version}:
                return
            answers = ", ".join(sorted({*versions})) or "none"
            problem = f"{len(versions)} of {replicas} replicas answered, with versions {answers}"
        except RuntimeError as error:
            problem = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        try:
            if before:
                update(before)
        except RuntimeError as error:
            problem = f"{problem}; nor could all go back: {error}"
    raise SwapFailed(f"weights {version} are not served by all replicas after {1 + len(PAUSES_S)} tries: {problem}")
