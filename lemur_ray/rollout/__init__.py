"""Episodes played in parallel: one episode, actors, the run with its retries, and the ledger that stores results."""
