"""The word lists of each language: what they are for, by their own examples."""

from typing import get_args

import pytest
from context_compaction.summarizers.instructions.signs import Sign, languages, sign, sign_of

EXAMPLES = [
    (language, name, example)
    for language, data in languages().items()
    for name, table in data.items()
    for example in table["examples"]
]


@pytest.mark.parametrize(("language", "name", "example"), EXAMPLES)
def test_an_example_has_its_sign_by_the_words_of_its_language_alone(
    language: str, name: Sign, example: str
) -> None:
    assert sign_of(name, [languages()[language]]).search(example)


@pytest.mark.parametrize("language", languages())
def test_a_language_has_tables_of_known_signs_and_known_kinds_only(language: str) -> None:
    for name, table in languages()[language].items():
        assert name in get_args(Sign)
        assert table["examples"]
        assert set(table) <= {"examples", "before", "starts", "clauses", "words", "anywhere"}


@pytest.mark.parametrize("name", get_args(Sign))
def test_no_sign_is_found_in_a_text_without_words(name: Sign) -> None:
    assert sign(name).search("") is None
    assert sign(name).search("42 × 17 = 714") is None
