"""Tasks on the forum (django-machina), which replaces Reddit. URLs number boards and topics from 1, as seeded."""

from collections.abc import Iterator

from envs.webarena.sites.content import Content, Topic
from envs.webarena.sites.suite.shopping import slug
from envs.webarena.sites.suite.steps import click, goto, stop, write
from envs.webarena.sites.suite.task_definition import SuiteTask, ends_at, mentions, page_holds, says_exactly, target

SITE, HOME = "reddit", "__REDDIT__"


def board_url(content: Content, board: str) -> str:
    boards = list(dict.fromkeys(one.forum for one in content.topics))
    return f"{HOME}/forum/{slug(board)}-{boards.index(board) + 1}/"


def topic_url(content: Content, topic: Topic) -> str:
    number = content.topics.index(topic) + 1
    return f"{board_url(content, topic.forum)}topic/{slug(topic.subject)}-{number}/"


def tasks(content: Content) -> Iterator[SuiteTask]:
    """Yield the forum's tasks, in an order that does not depend on the content's seed."""
    topics = content.topics
    for topic in (topics[0], topics[12]):
        opened = (click("link", topic.forum), click("link", topic.subject))
        names = {"subject": topic.subject, "board": topic.forum}
        yield SuiteTask(
            SITE, HOME, 'Who started the topic "{{subject}}" in {{board}}? Answer with the name alone.', names,
            says_exactly(topic.posts[0].author), (*opened, stop(topic.posts[0].author)),
        )  # fmt: skip
    for topic in (topics[6], topics[19]):
        names = {"subject": topic.subject, "board": topic.forum}
        count = str(len(topic.posts) - 1)
        yield SuiteTask(
            SITE, HOME, 'How many replies has "{{subject}}" in {{board}}? Answer with the number.', names,
            says_exactly(count), (click("link", topic.forum), stop(count)),
        )  # fmt: skip
    topic = topics[8]
    year = topic.posts[0].text.split(" since ")[1][:4]
    yield SuiteTask(
        SITE, HOME, 'Since which year has whoever started "{{subject}}" kept notes?', {"subject": topic.subject},
        mentions(year), (click("link", topic.forum), click("link", topic.subject), stop(f"since {year}")),
    )  # fmt: skip
    yield SuiteTask(
        SITE, HOME, "Take me to the board about {{board}}.", {"board": topics[15].forum},
        ends_at(board_url(content, topics[15].forum)), (click("link", topics[15].forum), stop()),
    )  # fmt: skip
    topic = topics[22]
    yield SuiteTask(
        SITE, HOME, 'Open the topic "{{subject}}" in {{board}}.', {"subject": topic.subject, "board": topic.forum},
        ends_at(topic_url(content, topic)), (click("link", topic.forum), click("link", topic.subject), stop()),
    )  # fmt: skip
    for topic, text in ((topics[3], "Mine hums in B flat."), (topics[17], "Try it with oats first.")):
        yield SuiteTask(
            SITE, HOME, 'Reply to "{{subject}}" in {{board}} with "{{text}}"',
            {"subject": topic.subject, "board": topic.forum, "text": text},
            page_holds(target("func:reddit_get_post_url('__last_url__')", text), target("last", topic.subject)),
            (goto(f"{topic_url(content, topic)}post/create/"), write("", text), click("button", "Submit"), stop()),
        )  # fmt: skip
    board, subject, text = topics[10].forum, "A bench for the winter", "Who brings the blankets?"
    yield SuiteTask(
        SITE, HOME, 'Start a topic "{{subject}}" in {{board}} that says "{{text}}"',
        {"subject": subject, "board": board, "text": text},
        page_holds(target("last", subject, text, locator="document.body.innerText")),
        (
            goto(f"{board_url(content, board)}topic/create/"), write("Subject", subject), write("", text),
            click("button", "Submit"), stop(),
        ),
    )  # fmt: skip
