"""Build the documentation site and serve it on this machine: python jobs/docs.py [--port N] [--out DIR]."""

import _path

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.config import parse
from lemur_ray.host.documentation import DocumentationError, build
from lemur_ray.host.file_server import server
from lemur_ray.host.home import resolve_out
from lemur_ray.host.ports import unusable


@dataclass(frozen=True)
class DocsJob:
    """Serve the documentation: quickstart, guides, reference of Python names, flags and files, decisions."""

    port: int = 8008
    """Port of the site. 0: any free one."""
    host: str = "127.0.0.1"
    """Address to listen at."""
    out: str = ""
    """Write the site into this folder, new or of an earlier site, and serve nothing; relative to $LEMUR_HOME."""


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(DocsJob, argv, prog="docs.py")
    try:
        if job.out:
            return _path.done(str(build(Path(resolve_out(job.out, "")))))
        if reason := unusable(job.host, job.port):
            raise DocumentationError(f"{job.host} port {job.port}: {reason}; choose another with --port")
        with tempfile.TemporaryDirectory(prefix="lemur-docs-") as folder:
            build(Path(folder))
            with server(Path(folder), job.host, job.port) as listening:
                print(f"http://{job.host}:{listening.server_address[1]}/ until Ctrl-C", flush=True)
                listening.serve_forever()
    except (DocumentationError, OSError) as error:
        return _path.fail("docs", error)
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    _path.run(main)
