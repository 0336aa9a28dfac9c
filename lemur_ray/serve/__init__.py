"""Serving of a chat model: the engine, its computation on devices, OpenAI's protocol, HTTP and Ray Serve."""
