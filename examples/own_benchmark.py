"""Your own benchmark in one file: tasks, a grader, and two policies that are compared on the same tasks.

python examples/own_benchmark.py
"""

from dataclasses import dataclass

import lemur_ray as lr
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.benchmarks.question import Graded, QuestionDetails, question


@dataclass(frozen=True)
class Options:
    """Every field is an option of ``lr.evaluate`` and a flag of ``lemur eval``."""

    largest: int = 9


def load(options: Options, request: EvaluationRequest):
    """Yield the tasks: benchmark, id, category, question, grader, reference answer."""
    for n in range(1, options.largest + 1):
        kind = "small" if n < 5 else "large"
        gold = str(2 * n)
        details = QuestionDetails(gold=gold)
        yield question("doubles", f"doubles/{n}", kind, f"{n} + {n} = ?", f"{__name__}:grade", gold, details)


def grade(reply, options):
    """Score a reply between 0 and 1; the second value is the answer as it was understood."""
    return Graded(float(reply.strip() == options["reference"]), reply.strip())


DOUBLES = Benchmark(Options, load, {"full": 16, "brief": 16}, has_hints=True)


def always_eight(messages):
    """Reply the same to every question."""
    return "8"


if __name__ == "__main__":
    for policy in ("expert", always_eight):
        result = lr.evaluate(policy, f"{__name__}:DOUBLES", largest=6, out="examples/doubles")
        print(f"{result.rows()[-1]['policy']}: solved {result.headline['solved']} of {result.headline['n']}")
    print("the page, with both side by side:", result.page)
