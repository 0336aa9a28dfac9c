"""Django settings of the CMS (Wagtail)."""

from __future__ import annotations

from shared_settings import *  # noqa: F403
from shared_settings import BEFORE, DJANGO, FOLDER, templates

ROOT_URLCONF = "cms_urls"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "cms_session", "cms_csrf"
PARTS = ("users", "snippets", "documents", "images", "search", "admin")
INSTALLED_APPS = [
    "cms_pages", "wagtail.contrib.forms", "wagtail.contrib.redirects", "wagtail.embeds", "wagtail.sites",
    *(f"wagtail.{part}" for part in PARTS), "wagtail", "modelcluster", "taggit", "django_filters", *DJANGO,
]  # fmt: skip
MIDDLEWARE = [*BEFORE, "wagtail.contrib.redirects.middleware.RedirectMiddleware"]
_PAGE = (
    "<!doctype html><html lang='en'><head><title>{{ page.title }}</title></head><body>"
    "<p><a href='/'>Netherport News</a></p><main><h1>{{ page.title }}</h1>"
)
_END = "</main></body></html>"
_CHILDREN = (
    "<ul>{% for one in page.get_children.live %}<li><a href='{{ one.url }}'>{{ one.title }}</a></li>{% endfor %}</ul>"
)
TEMPLATES = templates(
    texts={
        "cms_pages/article_page.html": f"{_PAGE}<p id='intro'>{{{{ page.intro }}}}</p>{{{{ page.body|safe }}}}{_END}",
        "cms_pages/section_page.html": f"{_PAGE}{_CHILDREN}{_END}",
    }
)
WAGTAIL_SITE_NAME = "Netherport News"
WAGTAILADMIN_BASE_URL = "http://127.0.0.1"
WAGTAIL_ENABLE_UPDATE_CHECK = False
WAGTAIL_ENABLE_WHATS_NEW_BANNER = False
WAGTAIL_GRAVATAR_PROVIDER_URL = None
WAGTAILSEARCH_BACKENDS = {"default": {"BACKEND": "wagtail.search.backends.database"}}
STATIC_ROOT = str(FOLDER / "static")
