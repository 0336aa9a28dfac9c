"""Notes on MINT's runs for report pages: grader, teacher, departures from the protocol, and counts by grader.

A replay is named by its folders: ``replay:gpt-3.5-turbo-0613/F=gpt-4-0613`` had a teacher."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.run_notes import (
    UNKNOWN,
    EvaluationRun,
    PublishedProtocol,
    RecordedName,
    RunDescription,
    protocol_settings,
)

_REPLAY = "replay:"
_UPSTREAM = "mint-2023"
_TEACHING = ("feedback", "teacher", "ground_truth")
_COLUMNS = {
    "gsm8k": "M-GSM8K", "math": "M-MATH", "theoremqa": "M-TheoremQA", "hotpotqa": "M-HotpotQA", "mmlu": "M-MMLU",
    "humaneval": "M-HumanEval", "mbpp": "M-MBPP", "alfworld": "ALFWorld",
}  # fmt: skip
_MODEL_OF_LOG: Mapping[str, str] = {
    "Llama-2-70b-chat-hf": "Llama-2-70B-Chat",
    "CodeLlama-34b-Instruct-hf": "CodeLlama-34B-INST",
    "lemur-70b-chat-v1": "Lemur-70B-Chat",
    "lemur-70b-chat-v1.even": "Lemur-70B-Chat, even lines",
    "gpt-3.5-turbo-0613": "gpt-3.5-turbo",
    "gpt-4-0613": "gpt-4",
}
"""Name of a model in the published logs -> its name in the paper."""
_WORDS: Mapping[str, tuple[str, str]] = {
    "feedback": ("feedback of {value}", "no feedback"),
    "judged_by": ("{value} grader", "{value} grader"),
}


def protocol(subset: str) -> PublishedProtocol:
    """The published protocol of the benchmark ``mint/<subset>``."""
    return published_protocol("mint", further=partial(_departures, subset))


def about(subset: str, run: EvaluationRun) -> RunDescription:
    """Describe a run of ``mint/<subset>`` for report pages."""
    recorded, teacher, grader = recorded_name(run.policy), teacher_of(run), str(run.settings.get("judged_by", ""))
    return RunDescription(
        column=_COLUMNS[subset],
        departures=() if run.settings else (UNKNOWN,),
        known=bool(run.settings),
        protocol=_protocol(run, recorded, teacher),
        words=_WORDS,
        teacher=teacher,
        grader=grader or "unknown",
        comparable=grader == _UPSTREAM,
        recorded=recorded,
    )


def recorded_name(policy: str) -> RecordedName | None:
    """Model and teacher from the folders in a replay policy's name; None for other policies."""
    if not policy.startswith(_REPLAY):
        return None
    name = policy.removeprefix(_REPLAY)
    model, says_setting, setting = name.partition("/F=")
    if not says_setting:
        return RecordedName(name.split(".json")[0], whole=policy)
    return RecordedName(_MODEL_OF_LOG.get(model, model), "" if setting == "None" else setting, whole=policy)


def teacher_of(run: EvaluationRun) -> str:
    """Name of the run's teacher (simulated user), from a replay's name or else the settings. Empty without feedback."""
    named = recorded_name(run.policy)
    if named is not None and named.teacher:
        return named.teacher
    settings = run.settings
    feedback = str(settings.get("feedback", "none"))
    if feedback == "none":
        return ""
    words = [feedback, *([str(settings["teacher"])] if settings.get("teacher") else [])]
    return ", ".join([*words, *(["knows the solution"] if settings.get("ground_truth") else [])])


def _protocol(run: EvaluationRun, recorded: RecordedName | None, teacher: str) -> dict[str, Any]:
    if not run.settings:
        return {}
    fields = {name: value for name, value in protocol_settings(run).items() if name not in _TEACHING}
    if teacher:
        fields["feedback"] = teacher
    if recorded is not None:
        if "replay" in run.settings:
            fields["replay"] = run.settings["replay"]
        if "wikipedia" in fields:
            fields["wikipedia"] = "as recorded"
    return fields


def _departures(subset: str, run: EvaluationRun) -> Sequence[str]:
    settings, recorded = run.settings, recorded_name(run.policy)
    grader = str(settings.get("judged_by", ""))
    departures = [] if grader == _UPSTREAM else [f"{grader} grader"]
    if settings.get("option_rule", "legacy") != "legacy" and subset == "theoremqa":
        departures.append(f"option rule {settings['option_rule']}")
    if settings.get("parser", "tags") != "tags":
        departures.append(f"{settings['parser']} parser")
    if recorded is None and str(settings.get("wikipedia", "none")) == "none":
        departures.append("no search")
    if recorded is not None and settings.get("replay") == "strict":
        departures.append("code run again")
    return departures


def mint_notes(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Notes of a run as JSON values. ``graders``: {"strict" and "mint-2023": {"solved", "scored"}}, numbers of
    episodes. ``only_mint_2023``, ``only_strict``: sorted ids of the tasks with an episode that only that grader finds
    solved. If one grader's verdict ended an episode, the other's on later turns is unknown, so the other's number is a
    lower bound. ``hash_seed``: PYTHONHASHSEED of the tested programs, only for HumanEval and MBPP."""
    from lemur_ray.grading.mint import GRADERS
    from lemur_ray.grading.python_tests import HASH_SEED

    scored = [episode for episode in episodes if episode.outcome.scored]
    solved = {grader: {e.key for e in scored if e.scores.get(grader, 0.0) >= 1.0} for grader in GRADERS}
    strict, upstream = solved["strict"], solved["mint-2023"]
    programs = any(episode.key.benchmark in ("mint/humaneval", "mint/mbpp") for episode in episodes)
    return {
        **({"hash_seed": HASH_SEED} if programs else {}),
        "graders": {grader: {"solved": len(solved[grader]), "scored": len(scored)} for grader in GRADERS},
        "only_mint_2023": sorted({key.task for key in upstream - strict}),
        "only_strict": sorted({key.task for key in strict - upstream}),
    }
