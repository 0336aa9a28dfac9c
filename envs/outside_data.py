"""Data files of InterCode and MINT, which are not part of this project: their paths, sources, sizes and licences.

Names are paths below ``DATA``. Checksums are those of the unpacked contents.
"""

from __future__ import annotations

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


def _intercode(path: str, upstream: str, sha256: str, size: int, licence: str, terms: str = "") -> Source:
    url = f"git:princeton-nlp/intercode@{INTERCODE_COMMIT}/data/{upstream}"
    return Source(f"intercode/{path}", url, sha256, size, licence, terms, stored="gzip")


def _tree(number: int, size: int, sha256: str) -> Source:
    made = (
        "a list of path, mode, type, mtime and content, made from the tree that docker/bash_scripts/"
        f"setup_nl2b_fs_{number}.sh of princeton-nlp/intercode {INTERCODE_COMMIT[:7]} builds, packed with gzip"
    )
    path = f"intercode/nl2bash/fs_{number}.manifest.json.gz"
    return Source(path, "", sha256, size, "MIT", stored="gzip", by_hand=made)


def _mint(path: str, upstream: str, sha256: str, size: int, after: str = "", *, packed: bool = False) -> Source:
    url = f"git:xingyaoww/mint-bench@{MINT_COMMIT}/{upstream}"
    return Source(path, url, sha256, size, f"Apache-2.0{after}", stored="gzip" if packed else "plain")


def _mint_tasks(subset: str, size: int, sha256: str, after: str) -> Source:
    upstream = f"data/processed/{subset}/test_prompts.json"
    return _mint(mint_tasks_file(subset), upstream, sha256, size, f"; after {after}", packed=True)


def _examples(of: str, size: int, sha256: str, feedback_size: int, feedback_sha256: str) -> tuple[Source, Source]:
    """MINT's in-context examples, without and with a simulated user's feedback."""
    folder = f"in_context_examples/{of}"
    return (
        _mint(f"mint/{folder}/with_tool.txt", f"mint/tasks/{folder}/with_tool.txt", sha256, size),
        _mint(
            f"mint/{folder}/with_tool_and_feedback.txt",
            f"mint/tasks/{folder}/with_tool_and_feedback.txt",
            feedback_sha256,
            feedback_size,
        ),
    )


_EXAMPLES: Mapping[str, tuple[Source, ...]] = {
    "reasoning": _examples(
        "reasoning",
        1_847,
        "998b74764f19230f88ee413d272f48de0eef036915af99e8bc9a962fceef2229",
        2_334,
        "c74804f61b17fcb1d7619f232da216bfcc0d6d08579d6344144e84d8dcd39913",
    ),
    "humaneval": _examples(
        "humaneval",
        1_952,
        "9544297020279c692f4211c323ee76d4702d1cc3b61345dde8736adce6990414",
        2_139,
        "82332932601c24c59f2e0c40e1fdc59f120ac1173ea6fffa77a45002f739578d",
    ),
    "mbpp": _examples(
        "mbpp",
        1_652,
        "0ff1c1c54c1c815b3c217736d5ef62cca4c194dcfb2f8678f271ba9e52e7a98b",
        1_839,
        "164d1152b21df3c244ed438b4a4273e66d06b0f1c1ae1e827e3ace3fa0a39fe0",
    ),
    "alfworld/put": _examples(
        "alfworld/put",
        1_791,
        "8f18382e994ce6cc93ebed7eb40523b2fa761d51edb9e12befb763c58eb503bc",
        2_033,
        "171ffbdb4f671932c11f051efd7b59513e9ac3765bd8ab58bc758b43e147222b",
    ),
    "alfworld/clean": _examples(
        "alfworld/clean",
        2_501,
        "f1d077d80966258171d9b14049bb05ec03bae00e735956b8f9a7a6b698d00bae",
        2_743,
        "0bc30cf2b178ad3c0aed5a4e28ae7e63820693e352464701594f40cd3f152bcf",
    ),
    "alfworld/heat": _examples(
        "alfworld/heat",
        2_352,
        "741bdc398dd06a93c3d1c36444db0bd00a97503aefc3eda2f504f27176b4f0ad",
        2_596,
        "aa464b7c75ce60ad69306b5e8516b9655cdf78faf9baa34fe424cf3c17316848",
    ),
    "alfworld/cool": _examples(
        "alfworld/cool",
        2_296,
        "a84d45031dbc475334d7027d5f115ce9eab16767782a54dbf40707630e7bf164",
        2_480,
        "a60b17486513825823307a42e6e431b3d8720e10d714274a779512d743f970bf",
    ),
    "alfworld/examine": _examples(
        "alfworld/examine",
        2_332,
        "0771148531d1226cec6808b45ec58da5779ebe1ad2a04e7e30b7ff1446b3dd19",
        2_692,
        "7479f439d97c78fac5e9942112599b8f6126dc83012b2e61cd4e4e958ea15c4b",
    ),
    "alfworld/puttwo": _examples(
        "alfworld/puttwo",
        3_212,
        "59aa1e2df66ed02773c69d003d2b685c05f4a06a73d86d8e2c1ce97fcf1e4059",
        3_672,
        "a406d2b9f6715ffc3cf96b504bf0856abcec33d41f451ea39a19325de6024629",
    ),
}

