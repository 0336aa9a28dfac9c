"""Migrations of the CMS's own tables. They run after Wagtail's, which insert its first rows."""
