"""How the published numbers of the built-in benchmarks were made: the protocols of ``published_protocols.toml``."""

from typing import Any

from lemur_ray.benchmarks.run_notes import PublishedProtocol
from lemur_ray.benchmarks.table3 import ColumnProtocol
from lemur_ray.host.json_files import toml_beside

_DECLARED = toml_beside(__file__)


def published_protocol(name: str, **code: Any) -> PublishedProtocol:
    """The protocol ``name``. ``code``: fields that are no text, such as ``further``."""
    return PublishedProtocol(**_DECLARED[name], **code)


def column_protocol(name: str, **code: Any) -> ColumnProtocol:
    """The protocol ``name`` of a column of the paper's Table 3. ``code``: fields that are no text: ``options``,
    ``further``."""
    return ColumnProtocol(**_DECLARED[name], **code)
