"""One evaluation from its command line to its pages: preflight, gold check, suites, export of solved episodes."""
