"""Check manifests without a cluster: python cluster/check.py [FILE|FOLDER ...] [--crds FOLDER].

With no file: all of this folder. Schemas of KubeRay, Kueue and Prometheus come from the CustomResourceDefinitions in
--crds (from a cluster: kubectl get crd -o json > crds/crds.json); where there is none, a line says so and only
the rules are checked (--rules lists them). Names in your files may be of objects in them, in this folder, or of
`kubectl create` commands, also in comments. Exit code 1 where something is wrong.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from cluster.checking import availability, clusters, isolation, references, surroundings, workloads  # noqa: E402
from cluster.checking.documents import Document, Unreadable, read  # noqa: E402
from cluster.checking.rules import RULES, Breach  # noqa: E402
from cluster.checking.schemas import SchemaMissing, Schemas  # noqa: E402

ACROSS_DOCUMENTS = (references, workloads, isolation, availability, surroundings)
"""Modules of rules, each with ``breaches(document, documents, context)``: all documents that are checked, in order, and
other existing ones."""


def files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the manifests, Markdown pages and dashboards among ``paths``; folders are searched recursively."""
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (p for p in inside if p.suffix in (".yaml", ".yml", ".md") or p.name == "grafana.json" or p == path)


def documents_of(path: Path) -> list[Document]:
    """The Kubernetes objects, or the Grafana dashboard, of a file. Raises Unreadable."""
    if path.suffix != ".json":
        return read(path, is_template=path.resolve().is_relative_to(HERE))
    try:
        return [surroundings.board(path.read_text(encoding="utf-8"), path.name)]
    except ValueError as error:
        raise Unreadable(f"{path} is no JSON: {error}") from error


@cache
def shipped() -> tuple[Document, ...]:
    """The documents of this folder, and the objects that commands in it make."""
    paths = list(files([HERE]))
    made = [one for path in paths for one in references.created_by_commands(path.read_text(encoding="utf-8"))]
    return (*(document for path in paths for document in documents_of(path)), *made)


def breaches(
    documents: Sequence[Document], existing: Sequence[Document] = ()
) -> Iterator[tuple[Document | None, Breach | str]]:
    """Yield (document, breach) for the rules that documents break, alone or with ``existing`` and the shipped ones.
    A field of an unreadable type ends the rules of its document, or module, with one message (document or None)."""
    own, edited = {references.name_of(document) for document in documents}, {document.where for document in documents}
    others = (one for one in shipped() if one.where not in edited and references.name_of(one) not in own)
    context = [*existing, *others]
    for document in documents:
        yield from _readable(document, zip(itertools.repeat(document), clusters.breaches(document)))
    for module in ACROSS_DOCUMENTS:
        results = ((one, breach) for one in documents for breach in module.breaches(one, documents, context))
        yield from _readable(None, results)


def _readable(
    document: Document | None, results: Iterator[tuple[Document, Breach]]
) -> Iterator[tuple[Document | None, Breach | str]]:
    try:
        yield from results
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        yield document, f"a field is not of the type that the rules read, the rest was not looked at: {error}"


def check(
    documents: Sequence[Document], schemas: Schemas, existing: Sequence[Document] = ()
) -> tuple[list[str], list[str]]:
    """Check documents by schemas and rules: (error messages, messages about documents without a schema)."""
    wrong, unknown = [], []
    for document in (document for document in documents if document.kind != "Dashboard"):
        try:
            wrong += [f"{document}: {sentence}" for sentence in schemas.problems(document)]
        except SchemaMissing as missing:
            unknown.append(f"{document}: {missing}")
    wrong += [f"{document or 'all together'}: {breach}" for document, breach in breaches(documents, existing)]
    return wrong, unknown


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
        paths = list(files(options.files))
        documents = [document for path in paths for document in documents_of(path)]
        existing = [one for path in paths for one in references.created_by_commands(path.read_text(encoding="utf-8"))]
        wrong, unknown = check(documents, Schemas(crds if crds and crds.is_dir() else None), existing)
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
