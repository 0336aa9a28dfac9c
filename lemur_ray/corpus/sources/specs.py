"""Specifications of sources: where a source lies, and how its documents are read, filtered and limited.

Written as ``NAME:KIND:PATH`` on the command line or as entries of a YAML file. Lists and reads no source."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import yaml

from lemur_ray.corpus.cleaning.filters import filter_set
from lemur_ray.corpus.documents import Kind
from lemur_ray.host.exit_codes import CausedError
from lemur_ray.outside_data.byte_stream import ReadFailure, read_all

KINDS = get_args(Kind)[:2]
CATALOGUE = "catalogue:"
"""Prefix of a path that names a data set of the catalogue, as ``fetch_data.py --list`` shows it."""
_FILE_BYTES = 4 << 20
_COLUMNS = ("text", "licence", "language", "origin")


class CorpusError(CausedError):
    """Raised if a corpus cannot be built or read; the message describes the problem and mostly what to do."""


@dataclass(frozen=True)
class SourceSpec:
    """A source of documents as the user configures it: where it lies (uri or urls), how its columns are called,
    filters, licences and number of tokens. Raises CorpusError if a value is not valid."""

    name: str
    kind: str
    """code or text."""
    uri: str = ""
    """A path, a folder or a pattern: local, ``hf://datasets/OWNER/NAME[@REVISION]/PATTERN``, gs, s3, https, or
    ``catalogue:NAME``. Relative paths start at the folder of the YAML file."""
    urls: str = ""
    """Path or URI of a list of addresses, in place of uri."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Columns of the text, licence, language and origin; dots lead into nested records."""
    filters: str | Mapping[str, Any] = ""
    """Name of a filter set, or {base: NAME, RULE: THRESHOLD, ...}; empty: by kind."""
    licences: tuple[str, ...] = ()
    """Licences whose documents are used; empty: all. A document with several licences needs all of them here."""
    tokens: float = 0.0
    """Tokens wanted after deduplication; 0: all."""
    required: bool = True
    """Whether a build without any document of this source is an error."""
    licence: str = ""
    """Licence of documents that name none themselves; likewise ``language``."""
    language: str = ""
    accept_terms: bool = False
    """Whether the user accepts the terms of a set of the catalogue."""
    folder: str = field(default="", compare=False)
    """Path or URL at which a relative path begins; empty: the working directory."""

    def __post_init__(self) -> None:
        if not self.name.replace("_", "").replace("-", "").isalnum():
            raise CorpusError(f"source {self.name!r}: expected a name of letters, digits, - and _")
        if self.name.startswith("heldout"):
            raise CorpusError(
                f"source name {self.name!r}: names that begin with heldout are the held-out rows'; choose another"
            )
        if self.kind not in KINDS:
            raise CorpusError(f"source {self.name}: kind {self.kind!r}, expected KIND one of {', '.join(KINDS)}")
        if bool(self.uri) == bool(self.urls):
            raise CorpusError(f"source {self.name}: expected either uri or urls")
        if unknown := set(self.fields) - set(_COLUMNS):
            raise CorpusError(f"source {self.name}: fields {sorted(unknown)}, expected some of {', '.join(_COLUMNS)}")
        if wrong := [name for name in self.fields.values() if not isinstance(name, str) or not name]:
            raise CorpusError(f"source {self.name}: fields name {wrong}, expected names of columns")
        try:
            filter_set(self.filters)
        except ValueError as error:
            raise CorpusError(f"source {self.name}: {error}") from error
        if not 0 <= self.tokens < math.inf:  # also NaN
            raise CorpusError(f"source {self.name}: tokens {self.tokens:g}, expected at least 0")

    @property
    def filter_set(self) -> str:
        """Name of the set of quality rules (``cleaning.filters.SETS``) for its documents; "": that of its kind."""
        return self.filters if isinstance(self.filters, str) else str(self.filters.get("base", ""))

    @property
    def place(self) -> str:
        """Path or URI of the files, or of the list of their addresses, with a relative path resolved."""
        path = self.uri or self.urls
        if not self.folder or "://" in path or path.startswith(("/", "~", CATALOGUE)):
            return path
        return f"{self.folder}/{path}"

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as JSON values, without the folder of relative paths."""
        value = dataclasses.asdict(dataclasses.replace(self, folder=""))
        default = dataclasses.asdict(SourceSpec(self.name, self.kind, "-"))
        value = {name: one for name, one in value.items() if one != default[name] or name in ("name", "kind")}
        return {name: list(one) if isinstance(one, tuple) else one for name, one in value.items()}


def parse_source(text: str) -> SourceSpec:
    """Parse ``NAME:KIND:PATH``, with KIND code or text, into a specification. Raises CorpusError for any other form."""
    name, _, rest = text.partition(":")
    kind, _, path = rest.partition(":")
    if not name.replace("_", "").replace("-", "").isalnum() or kind not in KINDS or not path:
        raise CorpusError(f"source {text!r}: expected NAME:KIND:PATH with KIND one of {', '.join(KINDS)}")
    return SourceSpec(name, kind, path)


def read_sources(path: str) -> list[SourceSpec]:
    """Read specifications from a YAML file at a path or URI: a list with a mapping of ``SourceSpec`` fields per source.
    Raises CorpusError if it cannot be read, is empty, or has an unknown field."""
    try:
        entries = yaml.safe_load(read_all(path, _FILE_BYTES).decode())
    except (ReadFailure, ValueError, yaml.YAMLError) as error:
        raise CorpusError(f"--sources: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries) or not entries:
        raise CorpusError(f"--sources {path}: expected a list with a mapping for each source")
    known = [one.name for one in dataclasses.fields(SourceSpec) if one.name != "folder"]
    specs = []
    for number, entry in enumerate(entries, 1):
        where = f"--sources {path}, source {number} ({entry.get('name', 'without a name')})"
        if wrong := [key for key in entry if key not in known]:
            raise CorpusError(f"{where}: unknown {', '.join(map(str, wrong))}; expected some of {', '.join(known)}")
        try:
            specs.append(_spec({**entry, "folder": path.rpartition("/")[0]}))
        except (TypeError, ValueError, AttributeError) as error:
            raise CorpusError(f"{where}: {error}") from error
    return specs


def _spec(entry: Mapping[str, Any]) -> SourceSpec:
    """Specification of one entry. Raises CorpusError, or TypeError, ValueError for values of a wrong type."""
    values = dict(entry)
    values["licences"] = () if values.get("licences") is None else _licences(values["licences"])
    for name in ("name", "kind", "uri", "urls", "licence", "language", "tokens"):
        if isinstance(values.get(name), bool):
            raise ValueError(f"{name} {values[name]!r}, expected a text or number (in YAML, write no in quotes)")
        values[name] = str(values.get(name) or "")
    values["tokens"] = float(values["tokens"] or 0)  # YAML reads 22.0e9 as text
    for name, default, kinds, expected in (
        ("fields", {}, Mapping, "a mapping such as {text: content}"),
        ("filters", "", str | Mapping, "a name or a mapping"),
        ("required", True, bool, "true or false"),
        ("accept_terms", False, bool, "true or false"),
    ):
        values[name] = default if values.get(name) is None else values[name]
        if not isinstance(values[name], kinds):
            raise ValueError(f"{name} {values[name]!r}, expected {expected}")
    return SourceSpec(**values)


def _licences(value: Any) -> tuple[str, ...]:
    """Licences that are allowed, from a list of them or {allow: list}. Raises ValueError for anything else, because a
    restriction that is not understood must not become none."""
    allowed = value.get("allow") if isinstance(value, Mapping) and set(value) == {"allow"} else value
    if not allowed or not isinstance(allowed, list | tuple):
        raise ValueError(f"licences {value!r}, expected {{allow: [LICENCE, ...]}}")
    return tuple(str(one) for one in allowed)
