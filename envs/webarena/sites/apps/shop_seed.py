"""Fills an empty shop (django-oscar) with content: customers, products with stock and reviews, orders."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from oscar.apps.catalogue.categories import create_from_breadcrumbs
from oscar.core.loading import get_model

CURRENCY = "GBP"


def seed(content: dict[str, Any]) -> None:
    """Write the accounts, products and orders of ``content`` to the database, and build the search index."""
    from oscar.apps.address.models import Country

    Country.objects.create(
        iso_3166_1_a2="GB", iso_3166_1_a3="GBR", iso_3166_1_numeric="826", printable_name="United Kingdom",
        name="United Kingdom", is_shipping_country=True,
    )  # fmt: skip
    users = _users(content)
    products = _products(content, users)
    for order in content["orders"]:
        _order(order, users[order["customer"]], products)
    call_command("rebuild_index", interactive=False, verbosity=0)


def _users(content: dict[str, Any]) -> dict[str, Any]:
    users = {}
    for account in content["accounts"]["shop"]:
        first, last = account["name"].split()
        users[account["name"]] = get_user_model().objects.create_user(
            username=account["user"], email=account["user"], password=account["password"], first_name=first,
            last_name=last, is_staff=account["staff"], is_superuser=account["staff"],
        )  # fmt: skip
    return users


def _products(content: dict[str, Any], users: dict[str, Any]) -> dict[str, Any]:
    partner = get_model("partner", "Partner").objects.create(name="Workshop", code="workshop")
    kind = get_model("catalogue", "ProductClass").objects.create(name="Goods", requires_shipping=True, track_stock=True)
    products = {}
    for row in content["products"]:
        category = create_from_breadcrumbs(row["category"])
        product = get_model("catalogue", "Product").objects.create(
            title=row["title"],
            upc=row["upc"],
            description=row["description"],
            product_class=kind,
            structure="standalone",
        )
        get_model("catalogue", "ProductCategory").objects.create(product=product, category=category)
        get_model("partner", "StockRecord").objects.create(
            product=product, partner=partner, partner_sku=row["upc"], price_currency=CURRENCY,
            price=Decimal(row["price"]), num_in_stock=row["stock"], low_stock_threshold=2,
        )  # fmt: skip
        for review in row["reviews"]:
            get_model("reviews", "ProductReview").objects.create(
                product=product, user=users[review["author"]], score=review["score"], title=review["title"],
                body=review["body"], status=1,
            )  # fmt: skip
        products[row["title"]] = product
    return products


def _order(row: dict[str, Any], user: Any, products: dict[str, Any]) -> None:
    placed = datetime.datetime.fromisoformat(f"{row['placed']}T09:30:00+00:00")
    address = get_model("order", "ShippingAddress").objects.create(
        first_name=user.first_name, last_name=user.last_name, line1="4 Slipway Row", line4="Netherport",
        postcode="NE1 4AA", country_id="GB",
    )  # fmt: skip
    total = Decimal(row["total"])
    order = get_model("order", "Order").objects.create(
        number=row["number"], user=user, currency=CURRENCY, total_incl_tax=total, total_excl_tax=total,
        shipping_incl_tax=0, shipping_excl_tax=0, shipping_method="Free", shipping_code="free", status=row["status"],
        date_placed=placed, shipping_address=address,
    )  # fmt: skip
    for title, count in row["lines"]:
        product = products[title]
        stock = product.stockrecords.get()
        price = stock.price
        get_model("order", "Line").objects.create(
            order=order, product=product, partner=stock.partner, partner_name="Workshop", partner_sku=stock.partner_sku,
            stockrecord=stock, title=title, upc=product.upc, quantity=count, status=row["status"],
            line_price_incl_tax=price * count, line_price_excl_tax=price * count,
            line_price_before_discounts_incl_tax=price * count, line_price_before_discounts_excl_tax=price * count,
            unit_price_incl_tax=price, unit_price_excl_tax=price, tax_code="", num_allocated=0,
        )  # fmt: skip
