"""Check manifests without a cluster: python cluster/check.py [FILE|FOLDER ...] [--crds FOLDER].

With no file: all of this folder. Schemas of KubeRay, Kueue and Prometheus come from the CustomResourceDefinitions in
--crds (from a cluster: kubectl get crd -o json > crds/crds.json); where there is none, a line says so and only
the rules are checked (--rules lists them). Exit code 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from cluster.checking import clusters, surroundings  # noqa: E402
from cluster.checking.documents import Document, Unreadable, read  # noqa: E402
from cluster.checking.rules import RULES  # noqa: E402
from cluster.checking.schemas import SchemaMissing, Schemas  # noqa: E402


def files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files with manifests, or with samples of them in Markdown, searched recursively in folders."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (p for p in inside if p.suffix in (".yaml", ".yml", ".md") or p.name == "grafana.json" or p == path)


def documents_of(path: Path) -> list[Document]:
    """The Kubernetes objects, or the Grafana dashboard, of a file. Raises Unreadable."""
    if path.suffix != ".json":
        return read(path)
    try:
        return [surroundings.board(path.read_text(encoding="utf-8"), path.name)]
    except ValueError as error:
        raise Unreadable(f"{path} is no JSON: {error}") from error


def check(documents: Sequence[Document], schemas: Schemas) -> tuple[list[str], list[str]]:
    """Check documents by schemas and rules: (error messages, messages about documents without a schema)."""
    wrong, unknown = [], []
    for document in documents:
        if document.kind != "Dashboard":
            try:
                wrong += [f"{document}: {sentence}" for sentence in schemas.problems(document)]
            except SchemaMissing as missing:
                unknown.append(f"{document}: {missing}")
        wrong += collected(str(document), (f"{document}: {breach}" for breach in clusters.breaches(document)))
    around = surroundings.breaches(documents)
    wrong += collected("all together", (f"{document}: {breach}" for document, breach in around))
    return wrong, unknown


def collected(what: str, messages: Iterator[str]) -> list[str]:
    """All ``messages``; an exception for a field of the wrong type ends them and becomes one. what: its subject."""
    out: list[str] = []
    try:
        out.extend(messages)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        out.append(f"{what}: a field is not of the type that the rules read, the rest was not looked at: {error}")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--crds", type=Path, help="folder of CustomResourceDefinitions, .yaml or .json, also .gz")
    parser.add_argument("--rules", action="store_true", help="list the rules and why they are there")
    options = parser.parse_args(argv)
    if options.rules:
        print("\n".join(f"{name:>17}  {why}" for name, why in RULES.items()))
        return 0
    data = os.environ.get("LEMUR_DATA")
    crds = options.crds or (Path(data) / "kuberay" if data else None)
    try:
        documents = [document for path in files(options.files) for document in documents_of(path)]
        wrong, unknown = check(documents, Schemas(crds if crds and crds.is_dir() else None))
    except (Unreadable, OSError) as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    for line in unknown:
        print(f"not checked: {line}")
    for line in wrong:
        print(line)
    print(f"{len(documents)} documents, {len(wrong)} wrong, {len(unknown)} without a schema")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
