"""Tasks on the herb pages of the wiki (DokuWiki), which replaces WebArena's Wikipedia."""

from collections.abc import Iterator

from envs.webarena.sites.content import Content, WikiPage
from envs.webarena.sites.suite.steps import click, goto, stop, write
from envs.webarena.sites.suite.task_definition import SuiteTask, ends_at, mentions, page_holds, says_exactly, target

SITE, HOME = "wikipedia", "__WIKIPEDIA__"
CELLS = "[...document.querySelectorAll('.page td')].map(one => one.innerText).join(' | ')"


def page_url(name: str) -> str:
    return f"{HOME}?id={name}"


def tasks(content: Content) -> Iterator[SuiteTask]:
    """Yield the wiki's tasks, in an order that does not depend on the content's seed."""
    herbs = content.wiki

    def opened(herb: WikiPage) -> tuple[dict[str, object], ...]:
        return (click("link", herb.title),)

    for herb in (herbs[0], herbs[5]):
        height = dict(herb.facts)["Height"]
        yield SuiteTask(
            SITE, HOME, "How tall does {{herb}} grow?", {"herb": herb.title},
            mentions(height), (*opened(herb), stop(height)),
        )  # fmt: skip
    for herb in (herbs[1], herbs[6]):
        month = dict(herb.facts)["Flowers in"]
        yield SuiteTask(
            SITE, HOME, "In which month does {{herb}} flower? Answer with the month alone.", {"herb": herb.title},
            says_exactly(month), (*opened(herb), stop(f"'{month}'")),
        )  # fmt: skip
    for herb in (herbs[2], herbs[7]):
        yield SuiteTask(
            SITE, HOME, "Open the page about {{herb}}.", {"herb": herb.title}, ends_at(page_url(herb.name)),
            (*opened(herb), stop()),
        )  # fmt: skip
    herb = herbs[3]
    facts = dict(herb.facts)
    yield SuiteTask(
        SITE, HOME, "Show me the herb that was first described in {{year}} and is {{height}} tall.",
        {"year": facts["First described"], "height": facts["Height"]},
        page_holds(target("last", facts["First described"], facts["Height"], locator=CELLS)), (*opened(herb), stop()),
    )  # fmt: skip
    for name, text in (("nettle", "It stings when it rains."), ("moss", "It prefers the north side.")):
        url = page_url(f"herbs:{name}")
        yield SuiteTask(
            SITE, HOME, 'Make a page herbs:{{name}} that says "{{text}}"', {"name": name, "text": text},
            ends_at(url, targets=[target(url, text, locator="document.querySelector('.page').innerText")]),
            (goto(f"{url}&do=edit"), write("", text), click("button", "Save"), stop()),
        )  # fmt: skip
    herb = herbs[4]
    yield SuiteTask(
        SITE, HOME, 'Add the sentence "{{text}}" to the page about {{herb}}.',
        {"text": "Seen near the old mill.", "herb": herb.title},
        page_holds(target(page_url(herb.name), "Seen near the old mill.")),
        (
            *opened(herb), click("link", "Edit this page"), write("", "Seen near the old mill."),
            click("button", "Save"), stop(),
        ),
    )  # fmt: skip
