"""Data files of InterCode and MINT, which are not part of this project: their paths, sources, sizes and licences.

Names are paths below ``DATA``. Checksums are those of the unpacked contents."""

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


_EXAMPLES = "mint/in_context_examples/"
_MANIFEST = """
1001475 68c9ecb0692c80770f46c724cc073ea76be4f301a294caa532c050546948128e intercode/sql/ic_spider_dev.json.gz
412090 61f6e8000cb5bb696f123fa55e111acdcd8da7eca64f452a36fd1a6e5fb1781a intercode/sql/ic_spider_dbs.sql.gz
13588 60f88e1aacc7ebba535093f9890c5c33203f4e5f32958e0e94fbe90ec4f01c82 intercode/nl2bash/nl2bash_fs_1.json.gz
11158 8f4ce24e535fab782fda607e37db2ae1d6c5f99993c638d1ac0a7e0b542f633e intercode/nl2bash/nl2bash_fs_2.json.gz
11264 a2d4ec8bc7ad69a4e2fb3eb84033994cf65ee9cfb355e3e63099df67a339b2e1 intercode/nl2bash/nl2bash_fs_3.json.gz
4028 ce41b89450f87765a02a51df259ca0c1762e8249185c022adb089147e2c16200 intercode/nl2bash/nl2bash_fs_4.json.gz
5736 aac2c7a9b4aa20b23db05092d681175bae653d23e19098709286a64bd87f1fde intercode/nl2bash/fs_1.manifest.json.gz
4895 6ca7c9d88a6d9fba87a6d8379a1ded7fc0ac13356aeed80522f0219def20c980 intercode/nl2bash/fs_2.manifest.json.gz
40800 a2e29f4e2da74cad4db6556fd4177cd3b15a5e3fa8659ddac4ffd7db34eae833 intercode/nl2bash/fs_3.manifest.json.gz
2 4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945 intercode/nl2bash/fs_4.manifest.json.gz
32766 7d5c29724d23719de369e31126c26ebc9a925ae21769f1c3c029abf074def126 intercode/ctf/ic_ctf.json.gz
14774647 17d9f1a3f2feab10816750a05d99750379b8a36b6affaefd6482aed36c301eb1 intercode/ctf/task_assets.tar.gz
535519 4995ef1997ae7ee78c13b57bdba5c68c7989bbd31738837cc5f60c455ec0bcc7 intercode/python/ic_mbpp.json.gz
15676 cb64217de242508aa95ececfffde657c507d244ae434bfed80b9663a331e3006 mint/tasks/gsm8k.test_prompts.jsonl.gz
1847 998b74764f19230f88ee413d272f48de0eef036915af99e8bc9a962fceef2229 reasoning/with_tool.txt
2334 c74804f61b17fcb1d7619f232da216bfcc0d6d08579d6344144e84d8dcd39913 reasoning/with_tool_and_feedback.txt
27578 48a8c50efe9a206ca2cc634192545ed132596846fcd07631d5de2f4c6b54642d mint/tasks/math.test_prompts.jsonl.gz
14651 0a66cce3ccfbb3645fb26c5c37951c7043284f9c82c04121a2bd0102abe12779 mint/tasks/theoremqa.test_prompts.jsonl.gz
6670 3d85c77e4c8c25c8c8f7415fb29067be0d13b5a784ab45b6a89900f04e693282 mint/tasks/hotpotqa.test_prompts.jsonl.gz
20067 77bd8aa372ddabb587392d7c9c7d275b75ac32d31fdbc836f1faa4d66d4300c3 mint/tasks/mmlu.test_prompts.jsonl.gz
95482 4928a066639367b11c18d903816d6c5705073694c974892371fe9d30f5b6a75d mint/tasks/humaneval.test_prompts.jsonl.gz
1952 9544297020279c692f4211c323ee76d4702d1cc3b61345dde8736adce6990414 humaneval/with_tool.txt
2139 82332932601c24c59f2e0c40e1fdc59f120ac1173ea6fffa77a45002f739578d humaneval/with_tool_and_feedback.txt
85879 5aa7dd825467a624b400f4a18c95f23211019bb9da76c9041288b44b315538b6 mint/tasks/mbpp.test_prompts.jsonl.gz
1652 0ff1c1c54c1c815b3c217736d5ef62cca4c194dcfb2f8678f271ba9e52e7a98b mbpp/with_tool.txt
1839 164d1152b21df3c244ed438b4a4273e66d06b0f1c1ae1e827e3ace3fa0a39fe0 mbpp/with_tool_and_feedback.txt
10795 0ae4826ca105f91a7fabd5a2a06198bfa21796287b98b54481bdc1ee57f3f156 mint/tasks/alfworld/gamefile_id.txt
1791 8f18382e994ce6cc93ebed7eb40523b2fa761d51edb9e12befb763c58eb503bc alfworld/put/with_tool.txt
2033 171ffbdb4f671932c11f051efd7b59513e9ac3765bd8ab58bc758b43e147222b alfworld/put/with_tool_and_feedback.txt
2501 f1d077d80966258171d9b14049bb05ec03bae00e735956b8f9a7a6b698d00bae alfworld/clean/with_tool.txt
2743 0bc30cf2b178ad3c0aed5a4e28ae7e63820693e352464701594f40cd3f152bcf alfworld/clean/with_tool_and_feedback.txt
2352 741bdc398dd06a93c3d1c36444db0bd00a97503aefc3eda2f504f27176b4f0ad alfworld/heat/with_tool.txt
2596 aa464b7c75ce60ad69306b5e8516b9655cdf78faf9baa34fe424cf3c17316848 alfworld/heat/with_tool_and_feedback.txt
2296 a84d45031dbc475334d7027d5f115ce9eab16767782a54dbf40707630e7bf164 alfworld/cool/with_tool.txt
2480 a60b17486513825823307a42e6e431b3d8720e10d714274a779512d743f970bf alfworld/cool/with_tool_and_feedback.txt
2332 0771148531d1226cec6808b45ec58da5779ebe1ad2a04e7e30b7ff1446b3dd19 alfworld/examine/with_tool.txt
2692 7479f439d97c78fac5e9942112599b8f6126dc83012b2e61cd4e4e958ea15c4b alfworld/examine/with_tool_and_feedback.txt
3212 59aa1e2df66ed02773c69d003d2b685c05f4a06a73d86d8e2c1ce97fcf1e4059 alfworld/puttwo/with_tool.txt
3672 a406d2b9f6715ffc3cf96b504bf0856abcec33d41f451ea39a19325de6024629 alfworld/puttwo/with_tool_and_feedback.txt
"""
"""Size in bytes and SHA-256 of each file's (unpacked) content, and its path; MINT's examples from ``_EXAMPLES`` on."""
_FILES = {path: (digest, int(size)) for size, digest, path in map(str.split, _MANIFEST.strip().splitlines())}


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
    content = _FILES[path.removeprefix(_EXAMPLES)]
    return Source(path, url, *content, f"Apache-2.0{after}", stored="gzip" if packed else "plain")


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
