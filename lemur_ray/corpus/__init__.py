"""Builds packed token rows from raw code and text. Only on_ray.py imports Ray; knows no plan, model or trainer."""
