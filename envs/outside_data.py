"""Files that are not part of this project: where each must lie beneath the data folder, and how to get one.

Of InterCode and MINT; names are paths beneath ``DATA``. Reads none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

INTERCODE_COMMIT = "c3e46d827cfc9d4c704ec078f7abf9f41e3191d8"
MINT_COMMIT = "3f7f12c"
GAMES = "mint/tasks/alfworld/valid_unseen_134_games.tar.gz"
GAME_IDS = "mint/tasks/alfworld/gamefile_id.txt"
_INTERCODE = f"https://raw.githubusercontent.com/princeton-nlp/intercode/{INTERCODE_COMMIT}/data"
_CLONE_INTERCODE = (
    f"git clone -q https://github.com/princeton-nlp/intercode; git -C intercode checkout -q {INTERCODE_COMMIT[:7]}"
)
_CLONE_MINT = (
    "git clone -q https://github.com/xingyaoww/mint-bench mint-bench; "  # the other parts of a command still work
    f"git -C mint-bench checkout -q {MINT_COMMIT}"
)
_PICOCTF = "picoCTF's own terms, not to be redistributed"


@dataclass(frozen=True)
class OutsideFile:
    """``command``: what fetches it, with {path} and {folder} of where it must lie; empty where ``made`` says how."""

    size: str
    licence: str
    command: str = ""
    made: str = ""


def mint_tasks_file(subset: str) -> str:
    """Name of the task file of one of MINT's subsets."""
    return f"mint/tasks/{subset}.test_prompts.jsonl.gz"


def required(data: Path, name: str) -> Path:
    """``data/name``. Raises FileNotFoundError: which file, how large, under which licence, and how it is fetched."""
    path = data / name
    if path.is_file():
        return path
    file = _FILES.get(name) or _other(name)
    if file.made:
        raise FileNotFoundError(f"{path}: not there. It is {file.made}")
    command = file.command.format(path=path, folder=path.parent)
    raise FileNotFoundError(
        f"{path}: not there (about {file.size}, licence: {file.licence}). If it lies elsewhere, say where with --data "
        f"or LEMUR_DATA. Fetch it with: {command}"
    )


def _intercode(source: str, size: str, licence: str) -> OutsideFile:
    return OutsideFile(size, licence, f"mkdir -p {{folder}} && curl -fsSL {_INTERCODE}/{source} | gzip -9 > {{path}}")


def _mint(size: str, licence: str, command: str) -> OutsideFile:
    return OutsideFile(size, f"Apache-2.0{licence}", f"{_CLONE_MINT}; mkdir -p {{folder}}; {command}")


def _mint_tasks(subset: str, size: str, after: str) -> OutsideFile:
    return _mint(size, f"; after {after}", f"gzip -9c mint-bench/data/processed/{subset}/test_prompts.json > {{path}}")


_FILES: Mapping[str, OutsideFile] = {
    "intercode/sql/ic_spider_dev.json.gz": _intercode("sql/spider/ic_spider_dev.json", "83 kB", "CC BY-SA 4.0"),
    "intercode/sql/ic_spider_dbs.sql.gz": _intercode("sql/spider/ic_spider_dbs.sql", "120 kB", "CC BY-SA 4.0"),
    "intercode/ctf/ic_ctf.json.gz": _intercode("ctf/ic_ctf.json", "8 kB", _PICOCTF),
    "intercode/python/ic_mbpp.json.gz": _intercode("python/mbpp/ic_mbpp.json", "129 kB", "CC BY 4.0; after MBPP"),
    **{
        f"intercode/nl2bash/nl2bash_fs_{n}.json.gz": _intercode(
            f"nl2bash/nl2bash_fs_{n}.json", "3 kB", "MIT; after NL2Bash"
        )
        for n in (1, 2, 3, 4)
    },
    "intercode/ctf/task_assets.tar.gz": OutsideFile(
        size="10 MB",
        licence=_PICOCTF,
        made=f"data/ctf/task_assets of that commit without its solution folders, 10 MB, {_PICOCTF}. Fetch it with: "
        f"{_CLONE_INTERCODE}; tar -C intercode/data/ctf --exclude='*solution*' -czf task_assets.tar.gz task_assets "
        f"(princeton-nlp/intercode {INTERCODE_COMMIT[:7]})",
    ),
    **{
        f"intercode/nl2bash/fs_{n}.manifest.json.gz": OutsideFile(
            size="1 kB",
            licence="MIT",
            made="a list of path, mode, type, mtime and content, made from the tree that docker/bash_scripts/"
            f"setup_nl2b_fs_{n}.sh of that commit builds, 1 kB, MIT (princeton-nlp/intercode {INTERCODE_COMMIT[:7]})",
        )
        for n in (1, 2, 3, 4)
    },
    **{
        mint_tasks_file(subset): _mint_tasks(subset, size, after)
        for subset, size, after in (
            ("gsm8k", "5 kB", "GSM8K, MIT"),
            ("math", "9 kB", "MATH, MIT"),
            ("theoremqa", "5 kB", "TheoremQA, MIT"),
            ("hotpotqa", "3 kB", "HotpotQA, CC BY-SA 4.0"),
            ("mmlu", "7 kB", "MMLU, MIT"),
            ("humaneval", "16 kB", "HumanEval, MIT"),
            ("mbpp", "15 kB", "MBPP, CC BY 4.0"),
        )
    },
    GAMES: _mint(
        "2.4 MB",
        "; ALFWorld and ALFRED, MIT",
        "tar -C mint-bench/data/processed/alfworld -czf {path} json_2.1.1/valid_unseen",
    ),
    GAME_IDS: _mint("11 kB", "", "cp mint-bench/data/processed/alfworld/gamefile_id.txt {path}"),
}


def _other(name: str) -> OutsideFile:
    """Texts of MINT's own source, by their place in it."""
    return _mint("4 kB", "", f"cp mint-bench/mint/tasks/{name.removeprefix('mint/')} {{path}}")
