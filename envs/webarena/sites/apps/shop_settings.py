"""Django settings of the shop (django-oscar) and its dashboard, which replace WebArena's shop and its admin pages."""

from __future__ import annotations

from oscar.defaults import *  # noqa: F403
from shared_settings import *  # noqa: F403
from shared_settings import BEFORE, DJANGO, FOLDER, NoMigrations, templates

ROOT_URLCONF = "shop_urls"
MIGRATION_MODULES = NoMigrations()
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "shop_session", "shop_csrf"
PARTS = (
    "analytics", "checkout", "address", "shipping", "catalogue", "catalogue.reviews", "communication", "partner",
    "basket", "payment", "offer", "order", "customer", "search", "voucher", "wishlists", "dashboard",
)  # fmt: skip
DASHBOARD_PARTS = (
    "reports", "users", "orders", "catalogue", "offers", "partners", "pages", "ranges", "reviews", "vouchers",
    "communications", "shipping",
)  # fmt: skip
INSTALLED_APPS = [
    *DJANGO,
    "django.contrib.flatpages",
    "oscar.config.Shop",
    *(f"oscar.apps.{part}.apps.{part.title().replace('.', '')}Config" for part in PARTS),
    *(f"oscar.apps.dashboard.{part}.apps.{part.title()}DashboardConfig" for part in DASHBOARD_PARTS),
    "widget_tweaks",
    "haystack",
    "treebeard",
    "sorl.thumbnail",
    "django_tables2",
]
MIDDLEWARE = [*BEFORE, "oscar.apps.basket.middleware.BasketMiddleware"]
TEMPLATES = templates(
    "oscar.apps.search.context_processors.search_form",
    "oscar.apps.checkout.context_processors.checkout",
    "oscar.apps.communication.notifications.context_processors.notifications",
    "oscar.core.context_processors.metadata",
)
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]
# Whoosh, because the catalogue page is a search, too, which Haystack's simple engine answers with nothing.
HAYSTACK_CONNECTIONS = {
    "default": {"ENGINE": "haystack.backends.whoosh_backend.WhooshEngine", "PATH": str(FOLDER / "index")}
}
OSCAR_SEARCH_FACETS: dict[str, dict[str, object]] = {"fields": {}, "queries": {}}
STATICFILES_DIRS: list[str] = []
STATIC_ROOT = str(FOLDER / "static")
OSCAR_SHOP_NAME = "Gantry & Wick"
OSCAR_DEFAULT_CURRENCY = "GBP"
OSCAR_ALLOW_ANON_CHECKOUT = False
OSCAR_INITIAL_ORDER_STATUS = "Pending"
OSCAR_INITIAL_LINE_STATUS = "Pending"
OSCAR_ORDER_STATUS_PIPELINE = {
    "Pending": ("Being processed", "Cancelled"),
    "Being processed": ("Shipped", "Cancelled"),
    "Shipped": ("Complete",),
    "Complete": (),
    "Cancelled": (),
}
