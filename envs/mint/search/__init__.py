"""Sources of MINT's search tool: recorded answers, live Wikipedia, or a local index of it."""
