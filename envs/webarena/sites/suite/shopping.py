"""Tasks of a shop's customer (django-oscar). URLs number products and categories in the order of seeding."""

import re
from collections.abc import Iterator

from envs.webarena.sites.content import CUSTOMER, Content, Product
from envs.webarena.sites.suite.steps import Step, click, goto, stop, write
from envs.webarena.sites.suite.task_definition import SuiteTask, ends_at, mentions, page_holds, says_exactly, target

SITE, HOME = "shopping", "__SHOPPING__/catalogue/"


def slug(title: str) -> str:
    """Return the slug that Django makes of a title in ASCII, for URLs."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def product_url(content: Content, product: Product) -> str:
    return f"__SHOPPING__/catalogue/{slug(product.title)}_{content.products.index(product) + 1}/"


def category_url(content: Content, category: str) -> str:
    names = list(dict.fromkeys(one.category for one in content.products))
    return f"__SHOPPING__/catalogue/category/{slug(category)}_{names.index(category) + 1}/"


def open_product(product: Product) -> tuple[Step, ...]:
    """Return steps that search for a product and open its page."""
    return write("Search", product.title, enter=True), click("link", product.title)


def tasks(content: Content) -> Iterator[SuiteTask]:
    """Yield the shop's tasks, in an order that does not depend on the content's seed."""
    goods = content.products
    for product in (goods[1], goods[14]):
        yield SuiteTask(
            SITE, HOME, "What does the {{product}} cost?", {"product": product.title},
            mentions(product.price), (*open_product(product), stop(f"It costs £{product.price}.")),
        )  # fmt: skip
    for category in (goods[3].category, goods[20].category):
        cheapest = min((one for one in goods if one.category == category), key=lambda one: float(one.price))
        yield SuiteTask(
            SITE, HOME, "Which product of {{category}} is the cheapest? Answer with its name alone.",
            {"category": category}, says_exactly(cheapest.title), (click("link", category), stop(cheapest.title)),
        )  # fmt: skip
    for product in (goods[7], goods[32]):
        yield SuiteTask(
            SITE, HOME, "How many of {{product}} are in stock? Answer with the number.", {"product": product.title},
            says_exactly(str(product.stock)), (*open_product(product), stop(str(product.stock))),
        )  # fmt: skip
    product = goods[25]
    yield SuiteTask(
        SITE, HOME, "Tell me the UPC of {{product}}.", {"product": product.title},
        mentions(product.upc), (*open_product(product), stop(product.upc)),
    )  # fmt: skip
    for category in (goods[9].category, goods[35].category):
        yield SuiteTask(
            SITE, HOME, "Show me all {{category}}.", {"category": category},
            ends_at(category_url(content, category)), (click("link", category), stop()),
        )  # fmt: skip
    reviewed = next(one for one in goods if one.reviews)
    yield SuiteTask(
        SITE, HOME, "Open the page of {{product}} and tell me who reviewed it.", {"product": reviewed.title},
        ends_at(product_url(content, reviewed), *(one.author for one in reviewed.reviews)),
        (*open_product(reviewed), stop(", ".join(one.author for one in reviewed.reviews))),
    )  # fmt: skip
    for product in (goods[5], goods[18]):
        yield SuiteTask(
            SITE, HOME, "Put {{product}} into my basket.", {"product": product.title},
            page_holds(target("__SHOPPING__/basket/", product.title)),
            (*open_product(product), click("button", "Add to basket"), stop()),
        )  # fmt: skip
    own = sorted((one for one in content.orders if one.customer == CUSTOMER), key=lambda one: one.placed)
    for order in (own[0], own[-1]):
        yield SuiteTask(
            SITE, HOME, "What is the status of my order {{number}}?", {"number": order.number},
            mentions(order.status), (goto("__SHOPPING__/accounts/orders/"), stop(order.status)),
        )  # fmt: skip
    newest = own[-1]
    yield SuiteTask(
        SITE, HOME, "How much was my most recent order?", {},
        mentions(newest.total), (goto("__SHOPPING__/accounts/orders/"), stop(f"£{newest.total}")),
    )  # fmt: skip
