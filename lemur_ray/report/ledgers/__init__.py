"""Ledgers for reports: streamed, searched, exported to other formats."""
