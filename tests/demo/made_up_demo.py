"""jobs/demo.py on a made-up head with quick made-up jobs: python made_up_demo.py well|failing|endless FOLDER.

Needs the repository and its jobs/ on PYTHONPATH.

well: the job pretrain waits at half for a file FOLDER/go. endless: it waits for ever. failing: tuning fails.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import demo

from lemur_ray.cluster.demo.head import DemoFailed, LineCallback, end_head, run_command
from lemur_ray.cluster.demo.pipeline import run

mode, folder = sys.argv[1:]
WAIT = "sleep 600" if mode == "endless" else f"until [ -e {folder}/go ]; do sleep 0.1; done"
NOISE = "for i in 1 2 3 4 5 6 7 8 9; do echo '(raylet pid=7) noise of Ray'; done"
STEP = "echo '(Worker pid=9) step {0}/100  {0}%  loss 3.2{0}  1,234 tokens/s  0.1 s/step  0:09 left'"
GAME = "echo 'alfworld/text {0}/20 done, {1} solved, 4 in flight, 1.90/s, 0:08 left, 3k tokens in, 1k out' >&2"
SCRIPTS = {
    "build_corpus": [NOISE, 'echo \'{"corpus": "x", "tokens": {"a": 1500000, "b": 900000}}\''],
    "pretrain": [NOISE, STEP.format(10), STEP.format(50), WAIT, STEP.format(90), "echo '{\"loss\": 3.125}'"],
    "instruct": ["echo a first line", "echo 'instruct: no such table'; exit 3"]
    if mode == "failing"
    else [*(STEP.format(i) for i in range(1, 101)), "echo '{\"loss\": 0.5}'"],
    "agent_eval": [*(GAME.format(i, i - 1) for i in range(1, 21)), 'echo \'{"n": 20, "scored": 20, "solved": 19}\''],
    "report": ["echo missing: nothing"],
}


class MadeUp:
    """Runs shell lines in place of jobs."""

    def __init__(self) -> None:
        self.env = {**os.environ, "MADE_UP_TOKEN": f"token-of-{folder}"}

    def submit(self, job: str, *args: str, on_line: LineCallback = print) -> None:
        status = run_command(["sh", "-c", "\n".join(SCRIPTS[job])], self.env, on_line)
        if status:
            raise DemoFailed(f"jobs/{job}.py ended with status {status}")

    @contextlib.contextmanager
    def served(self, *args: str, on_line: LineCallback = print) -> Iterator[str]:
        yield "http://127.0.0.1:1/v1"
        on_line("step 1/2 said after the server is up")


@contextlib.contextmanager
def made_up_head(num_cpus: int) -> Iterator[MadeUp]:
    head = MadeUp()
    process = subprocess.Popen(["sleep", "600"], env=head.env, start_new_session=True)
    try:
        yield head
    finally:
        end_head(process, head.env["MADE_UP_TOKEN"])


demo.run = partial(run, start_head=made_up_head)
sys.exit(demo.main([]))
