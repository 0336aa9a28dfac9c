"""The page of a corpus: documents and tokens by source, language and licence, and what was dropped, with examples.

Reads the manifest and ``statistics.json`` of a corpus; knows nothing of how it was built."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from lemur_ray.report.inputs import ReportError
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.markup import Page, numeric, percent, table, warning
from lemur_ray.report.pages.rendering import render
from lemur_ray.storage.file_system import file_system

PAGE = "corpus.html"
COMPARISONS = ("duplicate", "near_duplicate", "benchmark")
"""Rules that drop a document by comparison with other texts."""


def write_corpus_page(corpus: str, *, earlier: bool = True) -> str:
    """Write the page ``corpus.html`` of a corpus into its folder, unless it is up to date; returns the page's path or
    URL. ``corpus``: path or URL. ``earlier``: also for a corpus of an earlier release, without statistics; otherwise ""
    is returned for it. Raises ReportError if there is no corpus, OSError if the storage fails."""
    fs, root = file_system(corpus)
    try:
        manifest = json.loads(fs.cat_file(f"{root}/manifest.json"))
    except FileNotFoundError:
        raise ReportError(f"{corpus} holds no manifest.json: run jobs/build_corpus.py --out {corpus}") from None
    statistics = {}
    if fs.exists(f"{root}/statistics.json"):
        statistics = json.loads(fs.cat_file(f"{root}/statistics.json"))
    elif not earlier:
        return ""
    page = render_corpus(manifest, statistics).encode()
    if not fs.exists(f"{root}/{PAGE}") or fs.cat_file(f"{root}/{PAGE}") != page:  # the corpus may be read-only
        fs.pipe_file(f"{root}/{PAGE}", page)
    return f"{corpus.rstrip('/')}/{PAGE}"


def render_corpus(manifest: Mapping[str, Any], statistics: Mapping[str, Any]) -> Markup:
    """The page as HTML, from the corpus's manifest and its ``statistics.json`` ({} if it has none)."""
    sources, counts = manifest["sources"], manifest.get("counts", {})
    documents, tokens, rows = (sum(one[what] for one in sources) for what in ("documents", "tokens", "rows"))
    read = sum(one["read"] for one in counts.values())
    rules = sorted({rule for of in counts.values() for rule in of["dropped"]} - set(COMPARISONS))
    facts = {"documents": documents, "read": read, "tokens": tokens, "rows": rows, "seq_len": manifest["seq_len"]}
    facts["vocabulary"] = manifest["vocab_size"]
    return render(
        "corpus_page",
        page=Page("Corpus"),
        facts={name: f"{number:,}" for name, number in facts.items()},
        problems=_problems(manifest),
        sources=_sources(manifest),
        mixture=_mixture(manifest),
        languages=_shares(statistics.get("languages", {}), "language", tokens),
        licences=_shares(statistics.get("licences", {}), "licence", tokens),
        rules=_by_source(rules, counts),
        duplicates=_duplicates(manifest),
        examples=_examples(statistics.get("examples", {}), counts),
    )


def _problems(manifest: Mapping[str, Any]) -> Markup:
    failed = [
        f"not read, part {one['part']} of {one['source']}: {one['file']}, {one['position']}: {one['reason']}"
        for one in manifest.get("failed", ())
    ]
    removed = manifest.get("removed", 0)
    removals = [f"{removed:,} documents were removed after the build"] if removed else []
    return warning([*failed, *manifest.get("missing", ()), *removals])


def _sources(manifest: Mapping[str, Any]) -> Markup:
    heldout = {entry["source"]: entry["rows"] for entry in manifest.get("heldout", ())}
    rows = []
    for entry in manifest["sources"]:
        counts = manifest.get("counts", {}).get(entry["name"], {})
        rows.append(
            [entry["name"], entry["kind"], counts.get("files"), counts.get("read"), entry["documents"],
             entry["tokens"], entry["rows"], heldout.get(entry["name"], 0)]
        )  # fmt: skip
    total = ["all", "", *(sum(row[i] or 0 for row in rows) for i in range(2, 8))]
    header = ["source", "kind", "files", "read", "documents", "tokens", "rows", "rows held out"]
    return table(header, [*rows, total], frozenset([len(rows)]))


def _mixture(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of each source as the file of sources asks for them, and as built."""
    asked = {spec["name"]: spec.get("tokens", 0) for spec in manifest["config"].get("sources", ())}
    built = {entry["name"]: entry["tokens"] for entry in manifest["sources"]}
    total = sum(built.values()) or 1
    rows = [
        [name, numeric(f"{asked[name]:,.0f}" if asked.get(name) else "all"), tokens, numeric(percent(tokens / total))]
        for name, tokens in built.items()
    ]
    bars = [("as built", built)]
    if built.keys() <= {name for name, tokens in asked.items() if tokens}:
        bars.insert(0, ("as asked", {name: asked[name] for name in built}))
    ratio = manifest["built"]["code_to_text"]
    return {
        "legend": figures.legend([(name, i) for i, name in enumerate(built)]),
        "figure": figures.shares(bars, label="Share of tokens of each source"),
        "table": table(["source", "tokens asked", "tokens built", "share"], rows),
        "ratio": f"{ratio:.3g} tokens of code per token of text." if ratio else "",
    }


def _shares(totals: Mapping[str, Sequence[int]], what: str, tokens: int) -> Markup:
    rows = [
        [name or "not recorded", documents, number, numeric(percent(number / max(tokens, 1)))]
        for name, (documents, number) in totals.items()
    ]
    return table([what, "documents", "tokens", "share"], rows) if rows else Markup("")


def _by_source(rules: Sequence[str], counts: Mapping[str, Mapping[str, Any]]) -> Markup:
    """Documents dropped by each rule (rows) of each source (columns)."""
    rows = []
    for rule in rules:
        numbers = [of["dropped"].get(rule, 0) for of in counts.values()]
        rows.append([rule.replace("_", " "), *numbers, sum(numbers)])
    return table(["rule", *counts, "all"], rows, kind="many") if rows else Markup("")


def _duplicates(manifest: Mapping[str, Any]) -> dict[str, Any]:
    config, counts = manifest["config"], manifest.get("counts", {})
    rules = [rule for rule in COMPARISONS if any(rule in of["dropped"] for of in counts.values())]
    threshold = config.get("near_duplicates")
    return {
        "near": f"Near duplicates: verified Jaccard similarity of at least {threshold:g}." if threshold else
        "Near duplicates were not looked for.",
        "table": _by_source(rules, counts),
        "benchmarks": [f"{name}: {count:,}" for name, count in manifest.get("benchmark_overlaps", {}).items()],
    }  # fmt: skip


def _examples(
    examples: Mapping[str, Sequence[Sequence[str]]], counts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Rules with their number of dropped documents and examples, the most frequent first."""
    numbers = {rule: sum(of["dropped"].get(rule, 0) for of in counts.values()) for rule in examples}
    return [
        {
            "rule": rule.replace("_", " "),
            "count": f"{numbers[rule]:,}",
            "documents": [{"source": source, "file": file, "text": text} for source, file, text in ones],
        }
        for rule, ones in sorted(examples.items(), key=lambda item: (-numbers[item[0]], item[0]))
    ]