SOURCES: Mapping[str, tuple[Source, ...]] = {
    "intercode/sql": (
        _intercode(
            "sql/ic_spider_dev.json.gz",
            "sql/spider/ic_spider_dev.json",
            "68c9ecb0692c80770f46c724cc073ea76be4f301a294caa532c050546948128e",
            1_001_475,
            "CC BY-SA 4.0",
        ),
        _intercode(
            "sql/ic_spider_dbs.sql.gz",
            "sql/spider/ic_spider_dbs.sql",
            "61f6e8000cb5bb696f123fa55e111acdcd8da7eca64f452a36fd1a6e5fb1781a",
            412_090,
            "CC BY-SA 4.0",
        ),
    ),
    "intercode/bash": (
        _intercode(
            "nl2bash/nl2bash_fs_1.json.gz",
            "nl2bash/nl2bash_fs_1.json",
            "60f88e1aacc7ebba535093f9890c5c33203f4e5f32958e0e94fbe90ec4f01c82",
            13_588,
            "MIT; after NL2Bash",
        ),
        _intercode(
            "nl2bash/nl2bash_fs_2.json.gz",
            "nl2bash/nl2bash_fs_2.json",
            "8f4ce24e535fab782fda607e37db2ae1d6c5f99993c638d1ac0a7e0b542f633e",
            11_158,
            "MIT; after NL2Bash",
        ),
        _intercode(
            "nl2bash/nl2bash_fs_3.json.gz",
            "nl2bash/nl2bash_fs_3.json",
            "a2d4ec8bc7ad69a4e2fb3eb84033994cf65ee9cfb355e3e63099df67a339b2e1",
            11_264,
            "MIT; after NL2Bash",
        ),
        _intercode(
            "nl2bash/nl2bash_fs_4.json.gz",
            "nl2bash/nl2bash_fs_4.json",
            "ce41b89450f87765a02a51df259ca0c1762e8249185c022adb089147e2c16200",
            4_028,
            "MIT; after NL2Bash",
        ),
        _tree(1, 5_736, "aac2c7a9b4aa20b23db05092d681175bae653d23e19098709286a64bd87f1fde"),
        _tree(2, 4_895, "6ca7c9d88a6d9fba87a6d8379a1ded7fc0ac13356aeed80522f0219def20c980"),
        _tree(3, 40_800, "a2e29f4e2da74cad4db6556fd4177cd3b15a5e3fa8659ddac4ffd7db34eae833"),
        _tree(4, 2, "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"),
    ),
    "intercode/ctf": (
        _intercode(
            "ctf/ic_ctf.json.gz",
            "ctf/ic_ctf.json",
            "7d5c29724d23719de369e31126c26ebc9a925ae21769f1c3c029abf074def126",
            32_766,
            _PICOCTF,
            _PICOCTF_TERMS,
        ),
        Source(
            "intercode/ctf/task_assets.tar.gz",
            f"git:princeton-nlp/intercode@{INTERCODE_COMMIT}/data/ctf/",
            "17d9f1a3f2feab10816750a05d99750379b8a36b6affaefd6482aed36c301eb1",
            14_774_647,
            _PICOCTF,
            _PICOCTF_TERMS,
            stored="tar",
            members=("task_assets",),
            left_out=("*solution*",),
        ),
    ),
    "intercode/python": (
        _intercode(
            "python/ic_mbpp.json.gz",
            "python/mbpp/ic_mbpp.json",
            "4995ef1997ae7ee78c13b57bdba5c68c7989bbd31738837cc5f60c455ec0bcc7",
            535_519,
            "CC BY 4.0; after MBPP",
        ),
    ),
    "mint/gsm8k": (
        _mint_tasks("gsm8k", 15_676, "cb64217de242508aa95ececfffde657c507d244ae434bfed80b9663a331e3006", "GSM8K, MIT"),
        *_EXAMPLES["reasoning"],
    ),
    "mint/math": (
        _mint_tasks("math", 27_578, "48a8c50efe9a206ca2cc634192545ed132596846fcd07631d5de2f4c6b54642d", "MATH, MIT"),
        *_EXAMPLES["reasoning"],
    ),
    "mint/theoremqa": (
        _mint_tasks(
            "theoremqa", 14_651, "0a66cce3ccfbb3645fb26c5c37951c7043284f9c82c04121a2bd0102abe12779", "TheoremQA, MIT"
        ),
        *_EXAMPLES["reasoning"],
    ),
    "mint/hotpotqa": (
        _mint_tasks(
            "hotpotqa",
            6_670,
            "3d85c77e4c8c25c8c8f7415fb29067be0d13b5a784ab45b6a89900f04e693282",
            "HotpotQA, CC BY-SA 4.0",
        ),
        *_EXAMPLES["reasoning"],
    ),
    "mint/mmlu": (
        _mint_tasks("mmlu", 20_067, "77bd8aa372ddabb587392d7c9c7d275b75ac32d31fdbc836f1faa4d66d4300c3", "MMLU, MIT"),
        *_EXAMPLES["reasoning"],
    ),
    "mint/humaneval": (
        _mint_tasks(
            "humaneval", 95_482, "4928a066639367b11c18d903816d6c5705073694c974892371fe9d30f5b6a75d", "HumanEval, MIT"
        ),
        *_EXAMPLES["humaneval"],
    ),
    "mint/mbpp": (
        _mint_tasks(
            "mbpp", 85_879, "5aa7dd825467a624b400f4a18c95f23211019bb9da76c9041288b44b315538b6", "MBPP, CC BY 4.0"
        ),
        *_EXAMPLES["mbpp"],
    ),
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
        _mint(
            GAME_IDS,
            "data/processed/alfworld/gamefile_id.txt",
            "0ae4826ca105f91a7fabd5a2a06198bfa21796287b98b54481bdc1ee57f3f156",
            10_795,
        ),
        *(one for of, pair in _EXAMPLES.items() if of.startswith("alfworld/") for one in pair),
    ),
}
