"""Token ids in streams, as in whole answers, where they are asked for."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lemur_ray.serve.openai.checked_requests import parse_chat, parse_completion
from lemur_ray.serve.openai.response_bodies import Answer
from lemur_ray.serve.reply_types import Piece


class Letters:
    """A model whose tokens are letters; 0 ends a reply."""

    name, stop_ids = "m", frozenset({0})

    def byte_stream(self, before: Sequence[int]) -> Callable[[int], bytes]:
        return self.spelling

    def spelling(self, token: int) -> bytes:
        return bytes([token])

    def text(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode()


PIECES = [
    Piece(0, "a", (97,), None, 0),
    Piece(0, "", (98, 99), None, 0),
    Piece(0, "bcd", (100,), None, 0),
    Piece(0, "", (0,), "stop", 0),
]


@pytest.mark.parametrize("is_chat", [True, False])
def test_the_ids_of_all_chunks_are_those_of_the_reply(is_chat: bool) -> None:
    asked: dict[str, Any] = {"model": "m", "stream": True, "return_token_ids": True}
    if is_chat:
        common = parse_chat({**asked, "messages": [{"role": "user", "content": "x"}]}).common
    else:
        common = parse_completion({**asked, "prompt": [5, 6]}).common
    answer = Answer(Letters(), common, [(5, 6)], is_chat)
    chunks = [answer.deltas(piece) for piece in PIECES]
    assert [list(itertools.chain(*(c["token_ids"] for c in some))) for some in chunks] == [[97], [98, 99], [100], [0]]
    said = [c["delta"].get("content", "") if is_chat else c["text"] for c in itertools.chain(*chunks)]
    assert "".join(said) == "abcd"
    assert [c["finish_reason"] for c in itertools.chain(*chunks)][-1] == "stop"
    assert answer.prompt_ids() == {"prompt_token_ids": [5, 6]}


def test_nobody_who_did_not_ask_gets_any() -> None:
    answer = Answer(Letters(), parse_completion({"model": "m", "prompt": [5], "stream": True}).common, [(5,)], False)
    chunks = [answer.deltas(piece) for piece in PIECES]
    assert [len(some) for some in chunks] == [1, 0, 1, 1]
    assert not any("token_ids" in chunk for chunk in itertools.chain(*chunks))
    assert answer.prompt_ids() == {}
