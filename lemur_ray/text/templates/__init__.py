"""Chat templates in Jinja: lookup in a model's folder, and rendering in a process that can be killed."""
