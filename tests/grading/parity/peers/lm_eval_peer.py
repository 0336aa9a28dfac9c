"""lm-eval's own filters and metrics on stored replies: python lm_eval_peer.py ASKED.json, in a Python with lm-eval.

``ASKED``: ``tasks`` (name -> ``include``, of lm-eval's tasks, and ``files``, the data by split) and ``replies``
(``task``, ``row`` of its data, ``text``).
Prints a JSON list in the order of the replies: verdict by name of the filter.
A reply is cut at the task's stop sequences first, as lm-eval's models do.
"""

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import lm_eval
import yaml
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

OWN = Path(lm_eval.__file__).parent / "tasks"


def loaded(tasks: dict) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        for name, task in tasks.items():
            body = {"include": str(OWN / task["include"]), "task": name, "dataset_path": "json", "dataset_name": None}
            body |= {"dataset_kwargs": {"data_files": task["files"]}, "tag": [], "test_split": "test"}
            (Path(folder) / f"{name}.yaml").write_text(yaml.safe_dump(body))
        return TaskManager(include_path=folder, include_defaults=False).load_task_or_group(list(tasks))


def verdicts_of(task: object, replies: list[dict]) -> list[dict[str, bool]]:
    docs = list(task.test_docs())
    stops = task.config.generation_kwargs["until"]
    instances = []
    for number, reply in enumerate(replies):
        text = reply["text"]
        for stop in stops:
            text = text.partition(stop)[0]
        instances.append(Instance("generate_until", docs[reply["row"]], ("", {}), number, resps=[text]))
    verdicts: list[dict[str, bool]] = [{} for _ in replies]
    for one in task._filters:
        one.apply(instances)
        for instance, verdict in zip(instances, verdicts, strict=True):
            metrics = task.process_results(instance.doc, [instance.filtered_resps[one.name]])
            verdict[one.name] = bool(metrics["exact_match"])
    return verdicts


def main(path: str) -> None:
    asked = json.loads(Path(path).read_text())
    by_task = defaultdict(list)
    for place, reply in enumerate(asked["replies"]):
        by_task[reply["task"]].append(place)
    tasks = loaded(asked["tasks"])
    verdicts = [{}] * len(asked["replies"])
    for name, places in by_task.items():
        for place, verdict in zip(places, verdicts_of(tasks[name], [asked["replies"][n] for n in places]), strict=True):
            verdicts[place] = verdict
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
