"""Chat templates in Jinja: lookup in a model's files, and rendering in a sandboxed child process."""
