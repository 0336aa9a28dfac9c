"""Build the instruction table of the paper's Table 1 and print its counts beside the paper's; trains nothing."""

import _path
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated
import tyro
from lemur_ray.cluster import connection
from lemur_ray.config import parse, topics
from lemur_ray.host.home import lemur_home, outside_data, resolve_out
from lemur_ray.instruct.config import Sets, SetsConfig
from lemur_ray.instruct.table_1 import table_1_files, table_tokenizer
from lemur_ray.outside_data.source import FetchError


@dataclass(frozen=True)
class TableJob:
    """Fetch the public sets of Table 1, or use those that are there, and build their instruction table."""

    HELP = topics("instruct-table")
    out: str = ""
    """Path or URI of the folder for the table. Default: $LEMUR_HOME/instruct/table1."""
    tokenizer: str = ""
    """Tokenizer, or folder of a model with one, that counts and encodes the tokens. Empty: bytes count as tokens."""
    seq_len: int = 2048
    """Tokens per packed row; longer conversations are cut on the right."""
    data: str = ""
    """Folder of outside data sets (default $LEMUR_DATA, else LEMUR_HOME/data)."""
    accept: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Accept the terms of use of this family of data sets. May be given several times."""
    fetch: bool = True
    """Fetch the sets for which no file is given. False: use those that are in the data folder."""
    workers: int | None = None
    """Maximum concurrent tasks. None: one per core of the cluster; 0: all in this process, without Ray."""
    sets: Sets = SetsConfig()


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(TableJob, argv, prog="instruct_table.py")
    data = outside_data(job.data or os.environ.get("LEMUR_DATA", "")) or lemur_home() / "data"
    from lemur_ray.corpus.manifest import CorpusError
    from lemur_ray.instruct.pipeline import build_sets

    try:
        tokenizer = table_tokenizer(job.sets, resolve_out(job.tokenizer, "") if job.tokenizer else "")
        sets = replace(job.sets, **table_1_files(job.sets, data, job.accept, job.fetch, print))
        if job.workers != 0:
            connection.connect()
        out = resolve_out(job.out, "instruct/table1")
        table, manifest = build_sets(sets, tokenizer, out, seq_len=job.seq_len, workers=job.workers)
    except (CorpusError, FetchError, ImportError, OSError, ValueError) as error:
        return _path.fail("instruct_table", error)
    print(json.dumps({"table": str(table), "statistics": manifest["statistics"]}))
    return 0


if __name__ == "__main__":
    _path.run(main)
