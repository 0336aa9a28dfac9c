"""Statistics of a corpus for its page: documents and tokens by language and licence, examples of what was dropped."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from lemur_ray.corpus.assembly import RowSet
from lemur_ray.corpus.destinations.step_files import SharedFolder
from lemur_ray.corpus.selection import CleanDocuments
from lemur_ray.corpus.sources.listing import Listing
from lemur_ray.corpus.steps import stages

STATISTICS = "statistics.json"
_PARTS = 8
"""Maximum number of parts from which examples of dropped documents are taken, per source and per rule of comparison."""
_NAMES = 200
"""Licences or languages that are listed, the most frequent ones; the others are added up."""


def statistics(
    work: Path, listing: Listing, clean: CleanDocuments, sets: Sequence[RowSet], handover: SharedFolder
) -> dict[str, Any]:
    """JSON values: languages and licences, each {name: [documents, tokens]}, of the training rows; examples: by rule,
    [source, file, beginning of the text] of up to ten dropped documents. work: build folder; sets: the row sets of the
    corpus; handover: fetches files of workers. listing, clean: sources with their parts, and the selected documents."""
    examples = _examples_of_filters(work, listing, handover)
    for rule, mask in clean.dropped_by.items():
        examples[rule] = _examples_of_comparison(work, listing, clean, mask, handover)
    shards = [shard for row_set in sets if not row_set.heldout for shard in row_set.shards]
    counts = [stages.read_json(work / "sets" / f"{shard}.json")["counts"] for shard in shards]
    return {
        "languages": add_totals([count["language"] for count in counts]),
        "licences": add_totals([count["licence"] for count in counts]),
        "examples": {rule: ones for rule, ones in sorted(examples.items()) if ones},
    }


def add_totals(counts: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """[documents, tokens] by name, summed over the shards, by descending number of tokens. Of more than 200 names the
    rest is one entry "N others". counts: for each shard, name -> (documents, tokens)."""
    documents: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for count in counts:
        for name, (number, length) in count.items():
            documents[name] += number
            tokens[name] += length
    ranked = sorted(tokens, key=lambda name: (-tokens[name], name))
    out = {name: [documents[name], tokens[name]] for name in ranked[:_NAMES]}
    if others := ranked[_NAMES:]:
        out[f"{len(others)} others"] = [sum(documents[n] for n in others), sum(tokens[n] for n in others)]
    return out


def _examples_of_filters(work: Path, listing: Listing, handover: SharedFolder) -> defaultdict[str, list[list[str]]]:
    examples: defaultdict[str, list[list[str]]] = defaultdict(list)
    for entry in listing.sources:
        parts = [listing.parts[number] for number in entry["parts"][:_PARTS]]
        handover.fetch(*(f"clean/{part}.examples" for part in parts))
        for part in parts:
            for rule, ones in json.loads(stages.intact(work, "clean", part, ".examples").read_bytes()).items():
                room = stages.EXAMPLES - len(examples[rule])
                examples[rule] += [[entry["name"], *one] for one in ones[:room]]
    return examples


def _examples_of_comparison(
    work: Path, listing: Listing, clean: CleanDocuments, mask: np.ndarray, handover: SharedFolder
) -> list[list[str]]:
    at = np.flatnonzero(mask)[: stages.EXAMPLES]
    out = []
    for number in np.unique(clean.part[at])[:_PARTS].tolist():
        part, mine = listing.parts[number], at[clean.part[at] == number]
        handover.fetch(f"clean/{part}.parquet", f"clean/{part}.about")
        chosen = np.zeros_like(mask[clean.of_part(number)])
        chosen[clean.row[mine]] = True
        about = pq.read_table(stages.intact(work, "clean", part, ".about"), columns=["path"])
        files = about.column("path").filter(chosen).to_pylist()
        source = listing.sources[int(clean.source[mine[0]])]["name"]
        texts = stages.texts_of(work, part, chosen)
        out += [[source, *one] for one in zip(files, map(stages.excerpt, texts), strict=True)]
    return out
