"""Data files of InterCode and MINT, which are not part of this project: their paths, sources, sizes and licences.

Names are paths below ``DATA``. Checksums are those of the unpacked contents."""

from collections.abc import Mapping
from pathlib import Path

from lemur_ray.outside_data import required as outside
from lemur_ray.outside_data.source import Source

INTERCODE_COMMIT = "c3e46d827cfc9d4c704ec078f7abf9f41e3191d8"
MINT_COMMIT = "3f7f12c10bf763be1e6dbdeb42feb57624121f61"
GAMES = "mint/tasks/alfworld/valid_unseen_134_games.tar.gz"
GAME_IDS = "mint/tasks/alfworld/gamefile_id.txt"
_PICOCTF = "picoCTF's own terms, not to be redistributed"
_PICOCTF_TERMS = "the tasks are of picoCTF (Carnegie Mellon) under its own terms: they must not be redistributed"


def mint_tasks_file(subset: str) -> str:
    """Path, below the data folder, of the task file of a MINT subset."""
    return f"mint/tasks/{subset}.test_prompts.jsonl.gz"


def required(data: Path, name: str) -> Path:
    """The path of the file ``name`` below ``data``. Raises FileNotFoundError, with size, licence and the command that
    fetches it, if it is missing."""
    return outside.required(data, name, SOURCES)


_EXAMPLES = "mint/in_context_examples/"
_MANIFEST = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
"""Lines of size in bytes, SHA-256 of the (unpacked) content, and path."""
_FILES = {path: (digest, int(size)) for size, digest, path in map(str.split, _MANIFEST.splitlines())}


def _intercode(path: str, upstream: str, licence: str, terms: str = "") -> Source:
    url = f"git:princeton-nlp/intercode@{INTERCODE_COMMIT}/data/{upstream}"
    return Source(f"intercode/{path}", url, *_FILES[f"intercode/{path}"], licence, terms, stored="gzip")


def _tree(number: int) -> Source:
    made = (
        "a list of path, mode, type, mtime and content, made from the tree that docker/bash_scripts/"
        f"setup_nl2b_fs_{number}.sh of princeton-nlp/intercode {INTERCODE_COMMIT[:7]} builds, packed with gzip"
    )
    path = f"intercode/nl2bash/fs_{number}.manifest.json.gz"
    return Source(path, "", *_FILES[path], "MIT", stored="gzip", by_hand=made)


def _mint(path: str, upstream: str, after: str = "", *, packed: bool = False) -> Source:
    url = f"git:xingyaoww/mint-bench@{MINT_COMMIT}/{upstream}"
    return Source(path, url, *_FILES[path], f"Apache-2.0{after}", stored="gzip" if packed else "plain")


def _mint_tasks(subset: str, after: str) -> Source:
    upstream = f"data/processed/{subset}/test_prompts.json"
    return _mint(mint_tasks_file(subset), upstream, f"; after {after}", packed=True)


def _examples(of: str) -> tuple[Source, ...]:
    """MINT's in-context examples, without and with a simulated user's feedback."""
    paths = [f"{_EXAMPLES}{of}/{name}.txt" for name in ("with_tool", "with_tool_and_feedback")]
    return tuple(_mint(path, path.replace("mint/", "mint/tasks/", 1)) for path in paths)


SOURCES: Mapping[str, tuple[Source, ...]] = {
    "intercode/sql": tuple(
        _intercode(f"sql/{name}.gz", f"sql/spider/{name}", "CC BY-SA 4.0")
        for name in ("ic_spider_dev.json", "ic_spider_dbs.sql")
    ),
    "intercode/bash": (
        *(
            _intercode(f"nl2bash/nl2bash_fs_{n}.json.gz", f"nl2bash/nl2bash_fs_{n}.json", "MIT; after NL2Bash")
            for n in range(1, 5)
        ),
        *map(_tree, range(1, 5)),
    ),
    "intercode/ctf": (
        _intercode("ctf/ic_ctf.json.gz", "ctf/ic_ctf.json", _PICOCTF, _PICOCTF_TERMS),
        Source(
            "intercode/ctf/task_assets.tar.gz",
            f"git:princeton-nlp/intercode@{INTERCODE_COMMIT}/data/ctf/",
            *_FILES["intercode/ctf/task_assets.tar.gz"],
            _PICOCTF,
            _PICOCTF_TERMS,
            stored="tar",
            members=("task_assets",),
            left_out=("*solution*",),
        ),
    ),
    "intercode/python": (_intercode("python/ic_mbpp.json.gz", "python/mbpp/ic_mbpp.json", "CC BY 4.0; after MBPP"),),
    "mint/gsm8k": (_mint_tasks("gsm8k", "GSM8K, MIT"), *_examples("reasoning")),
    "mint/math": (_mint_tasks("math", "MATH, MIT"), *_examples("reasoning")),
    "mint/theoremqa": (_mint_tasks("theoremqa", "TheoremQA, MIT"), *_examples("reasoning")),
    "mint/hotpotqa": (_mint_tasks("hotpotqa", "HotpotQA, CC BY-SA 4.0"), *_examples("reasoning")),
    "mint/mmlu": (_mint_tasks("mmlu", "MMLU, MIT"), *_examples("reasoning")),
    "mint/humaneval": (_mint_tasks("humaneval", "HumanEval, MIT"), *_examples("humaneval")),
    "mint/mbpp": (_mint_tasks("mbpp", "MBPP, CC BY 4.0"), *_examples("mbpp")),
    "mint/alfworld": (
        Source(
            GAMES,
            f"git:xingyaoww/mint-bench@{MINT_COMMIT}/data/processed/alfworld/",
            "",  # upstream's folder has 195 games; only the archive of the 134 played ones is pinned, elsewhere
            57_000_000,
            "Apache-2.0; ALFWorld and ALFRED, MIT",
            stored="tar",
            members=("json_2.1.1/valid_unseen",),
        ),
        _mint(GAME_IDS, "data/processed/alfworld/gamefile_id.txt"),
        *(one for of in ("put", "clean", "heat", "cool", "examine", "puttwo") for one in _examples(f"alfworld/{of}")),
    ),
}
