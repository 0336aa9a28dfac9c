"""Evaluators of an episode: rules on its answer, its last URL and its pages. Know no browser."""
