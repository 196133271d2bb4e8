"""The generators give parseable lists, every kind of damage, and small examples."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tests.support.provider_rules import problems
from tests.support.strategies import hostile_conversations

Json = dict[str, Any]


QUICK = settings(
    max_examples=100,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),  # explaining the example takes longer than finding it
)

EXAMPLES = pytest.mark.skipif(
    settings.get_current_profile_name() != "ci", reason="this profile draws new examples each time"
)


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


@pytest.mark.slow
# The first example may be large; Hypothesis shrinks it before anybody reads it.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_hostile_conversations_include_lists_that_providers_refuse(format: str) -> None:
    def is_refused(conversation: list[Json]) -> bool:
        return bool(conversation and problems(conversation, format))

    assert len(find(hostile_conversations(format), is_refused, settings=QUICK)) <= 6
