"""Generates the content of the replacement sites from a seed: products, orders, tickets, topics, articles and pages.

Equal seeds give equal content: the seeders write it into the applications' databases, and the tasks compute their
reference answers from it."""

import datetime
import random
from dataclasses import dataclass
from functools import lru_cache

from lemur_ray.host.json_files import toml_beside

SEED = 17
"""Default seed of the content. Another one gives other names, prices and answers."""
CUSTOMER, STAFF, MEMBER = "Ines Halloran", "Odo Farrier", "quillon"
"""Users that tasks are logged in as: at the shop; at its dashboard and the CMS; at tickets, forum and wiki."""
_BEGIN = datetime.date(2024, 2, 5)
_WORDS = toml_beside(__file__)


@dataclass(frozen=True)
class Review:
    """A review of a product in the shop. ``score``: 1 to 5."""

    author: str
    score: int
    title: str
    body: str


@dataclass(frozen=True)
class Product:
    """A product of the shop. ``price``: in pounds, as text with two decimals."""

    title: str
    category: str
    upc: str
    price: str
    stock: int
    description: str
    reviews: tuple[Review, ...]


@dataclass(frozen=True)
class Order:
    """An order in the shop. ``placed``: date in ISO 8601; ``total``: in pounds."""

    number: str
    customer: str
    placed: str
    status: str
    lines: tuple[tuple[str, int], ...]
    """Title and quantity of each product."""
    total: str


@dataclass(frozen=True)
class Ticket:
    """A ticket of Trac. ``number`` is the one Trac will assign, from 1."""

    number: int
    summary: str
    description: str
    reporter: str
    owner: str
    component: str
    milestone: str
    priority: str
    closed: bool


@dataclass(frozen=True)
class Post:
    author: str
    text: str


@dataclass(frozen=True)
class Topic:
    forum: str
    subject: str
    posts: tuple[Post, ...]


@dataclass(frozen=True)
class Article:
    """An article of the CMS, whose page is below its section's page. Only ``live`` articles are published."""

    section: str
    title: str
    slug: str
    intro: str
    body: str
    live: bool


@dataclass(frozen=True)
class WikiPage:
    name: str
    """Page name with namespaces, separated by colons."""
    title: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Content:
    """All content of the sites, each part in the order in which it is written to its application."""

    seed: int
    people: tuple[str, ...]
    products: tuple[Product, ...]
    orders: tuple[Order, ...]
    milestones: tuple[tuple[str, str], ...]
    """Name and due date of each milestone of Trac."""
    tickets: tuple[Ticket, ...]
    topics: tuple[Topic, ...]
    articles: tuple[Article, ...]
    wiki: tuple[WikiPage, ...]


@lru_cache(maxsize=4)
def content_of(seed: int = SEED) -> Content:
    """Generate the content for a seed; it is equal in every process."""
    draw = random.Random(f"stand-in sites {seed}")
    given, family = draw.sample(_WORDS["given"], 6), draw.sample(_WORDS["family"], 6)
    people = tuple(f"{first} {last}" for first, last in zip(given, family, strict=True))
    products = _products(draw, people)
    return Content(
        seed,
        people,
        products,
        _orders(draw, people, products),
        tuple((f"release {n + 1}.0", _day(draw, 400 + 30 * n)) for n in range(3)),
        tuple(_tickets(draw, people)),
        tuple(_topics(draw, people)),
        tuple(_articles(draw)),
        tuple(_wiki(draw)),
    )


def _day(draw: random.Random, after: int) -> str:
    return str(_BEGIN + datetime.timedelta(days=after + draw.randrange(20)))


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def _cents(price: str) -> int:
    return int(price.replace(".", ""))


