"""Endpoints of an evaluation: their options and models, and one limit of concurrent requests for all processes."""
