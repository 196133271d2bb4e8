"""The messages that are known of a session, by history, by number and by what they say."""

import os
import random
from tempfile import TemporaryFile
from typing import Any

import pytest
from context_compaction.archive import node_table
from context_compaction.archive.node_table import MessageNode, Node, NodeTable, is_message
from context_compaction.errors import ArchiveError
from context_compaction.messages.history_hash import ROOT, chain_hash
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.archive.test_faults import file_size_limit


@given(st.integers(0, 150), st.integers(1, 40), st.randoms(use_true_random=False))
def test_a_table_knows_what_dictionaries_would_however_few_nodes_are_in_memory(
    size: int, newest: int, dice: random.Random
) -> None:
    learnt = _session(size, dice)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_table, "_NEWEST", newest)
        patch.setattr(node_table, "_MOVED", newest // 4 + 1)
        _check_knows(learnt)


def test_a_table_knows_the_whole_of_a_long_session() -> None:
    _check_knows(_session(6_000, random.Random(7)))


def _check_knows(learnt: list[tuple[str, Node]]) -> None:
    table, nodes, messages = NodeTable(), _Nodes(), dict[int, Node]()
    contents = dict[str, list[str]]()
    for name, node in learnt:
        table.add(name, node)
        if name not in nodes:
            contents.setdefault(node.content, []).insert(0, name)
        nodes[name] = node
        if isinstance(node, MessageNode):
            messages[node.seq] = node
    for name, node in nodes.items():
        assert name in table
        assert table.get(name) == node
        assert table.find(name[:12]) == name
    assert {content: [*table.newest_with(content)] for content in contents} == contents
    assert dict(table.messages) == messages
    assert len(table.messages) == len(messages)
    assert bool(table) == bool(learnt)
    for name in (ROOT, "no hash", "f" * 32, "F" * 32):
        assert name not in table
        assert table.get(name) is table.find(name or "-") is None
        assert not [*table.newest_with(name)]
    for seq in (-1, len(learnt)):
        assert seq not in table.messages


def test_without_room_for_its_file_a_table_knows_all_that_it_knew_and_goes_on() -> None:
    learnt = _session(15_000, random.Random(7))
    table = NodeTable()

    def learn(start: int, stop: int) -> None:
        for name, node in learnt[start:stop]:
            table.add(name, node)
        assert all(table.get(name) == node for name, node in learnt[:stop])
        assert {*table.messages} == {node.seq for _, node in learnt[:stop] if is_message(node)}

    learn(0, 6_000)
    with file_size_limit(600_000):
        learn(6_000, 12_000)
    learn(12_000, len(learnt))


_Nodes = dict[str, Node]


def _session(size: int, dice: random.Random) -> list[tuple[str, Node]]:
    """Messages in any order, some twice and some alike, with a few entries of contexts."""
    said = [f"{dice.getrandbits(128):032x}" for _ in range(size)]
    names, learnt = [ROOT], list[tuple[str, Node]]()
    for seq in range(size):
        content = dice.choice(said) if dice.random() < 0.1 else said[seq]
        parent = dice.choice(names) if dice.random() < 0.01 else names[-1]
        names.append(chain_hash(parent, content))
        node = MessageNode(
            seq,
            parent,
            content,
            seq * 2,
            segment=f"writer-{dice.randint(0, 9)}.jsonl",
            offset=dice.getrandbits(40),
            length=dice.getrandbits(20),
            seconds=dice.random() * 2e9,
            format="anthropic",
            role=dice.choice(("user", "assistant")),
        )
        made = Node(-1, parent, f"{dice.getrandbits(128):032x}", seq * 2 + 1, names[-1][:12])
        if dice.random() < 0.05:
            learnt.append((chain_hash(parent, made.content), made))
        learnt += [(names[-1], node)] * (1 + (dice.random() < 0.1))
    if dice.random() < 0.5:
        dice.shuffle(learnt)
    return learnt


@pytest.mark.parametrize("broken", ["unreadable", "cut"])
def test_a_file_that_cannot_be_read_is_an_error_of_the_archive(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[Any] = []

    def made(**options: Any) -> Any:
        files.append(TemporaryFile(**options))  # noqa: SIM115 - closed by the table
        return files[-1]

    monkeypatch.setattr(node_table, "TemporaryFile", made)
    table, learnt = NodeTable(), _session(6_000, random.Random(7))
    for name, node in learnt:
        table.add(name, node)
    table.get(learnt[900][0])  # so that what is asked for next is not at hand
    if broken == "cut":
        files[0].truncate(10)
    else:
        folder = os.open(os.sep, os.O_RDONLY)  # of which no bytes can be read
        os.dup2(folder, files[0].fileno())
        os.close(folder)
    with pytest.raises(ArchiveError, match="start the process again"):
        table.get(learnt[0][0])
