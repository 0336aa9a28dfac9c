"""Pages on the data of pretraining: a corpus, and a study of mixtures."""
