"""Parses the command line of a suite: common flags apply to every benchmark, other flags to those that have them.

Options without a flag have the paper's values (``BenchmarkDetails.settings``)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lemur_ray.benchmarks.discovery import find
from lemur_ray.config.config_file import FLAG as CONFIG
from lemur_ray.evaluation.suites.tables import Part, left_out, options_of_part, parts_of
from lemur_ray.host.home import resolve_out
from lemur_ray.rollout.benchmark_tasks import arguments_for, option_names, parse_one_of_many
from lemur_ray.rollout.evaluation_config import EvalConfig

SUITE, WITHOUT = "--suite", "--without"
_OF_THE_SUITE = (SUITE, WITHOUT, "--out")


@dataclass(frozen=True)
class Suite:
    """A suite to play: its benchmarks with their configurations, and the folder ``out`` of its results. ``missing``:
    those not played. ``given_out``: the folder in a bucket, if ``out`` is the local copy of it."""

    name: str
    out: str
    parts: Sequence[tuple[Part, EvalConfig[Any]]]
    missing: Sequence[Part]
    given_out: str = ""

    def within(self, folder: str) -> "Suite":
        """A copy whose results go to ``folder``, the local copy of ``out``."""
        parts = [(part, replace(config, out=f"{folder}/{part.folder}")) for part, config in self.parts]
        return replace(self, out=folder, parts=parts, given_out=self.out)


def is_suite(argv: Sequence[str]) -> bool:
    return any(word == SUITE or word.startswith(f"{SUITE}=") for word in argv)


def parse_suite(argv: Sequence[str]) -> Suite:
    """Parse ``--suite table5 [--without NAME,...] [--out DIR]`` and the flags of its benchmarks. Ends the process with
    code 2 for an unknown flag or an invalid value. Raises ValueError for an unknown suite, or with all values that some
    of its benchmarks refuse."""
    own, rest = _split_flags(argv)
    name = own[SUITE]
    if any(word == "--benchmark" or word.startswith("--benchmark=") for word in rest):
        raise ValueError(f"--benchmark beside --suite {name}: give one of them")
    if any(word == CONFIG or word.startswith(f"{CONFIG}=") for word in rest):
        raise ValueError(f"{CONFIG} beside --suite {name}: a file has the flags of one benchmark; give one of them")
    played, missing = left_out(parts_of(name), own.get(WITHOUT, ""))
    flags = {part.benchmark: option_names(part.benchmark) for part in played}
    every = set().union(*flags.values())
    configs = []
    refused: dict[str, list[str]] = {}
    out = ""
    for part in played:
        words = arguments_for(rest, flags[part.benchmark], every)
        benchmark = find(part.benchmark)
        try:
            start = parse_one_of_many(words, part.benchmark, options_of_part(part, benchmark))
        except ValueError as error:
            refused.setdefault(str(error), []).append(part.benchmark)
            continue
        who = re.sub(r"[^A-Za-z0-9.@_-]+", "-", f"{start.policy} {start.policy_model}".strip())
        out = out or resolve_out(own.get("--out", ""), f"suites/{name}-{who}")
        here = ["--out", f"{out}/{part.folder}"]
        configs.append((part, parse_one_of_many([*words, *here], part.benchmark, options_of_part(part, benchmark))))
    if refused:
        lines = [f"{', '.join(dict.fromkeys(of))}: {problem}" for problem, of in refused.items()]
        hint = f"{WITHOUT} {','.join(dict.fromkeys(one for of in refused.values() for one in of))} leaves them out"
        raise ValueError("\n- ".join([f"{name}: not everybody takes these flags:", *lines]) + f"\n{hint}")
    return Suite(name, out, configs, missing)


def _split_flags(argv: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
    """(flags of the suite itself, all other words). Raises ValueError for a flag without a value."""
    own: dict[str, str] = {}
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag not in _OF_THE_SUITE:
            rest.append(word)
            continue
        own[flag] = value if equals else next(words, "")
        if not own[flag] or (not equals and own[flag].startswith("--")):
            raise ValueError(f"{flag}: expected a value after it")
    return own, rest
