"""Data sets of the catalogue as sources of a corpus: their addresses, columns, licences and terms."""

import os
from dataclasses import replace

from lemur_ray.corpus.sources.specs import CATALOGUE, CorpusError, SourceSpec
from lemur_ray.host.home import lemur_home, outside_data
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.outside_data.checking import is_there
from lemur_ray.outside_data.required import how_to_have


def catalogue_source(spec: SourceSpec) -> SourceSpec:
    """Replace ``catalogue:NAME`` in a specification by address, columns and licence of the data set NAME; any other
    specification is returned unchanged.
    A set that ``fetch_data.py`` stores as files is read from the folder of outside data sets; a large one is streamed
    from its commit on the Hub. Raises CorpusError for an unknown, withdrawn or absent set, or terms not accepted."""
    if not spec.uri.startswith(CATALOGUE):
        return spec
    name = spec.uri.removeprefix(CATALOGUE)
    known = {one.name: one for one in TRAINING if any(part.path.startswith("corpus/") for part in one.parts)}
    withdrawn = {one.name: one.withdrawn for one in TRAINING if one.withdrawn}
    if name not in known:
        reason = withdrawn.get(name) or f"unknown; the catalogue has {', '.join(known)}"
        raise CorpusError(f"source {spec.name}: data set {name}: {reason}")
    data_set = known[name]
    terms = next((part.terms for part in data_set.parts if part.terms), "")
    if terms and not spec.accept_terms:
        raise CorpusError(f"source {spec.name}: terms to accept first: {terms}. Add accept_terms: true to the source")
    fields = {**data_set.fields, **spec.fields}
    licence = spec.licence or data_set.parts[0].licence
    spec = replace(spec, fields=fields, licence=licence)
    if data_set.streams:
        return replace(spec, uri=data_set.streams[0].address.uri)
    (file,) = data_set.sources
    if file.lists_files:
        return replace(spec, uri="", urls=file.address.uri)
    data = outside_data(os.environ.get("LEMUR_DATA", "")) or lemur_home() / "data"
    if not is_there(file, data):
        raise CorpusError(f"source {spec.name}: {how_to_have(file, name, data)}")
    return replace(spec, uri=str(data / file.path))
