"""InterCode-Bash's reward: changes of a file tree and output of a command, compared with those of the gold command.

reward = 0.01 + changes + contents + output, each of the three at most 0.33 and rounded to 0.01; solved means exactly 1.
Source: princeton-nlp/intercode c3e46d8, by its behaviour; ``compat`` reproduces its faults. Pure functions of tree
listings and texts; knows no sandbox."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_WORDS = re.compile(r"\b\w\w+\b")


@dataclass(frozen=True)
class Entry:
    """One entry of a tree: ``kind`` d, f or l, mode bits, and a hash of its content (link target), empty for d."""

    kind: str
    mode: int
    content: str


Tree = Mapping[str, Entry]
"""Absolute path -> entry, folders included."""


def changes(before: Tree, after: Tree) -> dict[str, str]:
    """What changed from tree ``before`` to ``after`` (path -> entry): path -> A (added), D (deleted) or M (modified:
    kind, mode or content), folders included; empty for equal trees."""
    changed = dict.fromkeys(after.keys() - before.keys(), "A") | dict.fromkeys(before.keys() - after.keys(), "D")
    return changed | {path: "M" for path in before.keys() & after.keys() if before[path] != after[path]}


def git_status(before: Tree, after: Tree) -> set[tuple[str, str]]:
    """Output of ``git status --short`` with ``before`` committed, parsed as upstream parses it. Git ignores empty
    folders, lists a folder without tracked files as one entry with a trailing slash, and compares only the x bit of
    modes. Upstream splits the output on white space into pairs, so paths with blanks break."""
    tracked = {path for path, entry in before.items() if entry.kind != "d"}
    folders = {parent for path in tracked for parent in _parents(path)}
    lines = []
    for path in sorted(tracked):
        now = after.get(path)
        if now is None or now.kind == "d":
            lines.append(("D", path))
        elif now.kind != before[path].kind:
            lines.append(("T", path))
        elif now.content != before[path].content or (now.mode ^ before[path].mode) & 0o100:
            lines.append(("M", path))
    untracked = set()
    for path, entry in after.items():
        if entry.kind != "d" and path not in tracked:
            above = [parent for parent in _parents(path) if parent not in folders]
            untracked.add(f"{above[0]}/" if above else path)
    lines += [("??", path) for path in sorted(untracked)]
    words = " ".join(f"{status} {path[1:]}" for status, path in lines).split()
    return {(words[i + 1], words[i]) for i in range(0, len(words) - 1, 2)}


def bash_reward(before: Tree, after: Tree, output: str, gold: Tree, gold_output: str, *, compat: bool) -> float:
    """Reward, 0.01 to 1, of the tree ``after`` and the text ``output``, compared with the gold command's tree and
    output. Both commands started from the tree ``before``. ``compat``: upstream's faults included."""
    if compat:
        mine, theirs = git_status(before, after), git_status(before, gold)
        common = [path for path, status in mine & theirs if status in ("A", "??", "C")]
        same = sum(_same_for_upstream(f"/{path}", after, gold) for path in common)
    else:
        mine, theirs = set(changes(before, after).items()), set(changes(before, gold).items())
        common = [path for path, status in mine & theirs if status != "D"]
        same = sum(after[path] == gold[path] for path in common)
    of_changes = round(0.33 * (1 - math.erf(len(mine ^ theirs))), 2)
    of_contents = round(0.33 * same / len(common), 2) if common else 0.33
    return 0.01 + of_changes + of_contents + round(0.33 * similarity(output, gold_output), 2)


def similarity(a: str, b: str) -> float:
    """Cosine of the TF-IDF vectors of two texts, idf smoothed and fitted on the two; no word at all: 1 if equal. Words
    are runs of two or more word characters in lower case (scikit-learn's TfidfVectorizer with its defaults)."""
    counts = [Counter(_WORDS.findall(text.lower())) for text in (a, b)]
    words = counts[0].keys() | counts[1].keys()
    if not words:
        return float(a == b)
    weight = {word: math.log(3 / (1 + sum(word in count for count in counts))) + 1 for word in words}
    left, right = ({word: count[word] * weight[word] for word in count} for count in counts)
    norms = [math.sqrt(sum(value * value for value in vector.values())) for vector in (left, right)]
    if not all(norms):
        return 0.0
    return sum(left[word] * right.get(word, 0.0) for word in left) / norms[0] / norms[1]


def _same_for_upstream(path: str, after: Tree, gold: Tree) -> bool:
    """Compares content for paths with a dot; others count as equal, since upstream's tool for them is not installed."""
    if "." not in path:
        return True
    mine, theirs = after.get(path.rstrip("/")), gold.get(path.rstrip("/"))
    return (mine.content if mine else "") == (theirs.content if theirs else "")


def _parents(path: str) -> list[str]:
    """Folders above a path, the topmost first, without the root."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
