r"""MATH-500 (Lightman et al. 2023, arXiv 2305.20050): 500 problems of MATH's test set, answered in ``\boxed``.

Data: ``math_500/test.jsonl`` of ``HuggingFaceH4/MATH-500``. Strict: the answer equals the reference as MATH's authors
normalise both (Hendrycks et al. 2021, ``math_equivalence``). Flexible: also equal numbers in other forms."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from envs.outside_data import SETS
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded, QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows

SOURCES = SETS["math_500"]
_NAMES = ("math_500/test.jsonl", "math_500/test.parquet")
_HELP = "MATH-500: HuggingFaceH4/MATH-500 on the Hub; MIT; python jobs/fetch_data.py math_500"
_ORDER = r"Reason step by step, and put the final answer in \boxed{}."
_ANNOUNCED = re.compile(r"(?:final\s+)?answer\s*(?:is|:)\s*(?:\$+)?\s*(.+?)\s*(?:\$+)?\s*\.?\s*(?:\n|$)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?")
_FRACTION = re.compile(r"([-+]?)\\frac\{(-?\d+)\}\{(-?\d+)\}")


@dataclass(frozen=True)
class Math500Options:
    """Command-line options of MATH-500: the highest level of difficulty, 1 to 5."""

    max_level: int = 5
    """Highest difficulty of the problems, 1 to 5."""


def _load(options: Math500Options, request: EvaluationRequest) -> Iterator[Task]:
    path = find_file(request.data_folder("what MATH-500 asks"), _NAMES, _HELP)
    digest = files_digest(path)
    for number, row in enumerate(read_rows(path, ("problem", "answer", "subject", "level"))):
        if int(row["level"]) > options.max_level:
            continue
        details = QuestionDetails(gold=rf"\boxed{{{row['answer']}}}", data=digest, cluster=f"level {row['level']}")
        name, prompt = f"math_500/{row.get('unique_id', number)}", f"{row['problem']}\n\n{_ORDER}"
        answer = str(row["answer"])
        yield question("math_500", name, str(row["subject"]), prompt, f"{__name__}:grade", answer, details)


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the last box, or without a box the last "answer is", has an answer that equals the reference."""
    reference, boxed = options["reference"], last_boxed(reply)
    announced = _ANNOUNCED.findall(reply)
    answer = boxed if boxed is not None else announced[-1] if announced else None
    strict = float(boxed is not None and normal_form(boxed) == normal_form(reference))
    score = max(strict, float(answer is not None and is_equal(answer, reference)))
    return Graded(score, answer, scores={STRICT: strict, FLEXIBLE: score})


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` or ``\fbox{...}``; None without one, or if its braces are not balanced."""
    starts = [match.end() for match in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)]
    if not starts:
        return None
    depth = 1
    for place in range(starts[-1], len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[starts[-1] : place]
    return None


def is_equal(answer: str, reference: str) -> bool:
    """Whether two answers in LaTeX have the same ``normal_form``, are equal numbers, or are lists of equal elements."""
    ours, theirs = (normal_form(_bare(text)) for text in (answer, reference))
    if ours == theirs:
        return True
    parts = [text.strip("()[]").split(",") for text in (ours, theirs)]
    if ours[:1] in "([" and ours[:1] == theirs[:1] and ours[-1:] == theirs[-1:] and len(parts[0]) == len(parts[1]) > 1:
        return all(_same_number(*pair) or pair[0] == pair[1] for pair in zip(*parts, strict=True))
    return _same_number(ours, theirs)


def _bare(text: str) -> str:
    r"""An answer without dollar signs, ``\text`` around words, and a final full stop."""
    text = re.sub(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}", r"\1", text.strip().strip("*$ ").rstrip("."))
    return text.replace(r"\,", "").replace(r"\;", "").replace("{,}", ",")


def _same_number(one: str, other: str) -> bool:
    values = [_number(one), _number(other)]
    return None not in values and values[0] == values[1]


def _number(text: str) -> Fraction | None:
    """Value of a decimal number, also with thousands separators, or of a fraction; None for any other text."""
    if match := _FRACTION.fullmatch(text):
        value = Fraction(int(match[2]), int(match[3])) if int(match[3]) else None
        return -value if value is not None and match[1] == "-" else value
    digits = text.replace(",", "") if _NUMBER.fullmatch(text) else ""
    return Fraction(digits) if any(char.isdigit() for char in digits) else None


_REMOVED = (r"\left", r"\right", r"^{\circ}", r"^\circ", r"\$", r"\%")


def normal_form(text: str) -> str:
    r"""An answer as MATH's authors compare it: without units, degrees, percent, ``\left`` and blanks; one form of
    fractions and roots."""
    text = text.replace("\n", "").replace(r"\!", "").replace("\\\\", "\\").replace("tfrac", "frac")
    text = text.replace("dfrac", "frac")
    for removed in _REMOVED:
        text = text.replace(removed, "")
    if text.count(r"\text{ ") == 1:
        text = text.split(r"\text{ ")[0]
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    text = f"0{text}" if text.startswith(".") else text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", text).replace(" ", "")
    text = _with_braces(text)
    text = r"\frac{1}{2}" if text == "0.5" else text
    return re.sub(r"(-?\d+)/(-?\d+)", r"\\frac{\1}{\2}", text) if _is_ratio(text) else text


def _is_ratio(text: str) -> bool:
    sides = text.split("/")
    return len(sides) == 2 and all(re.fullmatch(r"-?(?:0|[1-9]\d*)", side) and side != "-0" for side in sides)


def _with_braces(text: str) -> str:
    r"""``\frac12``, ``\frac1{2}`` with both arguments in braces; the text itself if a fraction ends too soon."""
    first, *rest = text.split(r"\frac")
    for part in rest:
        if part.startswith("{"):
            first += rf"\frac{part}"
        elif len(part) < 2:
            return text
        else:
            second = part[1] if part[1] == "{" else f"{{{part[1]}}}"
            first += rf"\frac{{{part[0]}}}{second}{part[2:]}"
    return first


BENCHMARKS = {
    "": Benchmark(
        Math500Options, _load, {"full": 4096, "brief": 4096}, needs=first_task_loads(_load), sources=SOURCES,
        has_hints=True, details=BenchmarkDetails("500", file_patterns=_NAMES, protocol=published_protocol("math_500")),
    )
}  # fmt: skip
