"""Convert a model: python jobs/convert.py --model RUN --out FOLDER [--to hf|run] [--dtype bfloat16].

From a run to Hugging Face format (which ``transformers`` loads), or from a Hugging Face model to a run folder; folders
may be gs:// or s3:// URIs. Prints the absolute path of the new folder."""

import _path

from collections.abc import Sequence
from dataclasses import replace

from lemur_ray.config import parse
from lemur_ray.host.home import find_model, resolve_out
from lemur_ray.weights.convert import Convert, convert


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(Convert, argv, prog="convert.py")
    import jax

    from lemur_ray.weights.open_model import MODEL_ERRORS

    jax.config.update("jax_platforms", "cpu")  # an accelerator here may be another's, and is of no use for this
    try:
        job = replace(job, model=find_model(job.model, buckets=True))
        print(f"wrote {convert(job, resolve_out(job.out, ''))}")
    except (*MODEL_ERRORS, OSError, ImportError) as error:
        return _path.fail("convert", error)
    return 0


if __name__ == "__main__":
    _path.run(main)
