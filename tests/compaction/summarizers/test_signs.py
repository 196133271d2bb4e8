"""The word lists of each language recognize their own examples."""

import pytest
from context_compaction.summarizers.instructions.sentences import (
    Sign,
    languages,
    lower_case,
    sign_pattern_in,
)
from hypothesis import given
from hypothesis import strategies as st

EXAMPLES = [
    (language, name, example)
    for language, data in languages().items()
    for name, table in data.items()
    for example in table["examples"]
]


@pytest.mark.parametrize(("language", "name", "example"), EXAMPLES)
def test_example_has_its_sign_by_its_language_alone(
    language: str, name: Sign, example: str
) -> None:
    assert sign_pattern_in(name, [languages()[language]]).search(lower_case(example))


@given(st.text())
def test_lower_case_keeps_every_position(text: str) -> None:
    lower = lower_case(text)
    assert len(lower) == len(text)
    assert all(a == b or a.isupper() or a.istitle() for a, b in zip(text, lower, strict=True))
