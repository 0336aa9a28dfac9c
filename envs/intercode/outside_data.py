"""Files of InterCode that are not part of this project: where each must lie, and how to get one that is missing."""

from __future__ import annotations

from pathlib import Path

COMMIT = "c3e46d827cfc9d4c704ec078f7abf9f41e3191d8"
_SOURCE = f"https://raw.githubusercontent.com/princeton-nlp/intercode/{COMMIT}/data"

_FILES = {
    "intercode/sql/ic_spider_dev.json.gz": ("sql/spider/ic_spider_dev.json", "83 kB", "CC BY-SA 4.0"),
    "intercode/sql/ic_spider_dbs.sql.gz": ("sql/spider/ic_spider_dbs.sql", "120 kB", "CC BY-SA 4.0"),
    "intercode/ctf/ic_ctf.json.gz": ("ctf/ic_ctf.json", "8 kB", "picoCTF's own terms, not to be redistributed"),
    "intercode/python/ic_mbpp.json.gz": ("python/mbpp/ic_mbpp.json", "129 kB", "CC BY 4.0; after MBPP"),
    **{
        f"intercode/nl2bash/nl2bash_fs_{n}.json.gz": (f"nl2bash/nl2bash_fs_{n}.json", "3 kB", "MIT; after NL2Bash")
        for n in (1, 2, 3, 4)
    },
}
_MADE = {
    "intercode/ctf/task_assets.tar.gz": "data/ctf/task_assets of that commit without its solution folders, 10 MB, "
    "picoCTF's own terms, not to be redistributed. Fetch it with: "
    f"git clone -q https://github.com/princeton-nlp/intercode; git -C intercode checkout -q {COMMIT[:7]}; "
    "tar -C intercode/data/ctf --exclude='*solution*' -czf task_assets.tar.gz task_assets",
    **{
        f"intercode/nl2bash/fs_{n}.manifest.json.gz": "a list of path, mode, type, mtime and content, made from the "
        f"tree that docker/bash_scripts/setup_nl2b_fs_{n}.sh of that commit builds, 1 kB, MIT"
        for n in (1, 2, 3, 4)
    },
}


def required(data: Path, name: str) -> Path:
    """``data/name``. Raises FileNotFoundError: which file, how large, under which licence, and how it is fetched."""
    path = data / name
    if path.is_file():
        return path
    if name in _MADE:
        raise FileNotFoundError(f"{path}: not there. It is {_MADE[name]} (princeton-nlp/intercode {COMMIT[:7]})")
    source, size, licence = _FILES[name]
    raise FileNotFoundError(
        f"{path}: not there (about {size}, licence: {licence}). Fetch it with: mkdir -p {path.parent} && "
        f"curl -fsSL {_SOURCE}/{source} | gzip -9 > {path}"
    )
