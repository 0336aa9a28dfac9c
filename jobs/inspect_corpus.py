"""Ask a corpus for the documents of its rows, remove documents, free space, or write its page."""

import _path
import json
from collections.abc import Sequence
from dataclasses import dataclass

import tyro
from lemur_ray.config import parse
from lemur_ray.corpus.destinations.garbage import collect_garbage
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.provenance.lookup import documents_of_rows, parse_row, to_json
from lemur_ray.corpus.provenance.removal import Removal, remove_documents
from lemur_ray.corpus.rows import RowSetError
from lemur_ray.host.home import resolve_out
from lemur_ray.report.inputs import ReportError
from lemur_ray.report.pages.pretraining.corpus_page import write_corpus_page


@dataclass(frozen=True)
class Arguments:
    """What to ask of a corpus; without an option, its page is written."""

    corpus: tyro.conf.Positional[str]
    """Folder or URL of the corpus."""
    rows: tuple[str, ...] = ()
    """SOURCE:NUMBER of rows; prints a JSON line a row with its documents, their licences and origins."""
    remove: str = ""
    """YAML file with lists of ids, origins or licences; the corpus without these documents is written to --out."""
    out: str = ""
    """Folder or URL for the new version."""
    gc: bool = False
    """Remove outputs of build steps that this corpus does not use; a later build makes again what it needs of them."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(Arguments, argv, prog="inspect_corpus.py")
    corpus, unmatched = resolve_out(arguments.corpus, ""), set[str]()
    try:
        for name, number in map(parse_row, arguments.rows):
            (documents,) = documents_of_rows(corpus, name, [number])
            print(to_json(name, number, documents))
        if arguments.remove:
            if not arguments.out:
                raise CorpusError("--remove: expected --out with a folder or URL for the new version")
            old, corpus = corpus, resolve_out(arguments.out, "")
            removal = Removal.read(resolve_out(arguments.remove, ""))
            manifest = remove_documents(old, corpus, removal, unmatched=unmatched)
            print(json.dumps({"corpus": corpus, "removed": manifest["removed"]}))
        if arguments.gc:
            print(json.dumps(dict(zip(("files_removed", "bytes_removed"), collect_garbage(corpus), strict=True))))
        if not arguments.rows and not arguments.gc:
            print(json.dumps({"corpus": corpus, "page": write_corpus_page(corpus)}))
    except (CorpusError, IndexError, OSError, ReportError, RowSetError, ValueError) as error:
        return _path.fail("inspect_corpus", error)
    return 1 if unmatched else 0


if __name__ == "__main__":
    _path.run(main)
