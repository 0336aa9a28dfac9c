"""DS-1000: code snippets that use seven data science libraries."""
