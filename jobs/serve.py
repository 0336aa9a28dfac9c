"""Serve a model behind the OpenAI protocol: python jobs/serve.py [--model RUN|HF_FOLDER|random:nano] [--no-ray].

Without arguments: the newest run, on Ray Serve. Prints URL and a curl line; SIGTERM and Ctrl-C let requests finish."""

import _path
import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence

from lemur_ray.cluster import connection
from lemur_ray.host.home import lemur_home
from lemur_ray.rollout.evaluation_folder import EvaluationError
from lemur_ray.rollout.endpoints.policy_target import resolve_model
from lemur_ray.serve.http.api_key import CURL_KEY, KEY_VARIABLE, server_key_digest
from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.needs import check_job


def main(argv: Sequence[str] | None = None) -> int:
    job, stop = ServeJob.parse(argv), threading.Event()
    try:
        digest = server_key_digest(job.host, job.api_key or os.environ.get(KEY_VARIABLE, ""))
        with _served(job, digest, stop, resolve_model(job.model, lemur_home() / "runs")) as url:
            for number in (signal.SIGTERM, signal.SIGINT):  # now: Ray sets handlers of its own when it starts
                signal.signal(number, lambda *_: stop.set())
            print(f"serving at {url}\n  curl {CURL_KEY if digest else ''}{url}/models\n  chat {url[:-2]}", flush=True)
            stop.wait()
    except (EvaluationError, ValueError, OSError, RuntimeError) as error:
        return _path.fail("serve", error)
    return 0


@contextlib.contextmanager
def _served(job: ServeJob, digest: bytes, stop: threading.Event, model: str) -> Iterator[str]:
    """Context manager that runs the server; yields its base URL."""
    check_job(model, job, connection.available_devices(this_machine=job.no_ray, log_to_driver=False))
    with contextlib.ExitStack() as stack:
        if job.no_ray:
            from lemur_ray.serve.loading import load_text_engine
            from lemur_ray.serve.http.uvicorn_server import running
            from lemur_ray.text.templates.template_files import template_source

            template = template_source(job.chat_template)
            served = load_text_engine(model, job.engine, job.name, job.follow_s, template=template)
            yield stack.enter_context(running(served, job.host, job.port, key_digest=digest, on_death=stop.set))
            if served.engine.failure is not None:
                raise RuntimeError("the engine died: the log above says why; start the server again")
            return
        from lemur_ray.serve.on_ray import deployments, serve_cluster  # first: its messages go to the log, too

        connection.connect(log_to_driver=False)
        stack.callback(serve_cluster.shutdown)
        yield deployments.serve_job(job, model, digest)


if __name__ == "__main__":
    _path.run(main)
