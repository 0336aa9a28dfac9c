"""URL routes of the shop: all of django-oscar's and media files, none of Django's own admin."""

from __future__ import annotations

from django.apps import apps
from django.conf import settings
from django.urls import include, path
from django.views.static import serve

urlpatterns = [
    path("i18n/", include("django.conf.urls.i18n")),
    path("media/<path:path>", serve, {"document_root": settings.MEDIA_ROOT}),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
