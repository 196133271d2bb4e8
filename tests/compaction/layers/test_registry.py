"""The registry of layers: a new layer needs a function and an entry."""

import pytest
from context_compaction import policies
from context_compaction.layers import LAYERS
from context_compaction.layers.base import Layer, LayerContext, Place, clear_result, replace_blocks
from context_compaction.messages.model import Messages, Step, ToolResult
from context_compaction.policies import POLICIES, Policy

from tests.support.small import answered, compacted, lines, user


def clear_first_result(messages: Messages, context: LayerContext) -> Step:
    """Clear the oldest result: a layer that is not in the registry."""
    found = (
        (Place(at, nth), block)
        for at, message in enumerate(messages)
        for nth, block in enumerate(message.blocks)
        if isinstance(block, ToolResult)
    )
    place, result = next(found)
    done = clear_result(result, "Bash", context.count)
    chosen = {place: done} if done is not None else {}
    return replace_blocks(messages, chosen, layer="first")


@pytest.mark.parametrize("acts_below_trigger", [False, True])
async def test_new_layer_runs_when_it_is_registered(
    monkeypatch: pytest.MonkeyPatch, *, acts_below_trigger: bool
) -> None:
    layer = Layer(clear_first_result, "cleared the first", acts_below_trigger=acts_below_trigger)
    monkeypatch.setattr(policies, "LAYERS", {**LAYERS, "first": layer})
    policy = Policy("mine", "Clears the oldest result.", ("first",))
    monkeypatch.setattr(policies, "POLICIES", {**POLICIES, "mine": policy})
    payload = [user("go"), *answered("c1", "Bash", lines("n", 200), command="run")]

    quiet = await compacted(payload, policy="mine")
    asked = await compacted(payload, policy="mine", mode="micro")

    assert [layer.name for layer in asked.layers] == ["first"]
    assert [edit.action for edit in asked.edits] == ["cleared"]
    assert quiet.changed is acts_below_trigger


def test_layers_are_all_used_by_a_policy() -> None:
    named = {name for policy in POLICIES.values() for name in policy.layers}
    assert named == set(LAYERS)
