"""lm-eval against a server and in process, on the same weights: python lm_eval_client.py URL FOLDER. Prints JSON."""

import json
import random
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI

WORDS = ("the a cat dog def return x = 1 2 ( ) : sat on mat if else é 中 " + "\n").split(" ")


def main(url: str, folder: str) -> None:
    draw = random.Random(0)

    def text(most: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, most)))

    header = text(90)
    pairs = [(f"{header} {text(30)}", f" {text(8)}") for _ in range(24)] + [("", "hello world")]
    until = {"until": ["\n\n"], "max_gen_toks": 12, "do_sample": False}
    common = {"model": "tiny", "num_concurrent": 1, "max_length": 1024}
    server = LocalCompletionsAPI(base_url=f"{url}/completions", tokenizer=folder, **common)
    remote = LocalCompletionsAPI(base_url=f"{url}/completions", tokenizer_backend="remote", **common)
    local = HFLM(pretrained=folder, dtype="float32", device="cpu", batch_size=1, max_length=1024)
    answers = {}
    for name, model in (("server", server), ("remote", remote), ("local", local)):
        scored = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
        written = [Instance("generate_until", {}, (pair[0], until), i) for i, pair in enumerate(pairs[:4])]
        answers[name] = {"loglikelihood": model.loglikelihood(scored), "texts": model.generate_until(written)}
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
