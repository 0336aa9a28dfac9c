"""Nodes that Ray's autoscaler brings and ends, all on the host of its head. Stands alone, as ``ray_node`` does."""

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray_node import write_ports_down


class FakeNodes(FakeMultiNodeProvider):
    """Ray's own, whose nodes have time to start and may say how much memory they have.

    Ray's hands memory to a node as a resource of somebody's own making, and refuses that: nothing is ever launched.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        write_ports_down(100)

    def _create_node_with_resources_and_labels(self, node_config, tags, count, resources, labels):
        rest = {name: amount for name, amount in resources.items() if name != "memory"}
        super()._create_node_with_resources_and_labels(node_config, tags, count, rest, labels)
