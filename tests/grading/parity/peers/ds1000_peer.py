"""DS-1000's verdicts: python ds1000_peer.py ASKED.json FOLDER LIBRARIES, in any Python 3.11.

``FOLDER`` has its authors' ``execution.py``, ``LIBRARIES`` the packages. ``ASKED``: a list of ``code_context`` and
``text``, joined to a program as the authors' script does. Prints a JSON list of verdicts. Programs run without a
sandbox.
"""

import importlib
import json
import os
import sys
from pathlib import Path


def main(path: str, folder: str, libraries: str) -> None:
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", MPLBACKEND="Agg")
    sys.path[:0] = [libraries, folder]
    import execution

    for library in ("matplotlib.pyplot", "pandas", "scipy.stats", "sklearn.linear_model"):  # once, not in each child
        importlib.import_module(library)
    verdicts = []
    for one in json.loads(Path(path).read_text()):
        context, code = one["code_context"], one["text"]
        program = f"{context}\ncode = {code!r}\ntest_execution(code)\n"
        program += "test_string(code)\n" if "test_string(" in context else "\n"
        verdicts.append(execution.check_correctness(program, timeout=120, completion_id=0)["passed"])
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
