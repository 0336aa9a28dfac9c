"""Reader of Open Assistant 1: converts trees of messages to conversations, one for every path from root to leaf.

Both published formats, whole trees and one message per row, give the same conversations. Shared beginnings are
repeated, which matches the paper's number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message, Role
from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.conversation import Conversation, Dropped, ReadResult, readable
from lemur_ray.outside_data.record_formats import BadRecord, records

NAME = "oasst1"
ROLES: dict[str, Role] = {"prompter": "user", "assistant": "assistant"}


@dataclass
class Node:
    """One message of a tree with its replies. ``rank`` orders replies to the same message, best (0) first."""

    id: str
    text: str
    role: Role
    deleted: bool
    lang: str
    rank: float
    replies: list[Node] = field(default_factory=list)


def read_oasst(path: Path, config: SetsConfig) -> Iterator[ReadResult]:
    """Yield the conversations of a file, in which a record is a tree, or a message that names the one it answers in
    ``parent_id``; a Dropped per rejected record, message or path. Raises ValueError or OSError."""
    flat: dict[str, tuple[Node, str | None]] = {}
    for number, record in records(path):
        where = f"{path.name}:{number:08d}"
        try:
            if isinstance(record, BadRecord):
                raise record
            if isinstance(record, dict) and isinstance(record.get("prompt"), dict):
                yield from conversations(_tree(record["prompt"], str(record.get("message_tree_id") or where)), config)
            else:
                node = _node(record, where)
                flat[node.id] = (node, record.get("parent_id"))
        except BadRecord as error:
            yield Dropped(NAME, where, error.reason)
    roots = []
    for node, parent in flat.values():
        if parent is None:
            roots.append(node)
        elif parent in flat:
            flat[parent][0].replies.append(node)
        else:
            yield Dropped(NAME, node.id, "parent_not_in_file")
    for root in roots:
        yield from conversations(root, config)


def conversations(root: Node, config: SetsConfig) -> Iterator[ReadResult]:
    """Yield a conversation for every path that ends in an answer, depth first; a Dropped for every other path.
    A message that is deleted, not in ``config.lang`` (if set) or beyond ``config.top_k_reply`` (if not 0) by rank is
    dropped with its subtree, as one Dropped. A path that ends in a question is dropped, or, with
    ``config.truncate_prompter_leaf``, cut after its last answer (once). root: the first message of the tree."""
    given: set[str] = set()
    path: list[Node] = []
    stack: list[tuple[Node, int]] = [(root, 0)]
    while stack:  # no recursion: the data determines the depth of a tree
        node, depth = stack.pop()
        del path[depth:]
        if why := _drop_reason(node, config):
            yield Dropped(NAME, node.id, why)
            continue
        path.append(node)
        replies = [reply for reply in node.replies if not _drop_reason(reply, config)]
        kept = sorted(replies, key=lambda reply: reply.rank)[: config.top_k_reply or None]
        beyond = {id(reply) for reply in replies} - {id(reply) for reply in kept}
        for reply in node.replies:
            if why := "beyond_top_k_reply" if id(reply) in beyond else _drop_reason(reply, config):
                yield Dropped(NAME, reply.id, why)
        stack += [(reply, depth + 1) for reply in reversed(replies) if id(reply) not in beyond]
        if not replies:
            yield _path_conversation(path, config, given)


def _drop_reason(node: Node, config: SetsConfig) -> str | None:
    """Reason to drop a message and all replies below it, or None to keep it."""
    if node.deleted:
        return "deleted"
    return "other_lang" if config.lang and node.lang != config.lang else None


def _path_conversation(path: list[Node], config: SetsConfig, given: set[str]) -> ReadResult:
    """Conversation of one path from the root to a leaf, or a Dropped. ``given``: ids of last messages used before."""
    leaf = path[-1]
    turns = path
    if leaf.role == "user":
        if not config.truncate_prompter_leaf:
            return Dropped(NAME, leaf.id, "prompter_leaf")
        turns = path[:-1]
        if not turns:
            return Dropped(NAME, leaf.id, "no_assistant_turn")
        if turns[-1].id in given:
            return Dropped(NAME, leaf.id, "same_path_again")
    given.add(turns[-1].id)
    return Conversation(NAME, turns[-1].id, tuple(Message(node.role, node.text) for node in turns))


def _node(record: Any, default_id: str) -> Node:
    """Node of a JSON record, without its replies. Raises BadRecord unless it has a text and a known role."""
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise BadRecord("no_text")
    if record.get("role") not in ROLES:
        raise BadRecord("unknown_role")
    rank = record.get("rank")
    return Node(
        id=str(record.get("message_id") or default_id),
        text=readable(record["text"]),
        role=ROLES[record["role"]],
        deleted=bool(record.get("deleted")),
        lang=str(record.get("lang") or ""),
        rank=float("inf") if rank is None else float(rank),
    )


def _tree(record: dict[str, Any], default_id: str) -> Node:
    """Node of a JSON record with all nested replies. Raises BadRecord if any message is malformed."""
    root = _node(record, default_id)
    pending = [(root, record)]
    while pending:
        node, raw = pending.pop()
        replies = raw.get("replies") or []
        if not isinstance(replies, list):
            raise BadRecord("replies_are_no_list")
        for number, reply in enumerate(replies):
            child = _node(reply, f"{node.id}/{number}")
            node.replies.append(child)
            pending.append((child, reply))
    return root