def _products(draw: random.Random, people: tuple[str, ...]) -> tuple[Product, ...]:
    made = []
    prices = iter(draw.sample(range(600, 14_000), 36))  # no two are equal: "the cheapest" is one
    for category, goods in _WORDS["goods"].items():
        for number, good in enumerate(goods):
            title = f"{draw.choice(_WORDS['looks'])} {good}"
            authors = draw.sample(people, draw.choice((0, 1, 2, 3)))
            opinions = draw.sample(_WORDS["opinions"], len(authors))
            reviews = tuple(Review(a, draw.randint(1, 5), *o) for a, o in zip(authors, opinions, strict=True))
            upc = f"{category[:2].upper()}{100 + number * 7 + draw.randrange(7)}"
            maker, grams = draw.choice(_WORDS["family"]), draw.randrange(2, 90) * 10
            text = f"A {title.lower()} made in the workshop of {maker}. It weighs {grams} g."
            made.append(Product(title, category, upc, _money(next(prices)), draw.randrange(3, 60), text, reviews))
    return tuple(made)


def _orders(draw: random.Random, people: tuple[str, ...], products: tuple[Product, ...]) -> tuple[Order, ...]:
    made = []
    for n, customer in enumerate([CUSTOMER, *people[:3], CUSTOMER, *people[3:], CUSTOMER, CUSTOMER, people[0]]):
        bought = [(one, draw.randint(1, 3)) for one in draw.sample(products, draw.randint(1, 3))]
        total = _money(sum(_cents(one.price) * count for one, count in bought))
        lines = tuple((one.title, count) for one, count in bought)
        placed = str(_BEGIN + datetime.timedelta(days=21 * n + draw.randrange(20)))
        made.append(Order(f"{100_200 + 13 * n}", customer, placed, draw.choice(_WORDS["statuses"]), lines, total))
    return tuple(made)


def _tickets(draw: random.Random, people: tuple[str, ...]) -> list[Ticket]:
    names = [MEMBER, *(person.split()[0].lower() for person in people)]
    pairs = draw.sample([(part, fault) for part in _WORDS["parts"] for fault in _WORDS["faults"]], 24)
    return [
        Ticket(
            number,
            f"The {part} {fault}",
            f"Seen on build {draw.randrange(200, 900)}. Restarting it helps for {draw.randrange(2, 30)} minutes.",
            draw.choice(names),
            draw.choice(names),
            part,
            f"release {draw.randrange(1, 4)}.0",
            draw.choice(_WORDS["priorities"]),
            draw.random() < 0.3,
        )
        for number, (part, fault) in enumerate(pairs, 1)
    ]


def _topics(draw: random.Random, people: tuple[str, ...]) -> list[Topic]:
    names = [person.split()[0].lower() for person in people]
    made = []
    for forum, subjects in _WORDS["boards"].items():
        for subject in subjects:
            starter, *others = draw.sample(names, draw.randint(1, 5))
            first = Post(starter, f"I have kept notes on {subject} since {draw.randrange(1970, 2020)}. What do you do?")
            replies = [
                Post(name, f"With {subject} I always count to {draw.randrange(3, 99)} first.") for name in others
            ]
            made.append(Topic(forum, f"{draw.choice(_WORDS['asks'])} {subject}", (first, *replies)))
    return made


def _articles(draw: random.Random) -> list[Article]:
    made = []
    for topic in _WORDS["topics"]:
        for event in draw.sample(_WORDS["events"], 2):
            title = f"The {topic.lower()} {event}"
            phone = f"0{draw.randrange(200, 999)} {draw.randrange(1000, 9999)}"
            body = f"Opening times change in {draw.choice(('May', 'June', 'July'))}. Questions: telephone {phone}."
            intro = f"News from the {topic.lower()} by {draw.choice(_WORDS['given'])} {draw.choice(_WORDS['family'])}."
            section = "Town" if topic in _WORDS["topics"][:3] else "Region"
            made.append(Article(section, title, title.lower().replace(" ", "-"), intro, body, draw.random() < 0.75))
    return made


def _wiki(draw: random.Random) -> list[WikiPage]:
    made = []
    for herb in _WORDS["herbs"]:
        facts = (
            ("Height", f"{draw.randrange(5, 150)} cm"),
            ("Flowers in", draw.choice(("April", "May", "June", "August", "September"))),
            ("Grows near", draw.choice(("salt marshes", "old walls", "birch woods", "chalk streams"))),
            ("First described", str(draw.randrange(1680, 1920))),
        )
        made.append(WikiPage(f"herbs:{herb.lower().replace(' ', '_')}", herb, facts))
    return made
