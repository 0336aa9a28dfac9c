"""Creates the database tables of the CMS's page types."""

from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
import wagtail.fields
from django.db import migrations, models

_PARENT = models.OneToOneField(
    auto_created=True,
    on_delete=django.db.models.deletion.CASCADE,
    parent_link=True,
    primary_key=True,
    serialize=False,
    to="wagtailcore.page",
)


class Migration(migrations.Migration):
    """Creates the tables of sections and articles; the only migration."""

    initial = True
    dependencies: ClassVar = [("wagtailcore", "__latest__")]
    operations: ClassVar = [
        migrations.CreateModel("SectionPage", [("page_ptr", _PARENT)], {"abstract": False}, ("wagtailcore.page",)),
        migrations.CreateModel(
            "ArticlePage",
            [
                ("page_ptr", _PARENT.clone()),
                ("intro", models.CharField(max_length=250)),
                ("body", wagtail.fields.RichTextField(blank=True)),
            ],
            {"abstract": False},
            ("wagtailcore.page",),
        ),
    ]
