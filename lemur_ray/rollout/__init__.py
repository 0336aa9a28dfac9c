"""Episodes played in parallel: one episode, the pool, the run with its retries, the ledger. Names no benchmark."""
