"""Question templates about the sample database with gold (reference) queries, in Spider's four levels of hardness.

A template is used once for each result of its ``values`` query, so questions fit the machine's data; a question with an
empty gold result is left out. The wording breaks ties, so that every question has one answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Hardness = Literal["easy", "medium", "hard", "extra"]
LEVELS: tuple[Hardness, ...] = ("easy", "medium", "hard", "extra")


@dataclass(frozen=True)
class Template:
    """Template of questions: each of the first ``num_values`` results of the query ``values`` replaces ``{value}`` in
    question and gold (reference query)."""

    name: str
    hardness: Hardness
    question: str
    gold: str
    values: str = ""
    """SQL query of one column that returns the values. Empty: the template is used once, unchanged."""
    num_values: int = 2


@dataclass(frozen=True)
class Question:
    """A question with its gold (reference) query. ``id``, from template and value, is stable on one machine."""

    id: str
    hardness: Hardness
    question: str
    gold: str


_SECTIONS = "select section from packages group by 1 order by count(*) desc, 1"
_WANTED = "select target from dependencies where kind = 'depends' group by 1 order by count(*) desc, 1"
_NEEDY = "select package from dependencies where kind = 'depends' group by 1 order by count(*) desc, 1"
_MAINTAINERS = (
    "select m.name from packages join maintainers m using (maintainer_id) group by 1 order by count(*) desc, 1"
)
_LONG_MODULES = "select name from modules where num_functions > 0 order by num_lines desc, 1"
_NEEDED_DISTRIBUTIONS = "select target from requirements where not optional group by 1 order by count(*) desc, 1"


def _t(name: str, hardness: Hardness, question: str, gold: str, values: str = "", num_values: int = 2) -> Template:
    return Template(name, hardness, question, " ".join(gold.split()), values, num_values)


TEMPLATES: tuple[Template, ...] = (
    # easy: one table, one condition or one aggregate
    _t("count-packages", "easy", "How many packages are installed?", "SELECT count(*) FROM packages"),
    _t("in-section", "easy", "List the names of all packages in the section {value}.",
       "SELECT name FROM packages WHERE section = '{value}'", _SECTIONS, 3),
    _t("count-section", "easy", "How many packages are in the section {value}?",
       "SELECT count(*) FROM packages WHERE section = '{value}'", _SECTIONS, 3),
    _t("version-of", "easy", "Which version of the package {value} is installed?",
       "SELECT version FROM packages WHERE name = '{value}'", _NEEDY, 3),
    _t("different-sections", "easy", "How many different sections do packages belong to?",
       "SELECT count(DISTINCT section) FROM packages"),
    _t("largest-size", "easy", "What is the largest installed size, in kB, of any package?",
       "SELECT max(installed_kb) FROM packages"),
    _t("module-lines", "easy", "How many lines does the module {value} have?",
       "SELECT num_lines FROM modules WHERE name = '{value}'", _LONG_MODULES, 3),
    _t("functions-of", "easy", "What are the names of the functions of the module {value}?",
       "SELECT name FROM functions WHERE module = '{value}'", _LONG_MODULES, 2),
    _t("distribution-version", "easy", "Which version does the distribution {value} have?",
       "SELECT version FROM distributions WHERE name = '{value}'", "select name from distributions order by 1", 2),
    # medium: a join, or a group, or an order
    _t("maintained-by", "medium", "List the names of the packages that {value} maintain.",
       """SELECT packages.name FROM packages JOIN maintainers ON packages.maintainer_id = maintainers.maintainer_id
       WHERE maintainers.name = '{value}'""", _MAINTAINERS, 3),
    _t("per-section", "medium", "For each section, show its name and its number of packages.",
       "SELECT section, count(*) FROM packages GROUP BY section"),
    _t("per-priority", "medium", "For each priority, show its name and the total installed size of its packages.",
       "SELECT priority, sum(installed_kb) FROM packages GROUP BY priority"),
    _t("largest-in-section", "medium",
       "What is the name of the largest package in the section {value} by installed size? "
       "If several are equally large, take the first by name.",
       "SELECT name FROM packages WHERE section = '{value}' ORDER BY installed_kb DESC, name LIMIT 1", _SECTIONS, 3),
    _t("needs", "medium", "Show name and version of every installed package that the package {value} depends on "
       "(kind depends).",
       """SELECT packages.name, packages.version FROM dependencies JOIN packages ON dependencies.target = packages.name
       WHERE dependencies.package = '{value}' AND dependencies.kind = 'depends'""", _NEEDY, 3),
    _t("longest-modules", "medium",
       "List the names of the 5 longest modules by lines, longest first; equal ones by name.",
       "SELECT name FROM modules ORDER BY num_lines DESC, name LIMIT 5"),
    _t("mean-arguments", "medium", "What is the average number of arguments of the functions of the module {value}?",
       "SELECT avg(num_arguments) FROM functions WHERE module = '{value}'", _LONG_MODULES, 2),
    _t("undocumented", "medium", "For each module, show its name and how many of its functions have no docstring; "
       "only modules with such functions.",
       "SELECT module, count(*) FROM functions WHERE has_docstring = 0 GROUP BY module"),
    _t("required-by", "medium", "List the names of the distributions that require {value}, not as an option.",
       "SELECT distribution FROM requirements WHERE target = '{value}' AND optional = 0", _NEEDED_DISTRIBUTIONS, 3),
    # hard: joins with groups, set operations, subqueries
    _t("popular-sections", "hard", "Which sections have more than 10 packages? Show each with its number of packages, "
       "the largest number first, equal ones by name.",
       "SELECT section, count(*) FROM packages GROUP BY section HAVING count(*) > 10 ORDER BY count(*) DESC, section"),
    _t("larger-than-average", "hard", "How many packages of the section {value} are larger than the average package?",
       """SELECT count(*) FROM packages WHERE section = '{value}'
       AND installed_kb > (SELECT avg(installed_kb) FROM packages)""", _SECTIONS, 3),
    _t("wanted-and-recommended", "hard", "Which packages are the target of both a depends and a recommends?",
       """SELECT target FROM dependencies WHERE kind = 'depends'
       INTERSECT SELECT target FROM dependencies WHERE kind = 'recommends'"""),
    _t("busiest-maintainer", "hard",
       "Which maintainer has the most packages? Show the name and the number; on ties the "
       "first by name.",
       """SELECT maintainers.name, count(*) FROM maintainers JOIN packages
       ON packages.maintainer_id = maintainers.maintainer_id GROUP BY maintainers.name
       ORDER BY count(*) DESC, maintainers.name LIMIT 1"""),
    _t("sections-needing", "hard",
       "In which sections are packages that depend on {value} (kind depends)? Name each once.",
       """SELECT DISTINCT packages.section FROM packages JOIN dependencies ON dependencies.package = packages.name
       WHERE dependencies.target = '{value}' AND dependencies.kind = 'depends'""", _WANTED, 3),
    _t("most-needed", "hard", "Which 3 packages are most often the target of a depends? Show the names and how often, "
       "the most frequent first, equal ones by name.",
       """SELECT target, count(*) FROM dependencies WHERE kind = 'depends' GROUP BY target
       ORDER BY count(*) DESC, target LIMIT 3"""),
    _t("well-documented", "hard", "Which modules have at least 10 functions, all of them with a docstring?",
       """SELECT module FROM functions GROUP BY module HAVING count(*) >= 10 AND sum(has_docstring) = count(*)"""),
    _t("many-arguments", "hard", "Which functions of the module {value} have more arguments than the average of all "
       "functions of all modules?",
       """SELECT name FROM functions WHERE module = '{value}'
       AND num_arguments > (SELECT avg(num_arguments) FROM functions)""", _LONG_MODULES, 2),
    # extra: several of these at once
    _t("nothing-depends", "extra", "How many packages of the section {value} are never the target of any dependency?",
       """SELECT count(*) FROM packages WHERE section = '{value}'
       AND name NOT IN (SELECT target FROM dependencies)""", _SECTIONS, 3),
    _t("largest-per-section", "extra",
       "For every section with at least 5 packages, show the section and the name of its "
       "largest package by installed size; if several are equally large, all of them.",
       """SELECT packages.section, packages.name FROM packages JOIN
       (SELECT section, max(installed_kb) AS largest FROM packages GROUP BY section HAVING count(*) >= 5) AS top
       ON packages.section = top.section AND packages.installed_kb = top.largest"""),
    _t("maintainers-across", "extra",
       "Which maintainers have packages in both the section {value} and the section libs? "
       "Name each once.",
       """SELECT maintainers.name FROM maintainers JOIN packages ON packages.maintainer_id = maintainers.maintainer_id
       WHERE packages.section = '{value}' INTERSECT
       SELECT maintainers.name FROM maintainers JOIN packages ON packages.maintainer_id = maintainers.maintainer_id
       WHERE packages.section = 'libs'""",
       "select section from packages where section <> 'libs' group by 1 order by count(*) desc, 1", 3),
    _t("indirect", "extra",
       "How many different packages are depended on by packages that {value} itself depends on (kind "
       "depends in both cases)?",
       """SELECT count(DISTINCT second.target) FROM dependencies AS first JOIN dependencies AS second
       ON first.target = second.package
       WHERE first.package = '{value}' AND first.kind = 'depends' AND second.kind = 'depends'""", _NEEDY, 3),
    _t("share-of-size", "extra", "Among sections with at least 3 packages, which has the largest average installed "
       "size? Show the section; on ties the first by name.",
       """SELECT section FROM packages GROUP BY section HAVING count(*) >= 3
       ORDER BY avg(installed_kb) DESC, section LIMIT 1"""),
    _t("missing-recommends", "extra",
       "How many different packages are recommended by some package but are not installed?",
       """SELECT count(DISTINCT target) FROM dependencies WHERE kind = 'recommends'
       AND target NOT IN (SELECT name FROM packages)"""),
    _t("longest-function-count", "extra", "Among modules longer than the average module, which has the fewest "
       "functions? Show name and number of functions; on ties the first by name.",
       """SELECT name, num_functions FROM modules WHERE num_lines > (SELECT avg(num_lines) FROM modules)
       ORDER BY num_functions, name LIMIT 1"""),
    _t("unused-distributions", "extra", "Which distributions are required by no other distribution, optional "
       "requirements included? Show the first 10 by name.",
       """SELECT name FROM distributions WHERE name NOT IN (SELECT target FROM requirements) ORDER BY name LIMIT 10"""),
)  # fmt: skip


def ask_all(rows_of: Callable[[str], list[tuple[object, ...]]]) -> list[Question]:
    """Every question whose gold query returns a value, alternating between levels of hardness. ``rows_of`` runs a query
    on the sample database and returns its rows."""
    by_level: dict[Hardness, list[Question]] = {level: [] for level in LEVELS}
    for template in TEMPLATES:
        values = [str(row[0]) for row in rows_of(template.values) if row[0]] if template.values else [""]
        for value in values[: template.num_values]:
            gold = template.gold.replace("{value}", value.replace("'", "''"))
            if any(value is not None for row in rows_of(gold) for value in row):
                slug = re.sub(r"[^a-z0-9.+]+", "-", value.lower()).strip("-")
                name = f"{template.name}-{slug}".rstrip("-")
                question = template.question.replace("{value}", value)
                by_level[template.hardness].append(Question(name, template.hardness, question, gold))
    depth = max(len(questions) for questions in by_level.values())
    return [questions[i] for i in range(depth) for questions in by_level.values() if i < len(questions)]
