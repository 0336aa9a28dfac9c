"""MultiPL-E's verdicts on whole programs: python multipl_e_peer.py ASKED.json FOLDER, in any Python 3.11.

``FOLDER`` has the package ``multiple_metrics``, the evaluators of MultiPL-E (one ``eval_<language>.py`` each) as
bigcode-evaluation-harness packs them. ``ASKED``: a list of ``language`` and ``program``. Prints a JSON list of
verdicts (status OK). Programs run without a sandbox. Debian's places differ from those of MultiPL-E's image: mcs stands
for csc, and /usr/share/java has javatuples.
"""

import importlib
import json
import os
import pathlib
import sys
import tempfile

MODULES = {"js": "javascript"}
JAR = pathlib.Path("/usr/share/java/javatuples.jar")


def main(path: str, folder: str) -> None:
    sys.path.insert(0, folder)
    verdicts = []
    with tempfile.TemporaryDirectory() as tools:
        compiler = pathlib.Path(tools) / "csc"
        compiler.write_text('#!/bin/sh\nexec mcs "$@"\n')
        compiler.chmod(0o755)
        os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
        for one in json.loads(pathlib.Path(path).read_text()):
            language = one["language"]
            module = importlib.import_module(f"multiple_metrics.eval_{MODULES.get(language, language)}")
            if language == "java":
                module.Path = lambda path: JAR
            with tempfile.TemporaryDirectory() as place:
                file = pathlib.Path(place) / f"program.{language}"
                file.write_text(one["program"], encoding="utf-8")
                try:
                    verdicts.append(module.eval_script(file)["status"] == "OK")
                except Exception as error:
                    verdicts.append(f"{type(error).__name__}: {error}")
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
