"""Tasks on the tickets of Trac, which replaces WebArena's GitLab."""

from collections.abc import Iterator

from envs.webarena.sites.content import Content
from envs.webarena.sites.suite.steps import click, goto, stop, write
from envs.webarena.sites.suite.task_definition import SuiteTask, ends_at, mentions, page_holds, says_exactly, target

SITE, HOME = "gitlab", "__GITLAB__"
SUMMARY = "document.querySelector('#ticket .summary').innerText"
LIST = f"{HOME}/report/1"


def tasks(content: Content) -> Iterator[SuiteTask]:
    """Yield the tasks on tickets, in an order that does not depend on the content's seed."""
    tickets = content.tickets
    active = [one for one in tickets if not one.closed]
    new = f"{HOME}/ticket/{len(tickets) + 1}"
    for ticket in (active[0], active[5]):
        yield SuiteTask(
            SITE, HOME, 'Who owns the ticket "{{summary}}"? Answer with the name alone.', {"summary": ticket.summary},
            says_exactly(ticket.owner), (goto(f"{HOME}/ticket/{ticket.number}"), stop(ticket.owner)),
        )  # fmt: skip
    for milestone, _ in content.milestones[:2]:
        count = sum(one.milestone == milestone for one in active)
        yield SuiteTask(
            SITE, HOME, "How many tickets of {{milestone}} are still active? Answer with the number.",
            {"milestone": milestone}, says_exactly(str(count)), (click("link", "ROADMAP"), stop(str(count))),
        )  # fmt: skip
    for ticket in (active[2], active[-1]):
        yield SuiteTask(
            SITE, HOME, "Open ticket #{{number}}.", {"number": ticket.number},
            ends_at(f"{HOME}/ticket/{ticket.number}"),
            (write("", f"#{ticket.number}", enter=True), stop()),
        )  # fmt: skip
    ticket = active[3]
    yield SuiteTask(
        SITE, HOME, "Open ticket #{{number}} and tell me its priority.", {"number": ticket.number},
        ends_at(f"{HOME}/ticket/{ticket.number}", ticket.priority),
        (goto(f"{HOME}/ticket/{ticket.number}"), stop(ticket.priority)),
    )  # fmt: skip
    for summary in ("The sundial runs slow at night", "Kettle alarm cannot be snoozed"):
        yield SuiteTask(
            SITE, HOME, 'Report a new defect with the summary "{{summary}}".', {"summary": summary},
            page_holds(target(new, locator=SUMMARY, exactly=summary)),
            (click("link", "NEW TICKET"), write("Summary:", summary), click("button", "Create ticket"), stop()),
        )  # fmt: skip
    summary = "Badges print upside down"
    yield SuiteTask(
        SITE, HOME, 'Report a new defect with the summary "{{summary}}" and stay on its page.', {"summary": summary},
        ends_at(new, targets=[target("last", summary)]),
        (click("link", "NEW TICKET"), write("Summary:", summary), click("button", "Create ticket"), stop()),
    )  # fmt: skip
    ticket = active[4]
    parts = ticket.description.split(".")[0].rsplit(" ", 1)[1]
    yield SuiteTask(
        SITE, HOME, 'On which build was "{{summary}}" seen?', {"summary": ticket.summary},
        mentions(parts), (goto(LIST), click("link", ticket.summary), stop(f"build {parts}")),
    )  # fmt: skip
