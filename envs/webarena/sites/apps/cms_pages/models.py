"""Page types of the CMS (Wagtail): sections, and articles within them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from wagtail.admin.panels import FieldPanel
from wagtail.fields import RichTextField
from wagtail.models import Page


class SectionPage(Page):
    """A page that lists the published articles of its section."""


class ArticlePage(Page):
    """An article: an intro of one line, and a text in HTML."""

    intro = models.CharField(max_length=250)
    body = RichTextField(blank=True)
    content_panels: ClassVar = [*Page.content_panels, FieldPanel("intro"), FieldPanel("body")]
