"""URLs of the CMS: its admin, and the pages."""

from __future__ import annotations

from django.urls import include, path
from wagtail import urls as pages
from wagtail.admin import urls as admin
from wagtail.documents import urls as documents

urlpatterns = [path("admin/", include(admin)), path("documents/", include(documents)), path("", include(pages))]
