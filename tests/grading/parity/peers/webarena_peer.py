"""WebArena's verdicts on answers and addresses: python webarena_peer.py ASKED.json FOLDER, in a Python with nltk.

``FOLDER`` is a checkout of web-arena-x/webarena. ``ASKED``: a list of ``record`` (a task), ``answer`` and ``url``. Its
string_match and url_match evaluators are run; a judge in their place says yes if the answer holds the reference. Prints
a JSON list of verdicts. Its browser is not imported. nltk cuts an answer into words as one sentence, for which it needs
no data of its own.
"""

import functools
import json
import sys
import types
from pathlib import Path


def stand_in(name: str, **members: object) -> None:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def holds(pred: str, reference: str, question: str) -> float:
    return float(reference.lower() in pred.lower())


def main(path: str, folder: str) -> None:
    import nltk.tokenize

    nltk.tokenize.word_tokenize = functools.partial(nltk.tokenize.word_tokenize, preserve_line=True)
    stand_in("beartype", beartype=lambda function: function)
    stand_in("playwright")
    stand_in("playwright.sync_api", CDPSession=object, Page=object)
    stand_in("browser_env")
    stand_in("browser_env.actions", Action=dict)
    stand_in("browser_env.utils", StateInfo=dict)
    names = ("gitlab_get_project_memeber_role", "reddit_get_post_url", "shopping_get_latest_order_url")
    names += ("shopping_get_sku_latest_review_author", "shopping_get_sku_latest_review_rating", "PseudoPage")
    sys.path.insert(0, folder)
    stand_in("evaluation_harness", __path__=[f"{folder}/evaluation_harness"])
    judges = {"llm_fuzzy_match": holds, "llm_ua_match": holds}
    stand_in("evaluation_harness.helper_functions", **dict.fromkeys(names, object), **judges)
    from evaluation_harness.evaluators import StringEvaluator, URLEvaluator

    verdicts: list[bool | str] = []
    for one in json.loads(Path(path).read_text()):
        config = Path("task.json")
        config.write_text(json.dumps(one["record"]))
        page, score = types.SimpleNamespace(url=one["url"]), 1.0
        try:
            for kind in one["record"]["eval"]["eval_types"]:
                if kind == "string_match":
                    score *= StringEvaluator()([{}, {"answer": one["answer"]}], config, page, None)
                elif kind == "url_match":
                    score *= URLEvaluator()([{}, {"answer": one["answer"]}], config, page, None)
            verdicts.append(score == 1.0)
        except Exception as error:
            verdicts.append(f"it raises {type(error).__name__}")
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(*sys.argv[1:])
