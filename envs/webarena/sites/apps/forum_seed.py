"""Fills an empty forum (django-machina) with content: members, boards, topics with their posts."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission  # noqa: F401 - its table must be there before permissions are given
from machina.core.db.models import get_model
from machina.core.loading import get_class


def seed(content: dict[str, Any]) -> None:
    """Write the members, boards and topics of ``content`` to the database; the last topic of a board is its newest."""
    users = {
        account["name"]: get_user_model().objects.create_user(account["user"], password=account["password"])
        for account in content["accounts"]["forum"]
    }
    forum, topic_of, post_of = (
        get_model("forum", "Forum"),
        get_model("forum_conversation", "Topic"),
        get_model("forum_conversation", "Post"),
    )
    boards: dict[str, Any] = {}
    for row in content["topics"]:
        board = boards.get(row["forum"])
        if board is None:
            board = boards[row["forum"]] = forum.objects.create(name=row["forum"], type=forum.FORUM_POST)
        first = row["posts"][0]
        topic = topic_of.objects.create(
            forum=board, subject=row["subject"], poster=users[first["author"]], type=0, status=0
        )
        for post in row["posts"]:
            post_of.objects.create(
                topic=topic, poster=users[post["author"]], subject=row["subject"], content=post["text"], approved=True
            )
    _let_guests_read()


def _let_guests_read() -> None:
    permission = get_model("forum_permission", "ForumPermission")
    group = get_model("forum_permission", "UserForumPermission")
    for codename in ("can_see_forum", "can_read_forum"):
        granted = permission.objects.get(codename=codename)
        group.objects.create(permission=granted, anonymous_user=True, has_perm=True)


assert get_class  # machina's own loading is set up by the import of its models
