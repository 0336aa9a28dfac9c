"""The chat model as a service: an engine, what computes for it, OpenAI's protocol, then HTTP and Ray around it."""
