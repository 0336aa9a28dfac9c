"""A follower takes only the version of new weights that its leader takes."""

import queue
from unittest.mock import Mock

import pytest

from lemur_ray.serve.compute import lockstep
from lemur_ray.serve.compute.wire import called, encode
from lemur_ray.serve.engine.errors import EngineClosed


@pytest.mark.parametrize("staged", [[], [("seed 2", object())]])
def test_a_follower_refuses_to_replace_its_weights_by_another_version(staged: list) -> None:
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    calls.put(encode("replace", ("seed 1",), []))
    calls.put(encode("close", (), []))
    programs, line = Mock(), Mock()
    with pytest.raises(ValueError, match=r"the leader uses the weights seed 1, but (seed 2|none) are staged here"):
        lockstep._make_calls(programs, calls, staged, line)
    programs.replace.assert_not_called()
    line.send.assert_not_called()


def test_a_leader_names_the_version_that_it_takes_and_takes_no_other_than_the_last_staged() -> None:
    line, received = Mock(), queue.SimpleQueue[bytes]()
    line.receive.side_effect = received.get
    received.put(encode("staged", ("seed 1",), []))
    group = lockstep.Group([line], "seed 0")
    weights = object()
    assert group.stage("1", "seed 1", lambda: weights) is weights
    with pytest.raises(EngineClosed, match="staged the weights seed 1, this one others"):
        group.send_replace(object())
    group.send_replace(weights)
    group.drop()
    with pytest.raises(EngineClosed, match="staged the weights none"):
        group.send_replace(weights)
    assert [called(call.args[0]) for call in line.send.call_args_list] == ["stage", "replace", "drop"]
