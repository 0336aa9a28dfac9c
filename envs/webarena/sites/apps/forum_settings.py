"""Django settings of the forum (django-machina), which replaces WebArena's Reddit."""

from __future__ import annotations

from machina import MACHINA_MAIN_STATIC_DIR, MACHINA_MAIN_TEMPLATE_DIR
from shared_settings import *  # noqa: F403
from shared_settings import BEFORE, DJANGO, FOLDER, NoMigrations, templates

ROOT_URLCONF = "forum_urls"
MIGRATION_MODULES = NoMigrations()
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "forum_session", "forum_csrf"
LOGIN_URL, LOGIN_REDIRECT_URL = "/login/", "/"
PARTS = ("conversation", "conversation.forum_attachments", "conversation.forum_polls", "feeds", "moderation", "search")
INSTALLED_APPS = [
    *DJANGO,
    "mptt",
    "haystack",
    "widget_tweaks",
    "machina",
    "machina.apps.forum",
    *(f"machina.apps.forum_{part}" for part in (*PARTS, "tracking", "member", "permission")),
]
MIDDLEWARE = [*BEFORE, "machina.apps.forum_permission.middleware.ForumPermissionMiddleware"]
LOGIN = (
    "<!doctype html><title>Log in</title><form method='post'>{% csrf_token %}{{ form.as_p }}"
    "<button type='submit'>Log in</button></form>"
)
TEMPLATES = templates(
    "machina.core.context_processors.metadata", folders=(MACHINA_MAIN_TEMPLATE_DIR,), texts={"log_in.html": LOGIN}
)
STATICFILES_DIRS = [MACHINA_MAIN_STATIC_DIR]
CACHES = {
    name: {"BACKEND": "django.core.cache.backends.dummy.DummyCache"} for name in ("default", "machina_attachments")
}
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
MACHINA_FORUM_NAME = "The Long Bench"
MACHINA_MARKUP_LANGUAGE = None
MACHINA_DEFAULT_AUTHENTICATED_USER_FORUM_PERMISSIONS = [
    "can_see_forum", "can_read_forum", "can_start_new_topics", "can_reply_to_topics", "can_edit_own_posts",
    "can_delete_own_posts", "can_post_without_approval", "can_create_polls", "can_vote_in_polls",
]  # fmt: skip
STATIC_ROOT = str(FOLDER / "static")
