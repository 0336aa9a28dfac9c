"""Helpers of evaluators that query a Magento shop's REST interface: a customer's latest order, latest reviews."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from envs.webarena.evaluators.program_html import LastPage, Lookup
from envs.webarena.site_set import Lease

LOOK_S = 60.0


def shop_helpers(lease: Lease) -> Mapping[str, Lookup]:
    """The helper functions that tasks may call, by name. They query the shop of a lease by HTTP, as administrator."""
    shop = _Shop(lease)
    return {
        "shopping_get_latest_order_url": shop.latest_order_url,
        "shopping_get_sku_latest_review_rating": shop.latest_review_rating,
        "shopping_get_sku_latest_review_author": shop.latest_review_author,
    }


class _Shop:
    def __init__(self, lease: Lease) -> None:
        self._url = lease.urls.get("SHOPPING", "").rstrip("/")
        self._admin, self._customer = lease.accounts.get("shopping_admin"), lease.accounts.get("shopping")

    def latest_order_url(self, page: LastPage) -> str:
        """Return the URL of the customer's newest order, or the shop's URL if there is none or the query fails."""
        whose = self._customer.user if self._customer else ""
        asked = {
            "searchCriteria[filterGroups][0][filters][0][field]": "customer_email",
            "searchCriteria[filterGroups][0][filters][0][value]": whose,
            "searchCriteria[sortOrders][0][field]": "created_at",
            "searchCriteria[sortOrders][0][direction]": "DESC",
            "searchCriteria[pageSize]": "1",
        }
        answer = self._query(f"orders?{urllib.parse.urlencode(asked)}")
        orders = answer.get("items") if isinstance(answer, dict) else None
        number = orders[0]["increment_id"].lstrip("0") if orders else ""
        return f"{self._url}/sales/order/view/order_id/{number}/" if orders else self._url

    def latest_review_rating(self, page: LastPage, sku: str) -> str:
        """Return the rating of a product's newest review, in percent; empty without one."""
        review = self._latest_review(sku)
        return str(review["ratings"][0]["percent"]) if review else ""

    def latest_review_author(self, page: LastPage, sku: str) -> str:
        """Return the nickname of the author of a product's newest review; empty without one."""
        review = self._latest_review(sku)
        return str(review["nickname"]) if review else ""

    def _latest_review(self, sku: str) -> Mapping[str, Any] | None:
        reviews = self._query(f"products/{urllib.parse.quote(sku, safe='')}/reviews")
        return reviews[-1] if isinstance(reviews, list) and reviews else None

    def _query(self, what: str) -> Any:
        if not self._url or self._admin is None:
            return None
        who = {"username": self._admin.user, "password": self._admin.password}
        try:
            token = self._send("rest/default/V1/integration/admin/token", json.dumps(who).encode())
            return self._send(f"rest/V1/{what}", None, token)
        except (OSError, ValueError):
            return None

    def _send(self, path: str, body: bytes | None, token: str = "") -> Any:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        asked = urllib.request.Request(f"{self._url}/{path}", data=body, headers=headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(asked, timeout=LOOK_S) as response:
            return json.load(response)
