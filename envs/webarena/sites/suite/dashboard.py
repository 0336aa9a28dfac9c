"""Tasks of the shop's staff on its dashboard (django-oscar), which replaces WebArena's shop admin pages."""

from collections.abc import Iterator

from envs.webarena.sites.content import CUSTOMER, Content
from envs.webarena.sites.suite.steps import click, goto, stop, write
from envs.webarena.sites.suite.task_definition import SuiteTask, ends_at, mentions, page_holds, says_exactly, target

SITE, HOME = "shopping_admin", "__SHOPPING_ADMIN__"
ORDERS = f"{HOME}/orders/"


def tasks(content: Content) -> Iterator[SuiteTask]:
    """Yield the dashboard's tasks, in an order that does not depend on the content's seed."""
    orders = content.orders
    for order in (orders[1], orders[4]):
        yield SuiteTask(
            SITE, HOME, "Who placed order {{number}}?", {"number": order.number},
            mentions(order.customer), (goto(ORDERS), stop(order.customer)),
        )  # fmt: skip
    for order in (orders[2], orders[5]):
        yield SuiteTask(
            SITE, HOME, "What is the total of order {{number}}?", {"number": order.number},
            mentions(order.total), (goto(ORDERS), stop(f"£{order.total}")),
        )  # fmt: skip
    count = sum(one.customer == CUSTOMER for one in orders)
    yield SuiteTask(
        SITE, HOME, "How many orders has {{customer}} placed? Answer with the number.", {"customer": CUSTOMER},
        says_exactly(str(count)), (goto(ORDERS), stop(str(count))),
    )  # fmt: skip
    order = orders[3]
    yield SuiteTask(
        SITE, HOME, "Open the details of order {{number}}.", {"number": order.number},
        ends_at(f"{ORDERS}{order.number}/"), (goto(ORDERS), click("link", order.number), stop()),
    )  # fmt: skip
    for name in ("Harbour Supplies", "Loom and Lathe"):
        yield SuiteTask(
            SITE, HOME, "Add a partner called {{name}}.", {"name": name},
            page_holds(target(f"{HOME}/partners/", name)),
            (goto(f"{HOME}/partners/create/"), write("Name", name), click("button", "Save"), stop()),
        )  # fmt: skip
