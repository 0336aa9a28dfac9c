"""OpenAI's protocol as values: request and response bodies, tools, structured output. Knows no HTTP."""
