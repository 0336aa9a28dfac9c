"""The style sheet that all pages share, so that report, running episodes and chat look like parts of one program.

A page embeds it before its own style, so nothing is fetched."""

from functools import cache
from importlib.resources import files


@cache
def page_style() -> str:
    """Text of ``page_style.css``."""
    return files("lemur_ray.host").joinpath("page_style.css").read_text(encoding="utf-8")
