"""Runs a Django site: ``build NAME FOLDER`` creates its database, ``serve NAME FOLDER PORT`` serves it.

NAME is shop, forum or cms, with ``NAME_settings``, ``NAME_urls`` and ``NAME_seed`` in this folder. Ends when standard
input does, so with the process that started it. Imports nothing of the project."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from parent_watch import end_with_input


def main() -> None:
    """Build or serve a site, as the command line says (see the module). ``FOLDER/content.json`` is the content to build
    with, ``FOLDER/key`` the secret key."""
    what, name, folder, *port = sys.argv[1:]
    os.environ["SITE_FOLDER"] = folder
    os.environ["DJANGO_SETTINGS_MODULE"] = f"{name}_settings"
    import django

    django.setup()
    if what == "build":
        build(name, Path(folder))
    else:
        serve(int(port[0]))


def build(name: str, folder: Path) -> None:
    """Create the database tables of the site ``name`` and write the content in ``folder`` to them."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False, run_syncdb=True)
    if name == "shop":
        from shop_seed import seed
    elif name == "forum":
        from forum_seed import seed
    else:
        from cms_seed import seed
    seed(json.loads((folder / "content.json").read_text(encoding="utf-8")))


def serve(port: int) -> None:
    """Serve the site at 127.0.0.1 until standard input ends."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import WSGIRequestHandler, get_internal_wsgi_application, run

    def quiet(self: WSGIRequestHandler, *args: object) -> None:
        """Log no requests."""

    WSGIRequestHandler.log_message = quiet
    handler = StaticFilesHandler(get_internal_wsgi_application())
    end_with_input(os.environ["SITE_FOLDER"])
    run("127.0.0.1", port, handler, threading=True)


if __name__ == "__main__":
    main()
