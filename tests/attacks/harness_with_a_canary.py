"""A harness of its own process with a secret in environment, arguments, descriptors and data folder (row 12).

python harness_with_a_canary.py BACKEND FOLDER CANARY    prints everything that can be seen from inside, as JSON
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from lemur_ray.sandbox.sandbox import SandboxSpec, open_sandbox

LOOK = """
for p in /proc/[0-9]* /proc/self; do
  for f in environ cmdline mounts mountinfo status maps comm cgroup; do
    echo "== $p/$f"; cat $p/$f 2>&1 | tr '\\0' '\\n'
  done
  ls -la $p/fd $p/root/ $p/cwd 2>&1
done
cat /proc/keys /proc/mounts 2>&1; env; set
ls -laR /work /tmp /home /root /run /etc /var /mnt /opt /dev --ignore=python 2>/dev/null
find / -xdev -type f -size -64k 2>/dev/null | head -500 | xargs cat 2>/dev/null
"""


def main() -> None:
    backend, folder, _ = sys.argv[1:]
    gold = os.open(Path(folder) / "gold.txt", os.O_RDONLY)
    os.set_inheritable(gold, True)
    spec = SandboxSpec(tree=Path(folder) / "task", run="canary")
    sandbox = open_sandbox(spec, backend)
    limits = replace(spec.limits, output_bytes=8 * 2**20)
    seen = sandbox.exec(["bash", "-c", LOOK], limits=limits)
    first = sandbox.exec(["sh", "-c", "cat /proc/1/environ | wc -c"])
    fds = sandbox.exec(["sh", "-c", "ls /proc/$$/fd"])
    sandbox.close()
    print(json.dumps({"seen": seen.out + seen.err, "first": first.out, "fds": fds.out}))


if __name__ == "__main__":
    main()
