"""Requests in, tokens out: scheduler, prefix tree, events. Knows no text, HTTP, Ray or devices."""
