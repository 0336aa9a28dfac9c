"""Head and tail of long output, for any chopping into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lemur_ray.sandbox.output import HeadTail


@given(st.lists(st.binary(max_size=60), max_size=40), st.integers(2, 200))
def test_nothing_is_lost_without_being_counted(pieces: list[bytes], budget: int) -> None:
    kept = HeadTail(budget)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    data, dropped = kept.result()
    if len(whole) <= budget:
        assert (data, dropped) == (whole, 0)
        return
    mark = b"\n[... %d bytes dropped ...]\n" % dropped
    head, _, tail = data.partition(mark)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + len(tail) + dropped == len(whole)
    assert len(head) + len(tail) <= budget


@given(st.text(min_size=100, max_size=300), st.integers(20, 60))
def test_a_character_is_never_cut(text: str, budget: int) -> None:
    kept = HeadTail(budget)
    kept.add(text.encode("utf-8", "replace"))
    data, _ = kept.result()
    data.decode("utf-8")
