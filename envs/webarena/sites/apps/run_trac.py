"""Runs Trac, which replaces WebArena's GitLab: ``build FOLDER`` creates its data, ``serve FOLDER PORT`` serves them.

Ends when standard input does. Imports nothing of the project."""

from __future__ import annotations

import datetime
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from parent_watch import end_with_input

warnings.filterwarnings("ignore", module="trac")
PROJECT = "Tollbooth"
START = datetime.datetime(2024, 3, 4, 8, tzinfo=datetime.timezone.utc)  # noqa: UP017


def main() -> None:
    """Run the command line: build reads ``FOLDER/content.json``, serve what build wrote, with
    ``FOLDER/accounts.json``."""
    what, folder, *port = sys.argv[1:]
    if what == "build":
        build(Path(folder))
    else:
        serve(Path(folder), int(port[0]))


def build(folder: Path) -> None:
    """Create a Trac environment with components, milestones, tickets and a wiki page, and the file of accounts."""
    from trac.env import Environment
    from trac.perm import PermissionSystem

    content = json.loads((folder / "content.json").read_text(encoding="utf-8"))
    options = [
        ("trac", "database", "sqlite:db/trac.db"),
        ("project", "name", PROJECT),
        ("project", "url", ""),
        ("trac", "check_auth_ip", "disabled"),
        ("logging", "log_type", "none"),
        ("notification", "smtp_enabled", "disabled"),
        ("components", "tracopt.versioncontrol.*", "disabled"),
        ("header_logo", "src", ""),
        ("project", "footer", ""),
        ("attachment", "max_size", "262144"),
    ]
    env = Environment(str(folder / "env"), create=True, options=options)
    accounts = content["accounts"]["trac"]
    users = {account["user"]: account["password"] for account in accounts}
    (folder / "accounts.json").write_text(json.dumps(users))
    allowed = PermissionSystem(env)
    for action in ("TICKET_CREATE", "TICKET_MODIFY", "TICKET_ADMIN", "MILESTONE_ADMIN", "WIKI_CREATE", "WIKI_MODIFY"):
        for user in users:
            allowed.grant_permission(user, action)
    _fill(env, content)
    env.shutdown()


def _fill(env: Any, content: dict[str, Any]) -> None:
    from trac.ticket.model import Component, Milestone, Ticket
    from trac.wiki.model import WikiPage

    for old in [*Component.select(env), *Milestone.select(env)]:
        old.delete()
    tickets = content["tickets"]
    for name in dict.fromkeys(row["component"] for row in tickets):
        component = Component(env)
        component.name = name
        component.insert()
    for name, due in content["milestones"]:
        milestone = Milestone(env)
        milestone.name = name
        milestone.due = datetime.datetime.fromisoformat(f"{due}T17:00:00+00:00")
        milestone.insert()
    for row in tickets:
        ticket = Ticket(env)
        for field in ("summary", "description", "reporter", "owner", "component", "milestone", "priority"):
            ticket[field] = row[field]
        ticket["type"] = "defect"
        ticket["status"] = "closed" if row["closed"] else "new"
        ticket["resolution"] = "fixed" if row["closed"] else ""
        ticket.insert(when=START + datetime.timedelta(hours=5 * row["number"]))
    page = WikiPage(env, "WikiStart")
    page.text = f"= {PROJECT} =\nTickets, milestones and notes of the {PROJECT} project."
    page.save(content["accounts"]["trac"][0]["user"], "", START)


def serve(folder: Path, port: int) -> None:
    """Serve the Trac environment in ``folder`` at 127.0.0.1 until standard input ends."""
    from trac.web.auth import BasicAuthentication
    from trac.web.main import dispatch_request
    from trac.web.standalone import (
        AuthenticationMiddleware,
        TracEnvironMiddleware,
        TracHTTPRequestHandler,
        TracHTTPServer,
    )

    users = json.loads((folder / "accounts.json").read_text())

    class OfTheseUsers(BasicAuthentication):
        def __init__(self) -> None:
            self.realm = PROJECT

        def test(self, user: str, password: str) -> bool:
            return users.get(user) == password

    def quiet(self: Any, *args: object) -> None:
        """Log no requests."""

    TracHTTPRequestHandler.log_message = quiet
    path = str(folder / "env")
    app = TracEnvironMiddleware(dispatch_request, None, [path], True)
    app = AuthenticationMiddleware(app, {"*": OfTheseUsers()}, Path(path).name)
    end_with_input(str(folder))
    TracHTTPServer(("127.0.0.1", port), app, None, [path], use_http_11=True).serve_forever()


if __name__ == "__main__":
    main()
