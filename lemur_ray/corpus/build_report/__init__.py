"""What a build reports: progress while it runs, and the statistics of the corpus for its page."""
