"""The messages that are known of a session, by history, by number and by what they say."""

import random

from context_compaction.archive.node_table import MessageNode, Node, NodeTable
from context_compaction.messages.history_hash import ROOT, chain_hash
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=12)
@given(st.sampled_from((0, 5, 3_500, 7_000)), st.randoms(use_true_random=False))
def test_a_table_knows_what_dictionaries_would_whatever_its_size_and_the_order_of_learning(
    size: int, dice: random.Random
) -> None:
    learnt = _session(size, dice)
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
    for seq in (-1, size):
        assert seq not in table.messages


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
