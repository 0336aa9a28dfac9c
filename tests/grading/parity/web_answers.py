"""WebArena's string_match and url_match beside the published evaluators: golds, changed and hostile answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from envs.webarena.evaluators.string_match import string_match
from envs.webarena.evaluators.url_match import RULE, url_match
from lemur_ray.host.json_files import read_json
from tests.grading.parity.compare import Difference, Reply, ask_peer, differences

Record = Mapping[str, Any]


class Holds:
    """A judge that says yes if the answer holds the reference."""

    def equivalent(self, record: Record, reference: str, answer: str) -> float:
        return float(reference.lower() in answer.lower())

    def same_reason(self, record: Record, answer: str) -> float:
        return self.equivalent(record, record["eval"]["string_note"], answer)


def answers(record: Record) -> dict[str, str]:
    """Answers to a task by how they are made; empty if it asks for none."""
    wanted = record["eval"]["reference_answers"]
    if not wanted:
        return {}
    parts = [part for value in wanted.values() for part in ([value] if isinstance(value, str) else value)]
    gold = ", ".join(parts)
    return {
        "gold": gold,
        "in quotes": f'"{gold}"',
        "in single quotes": f"'{gold}'",
        "one quote": f"'{gold}",
        "in capitals": gold.upper(),
        "in a sentence": f"The answer is {gold}.",
        "with blanks": f"  {gold}\n",
        "with a full stop": f"{gold}.",
        "a part": parts[0],
        "the other way round": ", ".join(reversed(parts)),
        "without its first letter": gold[1:],
        "in a longer word": f"x{gold}x",
        "in a longer number": f"1{gold}5",
        "with a unit": f"{gold}km",
        "negated": f"It is not {gold}.",
        "cannot be done": "N/A",
        "every reference of all": f"N/A {gold} 0 1 2 3 4 5 6 7 8 9 yes no",
        "the reason": record["eval"].get("string_note") or "none",
        "nothing": "",
    }


def addresses(record: Record) -> dict[str, str]:
    """Addresses of a last page by how they are made; empty if a task asks for none."""
    wanted = record["eval"]["reference_url"] if "url_match" in record["eval"]["eval_types"] else ""
    if not wanted:
        return {}
    gold = wanted.split(" |OR| ")[0]
    parts = urlsplit(gold)
    return {
        "gold": gold,
        "the last reference": wanted.split(" |OR| ")[-1],
        "with a slash": f"{gold}/",
        "with a parameter": f"{gold}{'&' if parts.query else '?'}more=1",
        "with a fragment": f"{gold}#end",
        "without its query": gold.partition("?")[0],
        "a page below": f"{gold.partition('?')[0]}/more",
        "the page above": gold.rpartition("/")[0],
        "another host": gold.replace(parts.netloc, "other.example", 1),
        "within another address": f"http://other.example/{gold.partition('://')[2]}",
        "as a parameter": f"http://other.example/?to={gold}",
        "with escapes": f"{parts.scheme}://{parts.netloc}{quote(parts.path)}{'?' if parts.query else ''}{parts.query}",
        "in capitals": gold.upper(),
        "half an address": "http://[",
        "nothing": "",
    }


def beside_webarena(python: str, checkout: Path, data: Path) -> list[tuple[str, list[Reply], list[Difference]]]:
    """(comparison, replies, differences) of answers and of addresses. ``python``: one with nltk; ``checkout``: of
    web-arena-x/webarena."""
    records: list[Record] = read_json(data / "webarena/test.raw.json.gz")
    differing = []
    for name, made in (("webarena string_match", answers), ("webarena url_match", addresses)):
        kind = name.split()[1]
        replies, asked = [], []
        for record in records:
            rubric = {**record["eval"], "eval_types": [one for one in record["eval"]["eval_types"] if one == kind]}
            for how, text in made(record).items() if rubric["eval_types"] else ():
                alone = {**record, "eval": rubric}
                replies.append(Reply(how, f"webarena/{record['task_id']}", text, {"record": alone}))
                asked.append({"record": alone, "answer": text, "url": text})
        theirs = ask_peer(python, "webarena_peer.py", asked, str(checkout))
        mine = [verdict(kind, reply) for reply in replies]
        differing.append((name, replies, differences(name, replies, mine, theirs, ())))
    return differing


def verdict(kind: str, reply: Reply) -> bool:
    """This project's verdict by the upstream rules."""
    record = reply.more["record"]
    if kind == "string_match":
        return string_match(record, reply.text, Holds()) == 1
    return url_match(record["eval"]["reference_url"], reply.text, rule=record["eval"].get("url_note", RULE)) == 1
