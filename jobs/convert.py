"""Convert a model: python jobs/convert.py --model RUN --out FOLDER [--to hf|run] [--dtype bfloat16].

Hugging Face format out of a run (``transformers`` loads it), or a run folder out of a Hugging Face model. Prints the
absolute path of what it wrote.
"""

import _path  # noqa: F401

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lemur_ray.config import parse
from lemur_ray.home import find_model, resolve_out
from lemur_ray.train.convert import Convert, convert


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(Convert, argv, prog="convert.py")
    from lemur_ray.model.load import ModelNotFound
    from lemur_ray.model.tensor_files import TensorFileError

    try:
        job = replace(job, model=find_model(job.model))
        print(f"wrote {convert(job, Path(resolve_out(job.out, '')))}")
    except (ModelNotFound, TensorFileError, ValueError, OSError) as error:
        print(f"convert: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
