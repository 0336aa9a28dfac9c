"""Tasks on the news pages of the CMS (Wagtail), an addition to WebArena's sites."""

from collections.abc import Iterator

from envs.webarena.sites.content import Article, Content
from envs.webarena.sites.suite.steps import click, goto, stop
from envs.webarena.sites.suite.task_definition import SuiteTask, ends_at, mentions, page_holds, says_exactly, target

SITE, HOME = "cms", "__CMS__"
BEFORE = 3
GONE = "Not Found"


def page_number(content: Content, article: Article) -> int:
    """Return the number that Wagtail assigns to an article's page, after its own three pages. A section is created with
    its first article. Raises ValueError for an unknown article."""
    number, sections = BEFORE, set[str]()
    for one in content.articles:
        number += 1 + (one.section not in sections)
        sections.add(one.section)
        if one == article:
            return number
    raise ValueError(f"no article {article.title!r}")


def article_url(article: Article) -> str:
    return f"{HOME}/{article.section.lower()}/{article.slug}/"


def tasks(content: Content) -> Iterator[SuiteTask]:
    """Yield the CMS's tasks, in an order that does not depend on the content's seed."""
    live = [one for one in content.articles if one.live]
    for article in (live[0], live[-1]):
        phone = article.body.rsplit("telephone ", 1)[1].rstrip(".")
        names = {"title": article.title}
        opened = (click("link", article.section), click("link", article.title))
        yield SuiteTask(
            SITE, HOME, 'Which telephone number does "{{title}}" give?', names, mentions(phone), (*opened, stop(phone))
        )
    article = live[1]
    month = article.body.split(" in ", 1)[1].split(".")[0]
    yield SuiteTask(
        SITE, HOME, 'In which month do opening times change according to "{{title}}"? Answer with the month alone.',
        {"title": article.title}, says_exactly(month),
        (click("link", article.section), click("link", article.title), stop(month)),
    )  # fmt: skip
    for section in ("Town", "Region"):
        count = str(sum(one.section == section for one in live))
        yield SuiteTask(
            SITE, HOME, "How many articles are published under {{section}}? Answer with the number.",
            {"section": section}, says_exactly(count), (click("link", section), stop(count)),
        )  # fmt: skip
    article = live[2]
    yield SuiteTask(
        SITE, HOME, 'Show me the article "{{title}}".', {"title": article.title}, ends_at(article_url(article)),
        (click("link", article.section), click("link", article.title), stop()),
    )  # fmt: skip
    for article, template, path, button in (
        (live[3], 'Take the article "{{title}}" offline, but keep it as a draft.', "unpublish", "Yes, unpublish it"),
        (live[4], 'Delete the article "{{title}}".', "delete", "Yes, delete it"),
    ):
        yield SuiteTask(
            SITE, f"{HOME}/admin/pages/{page_number(content, article)}/edit/", template, {"title": article.title},
            page_holds(target(article_url(article), GONE, locator="document.body.innerText")),
            (goto(f"{HOME}/admin/pages/{page_number(content, article)}/{path}/"), click("button", button), stop()),
        )  # fmt: skip
