"""Sources of MINT's search tool: recorded answers, the live encyclopedia, a local index of it."""
