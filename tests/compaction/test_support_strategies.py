"""The generators give parseable lists, every kind of damage, and small examples."""

import copy
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tests.support.mutations import MUTATIONS, apply
from tests.support.provider_rules import problems
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS, conversations, hostile_conversations

Json = dict[str, Any]

CALLS = (Call("Read", {"path": "a"}, (Part("text", "A"),)), Call("Bash", {}, (Part("text", "B"),)))
TURN = Turn((Part("text", "go"), Part("image")), (Step(CALLS, "I look.", aside="quick"),), "Done.")

QUICK = settings(
    max_examples=100,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),  # explaining the example takes longer than finding it
)

EXAMPLES = pytest.mark.skipif(
    settings.get_current_profile_name() != "ci", reason="this profile draws new examples each time"
)
# Damage that the rules of every format must notice at some index, with or without call IDs.
BREAKS_EVERY_FORMAT = ("drop message", "drop head", "move to front")


@EXAMPLES
def test_the_examples_of_a_property_are_the_same_whatever_was_loaded_before(tmp_path: Path) -> None:
    drawn: list[tuple[str, int]] = []

    @given(st.text(), st.integers())
    def draw(text: str, number: int) -> None:
        drawn.append((text, number))

    draw()
    before = drawn.copy()
    drawn.clear()
    module = tmp_path / "loaded.py"
    module.write_text("SAID = 'zebra giraffe', 98_765_432\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("loaded", module)
    assert spec is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "loaded", importlib.util.module_from_spec(spec))
        draw()
    assert drawn == before


@pytest.mark.parametrize("format", FORMATS)
def test_a_mutation_never_changes_the_list_that_it_was_given(format: str) -> None:
    payload = render([TURN, TURN], format)
    before = copy.deepcopy(payload)
    for name in MUTATIONS:
        for place in range(len(payload)):
            assert all(isinstance(m, dict) for m in apply(name, payload, format, place, 1))
    assert payload == before


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", BREAKS_EVERY_FORMAT)
def test_a_mutation_breaks_a_good_conversation_somewhere(name: str, format: str) -> None:
    payload = render([TURN, TURN], format)
    assert problems(payload, format) == []
    broken = [apply(name, payload, format, place, 0) for place in range(len(payload))]
    assert any(problems(payload, format) for payload in broken)


def test_mutations_change_a_list_in_at_least_one_format() -> None:
    lists = {format: render([TURN, TURN], format) for format in FORMATS}
    for name in MUTATIONS:
        assert any(
            apply(name, payload, format, place, 1) != payload
            for format, payload in lists.items()
            for place in range(len(payload))
        ), name


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_conversations_are_lists_of_json_objects(format: str) -> None:
    @settings(max_examples=10, deadline=None)
    @given(hostile_conversations(format))
    def holds(conversation: list[Json]) -> None:
        assert json.loads(json.dumps(conversation, allow_nan=False)) == conversation
        assert all(isinstance(message, dict) for message in conversation)

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("format", ["anthropic", "gemini"])  # with ids of calls, and without
def test_an_example_with_a_tool_call_shrinks_to_one_short_turn(format: str) -> None:
    def reads_a_file(conversation: list[Json]) -> bool:
        return '"Read"' in json.dumps(conversation)

    smallest = find(conversations(format), reads_a_file, settings=QUICK)
    assert len(smallest) <= 4
    assert len(json.dumps(smallest)) < 1_000


@pytest.mark.slow
# The first example may be large; Hypothesis shrinks it before anybody reads it.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_hostile_conversations_include_lists_that_providers_refuse(format: str) -> None:
    def is_refused(conversation: list[Json]) -> bool:
        return bool(conversation and problems(conversation, format))

    assert len(find(hostile_conversations(format), is_refused, settings=QUICK)) <= 6
