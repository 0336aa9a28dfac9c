"""Switches all replicas of a served model to new weights, or none of them. Knows nothing of Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lemur_ray.host.exit_codes import CausedError, ExitCode

TRIES = 3
"""How often new weights are sent to all replicas before the run stops."""


class SwapFailed(CausedError):
    """Raised if the replicas cannot be brought to one version; the same command starts new ones."""

    exit_code = ExitCode.TRY_AGAIN


def swap(update: Callable[[str], Sequence[str]], folder: str, version: str, before: str = "") -> None:
    """Switch every replica to the weights in ``folder``; if one does not, all go back to ``before``, and again.

    update: switches all replicas to a checkpoint folder and returns the version of each; raises RuntimeError if one
    refuses. before: folder of the weights that are served now; empty: unknown. Raises SwapFailed after TRIES tries.
    """
    problem = ""
    for _ in range(TRIES):
        try:
            versions = sorted(set(update(folder)))
            if versions == [version]:
                return
            problem = f"replicas answered with versions {', '.join(versions) or 'none'}"
        except RuntimeError as error:
            problem = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        try:
            if before:
                update(before)
        except RuntimeError as error:
            problem = f"{problem}; nor could all go back: {error}"
    raise SwapFailed(f"weights {version} are not served by all replicas after {TRIES} tries: {problem}")
