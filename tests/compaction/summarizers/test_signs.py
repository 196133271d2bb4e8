"""The word lists of each language: what they are for, by their own examples."""

import re

import pytest
from context_compaction.summarizers.instructions.signs import Signs, languages, signs_of

EXAMPLES = [
    (language, sign, example)
    for language, data in languages().items()
    for sign, table in data.items()
    for example in table["examples"]
]


@pytest.mark.parametrize(("language", "sign", "example"), EXAMPLES)
def test_an_example_has_its_sign_by_the_words_of_its_language_alone(
    language: str, sign: str, example: str
) -> None:
    pattern: re.Pattern[str] = getattr(signs_of([languages()[language]]), sign)
    assert pattern.search(example)


@pytest.mark.parametrize("language", languages())
def test_a_language_has_tables_of_known_signs_and_known_kinds_only(language: str) -> None:
    known = set(Signs.__dataclass_fields__)
    for sign, table in languages()[language].items():
        assert sign in known
        assert table["examples"]
        assert set(table) <= {"examples", "before", "starts", "clauses", "words", "anywhere"}


@pytest.mark.parametrize("sign", Signs.__dataclass_fields__)
def test_no_sign_is_found_in_a_text_without_words(sign: str) -> None:
    pattern: re.Pattern[str] = getattr(signs_of(list(languages().values())), sign)
    assert pattern.search("") is None
    assert pattern.search("42 × 17 = 714") is None
