"""Build a token corpus from this machine's software or from ``--source``, ``--sources``. Prints one JSON line last.

python jobs/build_corpus.py --source stack:code:/data/stack --source wiki:text:/data/wiki.jsonl.gz --out corpus/mine"""

import _path
import json
from collections.abc import Sequence
from dataclasses import dataclass
from lemur_ray.cluster import connection
from lemur_ray.config import parse, topics
from lemur_ray.host.home import resolve_out
from lemur_ray.corpus.config import Corpus, CorpusConfig
from lemur_ray.evaluation.demonstration_data import corpus_inputs
from lemur_ray.report.pages.pretraining.corpus_page import write_corpus_page


@dataclass(frozen=True)
class Arguments:
    """Build a corpus of packed token rows, or use the one that exists."""

    HELP = topics("corpus")
    config: Corpus = CorpusConfig()
    out: str = ""
    """Folder of the corpus. Default: $LEMUR_HOME/corpus/embedded."""
    overwrite: bool = False
    """Replace a complete corpus of another configuration, or build it again for files that have changed."""
    allow_failed: int = 0
    """Number of parts that may be left out because a file cannot be read to its end."""
    workers: int | None = None
    """Maximum concurrent tasks. None: one per core of the cluster; 0: all in this process, without Ray."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(Arguments, argv, prog="build_corpus")
    out = resolve_out(arguments.out, "corpus/embedded")
    if arguments.workers != 0:
        connection.connect(with_data=True)
    from lemur_ray.corpus.build import build
    from lemur_ray.corpus.manifest import CorpusError
    from lemur_ray.corpus.rows import RowSetError

    try:
        options = {name: getattr(arguments, name) for name in ("overwrite", "workers", "allow_failed")}
        manifest = build(**corpus_inputs(arguments.config), folder=out, **options)
        page = write_corpus_page(out, earlier=False)
    except (CorpusError, RowSetError, OSError) as error:
        return _path.fail("build_corpus", error)
    for entry in (*manifest["sources"], *manifest["heldout"]):
        print(f"{entry['name']:>14} {entry['kind']:>5} {entry['rows']:>8,} rows {entry['tokens']:>12,} tokens")
    result = {key: manifest[key] for key in ("vocab_size", "seq_len", "fill", "asked", "built", "counts", "missing")}
    result["tokens"] = {entry["name"]: entry["tokens"] for entry in manifest["sources"]}
    print(json.dumps({"corpus": out, "page": page, **result}))
    return 0


if __name__ == "__main__":
    _path.run(main)
