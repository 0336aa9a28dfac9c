"""Requests in, tokens out: scheduler, prefix tree, events. Knows no text, HTTP or Ray; what computes is handed in."""
