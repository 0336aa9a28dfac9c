"""Files of MINT that are not part of this project: where each must lie, and how to get one that is missing."""

from __future__ import annotations

from pathlib import Path

COMMIT = "3f7f12c"
_CLONE = (
    "git clone -q https://github.com/xingyaoww/mint-bench mint-bench; "  # the other parts of a command still work
    f"git -C mint-bench checkout -q {COMMIT}"
)
_RIGHTS = "Apache-2.0"
_TASKS = {
    "gsm8k": ("5 kB", "after GSM8K, MIT"),
    "math": ("9 kB", "after MATH, MIT"),
    "theoremqa": ("5 kB", "after TheoremQA, MIT"),
    "hotpotqa": ("3 kB", "after HotpotQA, CC BY-SA 4.0"),
    "mmlu": ("7 kB", "after MMLU, MIT"),
    "humaneval": ("16 kB", "after HumanEval, MIT"),
    "mbpp": ("15 kB", "after MBPP, CC BY 4.0"),
}
GAMES = "tasks/alfworld/valid_unseen_134_games.tar.gz"
GAME_IDS = "tasks/alfworld/gamefile_id.txt"


def tasks_file(subset: str) -> str:
    """Name of a subset's task file beneath ``DATA/mint``."""
    return f"tasks/{subset}.test_prompts.jsonl.gz"


def required(folder: Path, name: str) -> Path:
    """``folder/name`` of the folder ``DATA/mint``.

    Raises FileNotFoundError: which file, how large, under which licence, and the command that fetches it.
    """
    path = folder / name
    if path.is_file():
        return path
    size, licence, command = _described(folder, name)
    raise FileNotFoundError(
        f"{path}: not there (about {size}, licence: {licence}; set --data or LEMUR_DATA if it lies elsewhere). "
        f"Fetch it with: {_CLONE}; mkdir -p {path.parent}; {command}"
    )


def _described(folder: Path, name: str) -> tuple[str, str, str]:
    """Size, licence, and the command that makes the file from a clone."""
    path = folder / name
    for subset, (size, after) in _TASKS.items():
        if name == tasks_file(subset):
            source = f"mint-bench/data/processed/{subset}/test_prompts.json"
            return size, f"{_RIGHTS}; {after}", f"gzip -9c {source} > {path}"
    if name == GAMES:
        command = f"tar -C mint-bench/data/processed/alfworld -czf {path} json_2.1.1/valid_unseen"
        return "2.4 MB", f"{_RIGHTS}; ALFWorld and ALFRED, MIT", command
    if name == GAME_IDS:
        return "11 kB", _RIGHTS, f"cp mint-bench/data/processed/alfworld/gamefile_id.txt {path}"
    return "4 kB", _RIGHTS, f"cp mint-bench/mint/tasks/{name} {path}"
