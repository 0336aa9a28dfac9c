"""``make demo``: every job once on a private Ray head, displayed as one screen or as a few lines."""

from lemur_ray.cluster.demo.head import DemoFailed, Head, private_head
from lemur_ray.cluster.demo.pipeline import DemoConfig, run

__all__ = ["DemoConfig", "DemoFailed", "Head", "private_head", "run"]
