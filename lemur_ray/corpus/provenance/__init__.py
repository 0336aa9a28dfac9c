"""Provenance of the rows of a corpus: their documents, licences and origins, and the removal of documents."""
