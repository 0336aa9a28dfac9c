"""Fills an empty CMS (Wagtail) with content: an editor's account, sections, published articles and drafts."""

from __future__ import annotations

from typing import Any

from cms_pages.models import ArticlePage, SectionPage
from django.contrib.auth import get_user_model
from wagtail.models import Page, Site


def seed(content: dict[str, Any]) -> None:
    """Write ``content``'s articles, sections and accounts to the database, in place of Wagtail's welcome page."""
    for account in content["accounts"]["cms"]:
        get_user_model().objects.create_superuser(
            account["user"], f"{account['user']}@example.test", account["password"]
        )
    root = Page.get_first_root_node()
    home = root.add_child(instance=SectionPage(title="Netherport News", slug="news"))
    Site.objects.all().delete()
    Site.objects.create(hostname="127.0.0.1", root_page=home, is_default_site=True, site_name="Netherport News")
    Page.objects.get(slug="home").delete()
    home = Page.objects.get(slug="news")
    sections: dict[str, Any] = {}
    for row in content["articles"]:
        name = row["section"]
        if name not in sections:
            sections[name] = home.add_child(instance=SectionPage(title=name, slug=name.lower()))
        page = sections[name].add_child(
            instance=ArticlePage(
                title=row["title"], slug=row["slug"], intro=row["intro"], body=f"<p>{row['body']}</p>", live=row["live"]
            )
        )
        revision = page.save_revision()
        if row["live"]:
            revision.publish()
