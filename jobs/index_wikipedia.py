"""Build the local full-text index for MINT's search tool from a Wikipedia dump."""

import _path

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.mint.search.wikipedia_index import build_index
from lemur_ray.config import parse
from lemur_ray.host.home import resolve_out


@dataclass(frozen=True)
class IndexConfig:
    """Titles and lead sections of a dump, in one SQLite file."""

    dump: str
    """A MediaWiki pages-articles XML (plain, .gz, .bz2) or lines of title and text (.jsonl, .jsonl.gz)."""
    out: str = ""
    """File of the index. Empty: LEMUR_HOME/wikipedia/index.sqlite."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code. 0: the index is built. 1: the dump could not be read. argv: words of the command line, by default
    those of this process."""
    config = parse(IndexConfig, argv)
    out = Path(resolve_out(config.out, "wikipedia/index.sqlite"))
    try:
        count = build_index(Path(config.dump), out)
    except (OSError, ValueError) as error:
        return _path.fail("index_wikipedia", error)
    print(f"{out}: {count:,} articles; ask it with --wikipedia index:{out}", flush=True)
    return 0


if __name__ == "__main__":
    _path.run(main)
