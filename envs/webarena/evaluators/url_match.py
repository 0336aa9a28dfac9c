"""url_match: scores an episode by comparing the URL of its last page with references.

After libwebarena 0.0.4, ``URLEvaluator``, which only requires that host and path of a reference occur somewhere in the
page's. ``strict`` requires the same host, and the reference's path or one below it."""

from urllib.parse import parse_qs, unquote, urlparse

RULE = "GOLD in PRED"
OR = " |OR| "


def url_match(references: str, url: str, *, rule: str = RULE, strict: bool = False) -> float:
    """Return 1 if ``url`` is at one of the references (joined by ``OR``) and has, for each query parameter of theirs,
    one of its values; else 0. ``strict``: host equal and path equal or below, instead of occurring anywhere in the
    URL's. Raises ValueError unless ``rule`` is ``RULE``."""
    if rule != RULE:
        raise ValueError(f"url_note {rule!r}: expected {RULE!r}")
    golds = [_parts(one) for one in references.split(OR)]
    place, query = _parts(url)
    same_page = any(_beneath(gold, place) if strict else "".join(gold) in "".join(place) for gold, _ in golds)
    wanted: dict[str, set[str]] = {}
    for _, of_gold in golds:
        for key, values in of_gold.items():
            wanted.setdefault(key, set()).update(values)
    return float(same_page and all(values & set(query.get(key, ())) for key, values in wanted.items()))


def _parts(url: str) -> tuple[tuple[str, str], dict[str, list[str]]]:
    """Split a URL into host and path (without parameters after a semicolon), and its query."""
    try:
        parts = urlparse(url.rstrip("/"))
    except ValueError:  # half an IPv6 address: the page of no site
        return ("", url), {}
    return (parts.netloc, parts.path), parse_qs(parts.query)


def _beneath(gold: tuple[str, str], place: tuple[str, str]) -> bool:
    path, there = (unquote(one[1]).rstrip("/") for one in (gold, place))
    return gold[0].lower() == place[0].lower() and (there == path or there.startswith(f"{path}/"))
