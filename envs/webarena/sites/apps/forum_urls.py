"""URL routes of the forum: login, logout, and those of django-machina."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

urlpatterns = [
    path("login/", LoginView.as_view(template_name="log_in.html"), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("", include("machina.urls")),
]
