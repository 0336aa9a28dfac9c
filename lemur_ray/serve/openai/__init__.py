"""OpenAI's protocol as values: bodies checked, answers put into words, tools, structured output. Knows no HTTP."""
