"""JSON with comments: parsing, and changes that preserve all other bytes."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.hosts.config_text import parse_json, rewrite_json

KEYS = st.sampled_from(["a", "b", "servers", "x//y", 'quo"te', "ü", ""])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9_999),
    st.sampled_from(["", "text", "// text", "/* text */", "{", "},\n", "\\", "\u2028"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def written(draw: st.DrawFn, value: Any, depth: int = 0) -> str:
    """Write `value` with arbitrary blanks, comments and trailing commas."""

    def gap() -> str:
        return draw(
            st.sampled_from(["", " ", "\n" + "  " * depth, "\r\n\t", " // c\n", "/* c\nd */", "\t"])
        )

    if isinstance(value, dict):
        opening, closing = "{", "}"
        parts = [
            json.dumps(key, ensure_ascii=draw(st.booleans()))
            + gap()
            + ":"
            + gap()
            + draw(written(item, depth + 1))
            for key, item in cast("dict[str, Any]", value).items()
        ]
    elif isinstance(value, list):
        opening, closing = "[", "]"
        parts = [draw(written(item, depth + 1)) for item in cast("list[Any]", value)]
    else:
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    comma = "," if parts and draw(st.booleans()) else ""
    body = ("," + gap()).join(gap() + part + gap() for part in parts)
    return opening + gap() + body + comma + gap() + closing


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    value = draw(DOCUMENTS)
    head = draw(st.sampled_from(["", "\ufeff", "// head\n", "\n\n"]))
    return head + draw(written(value)) + draw(st.sampled_from(["", "\n", " // end"])), value


@given(texts(), DOCUMENTS)
def test_rewritten_text_has_the_new_value_and_is_unchanged_when_the_value_is_equal(
    case: tuple[str, Any], other: Any
) -> None:
    text, value = case
    assert parse_json(text) == value
    assert rewrite_json(text, value) == text
    assert parse_json(rewrite_json(text, other)) == other


@given(texts(), KEYS.map("new-{}".format), VALUES)
def test_rewritten_keeps_all_other_characters_when_a_member_is_added(
    case: tuple[str, Any], key: str, item: Any
) -> None:
    text, value = case
    new = rewrite_json(text, {**value, key: item})
    rest = iter(new)
    assert all(char in rest for char in text if not char.isspace()), new
    assert parse_json(rewrite_json(new, value)) == value


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('{"a": 1', "line 1 column 8"),
        ('{\n  "a" 1\n}', "line 2 column 7"),
        ('{"a": 1} x', "line 1 column 10"),
        ('{"a": 1} /* open', "line 1 column 10"),
        ("{'a': 1}", "line 1 column 2"),
        ('{"a": tru}', "line 1 column 7"),
        ('{"a": 1, "a": 2}', "one name"),
        ('{"a": "x}', "line 1 column 7"),
        ('{"a": 01}', "line 1"),
    ],
)
def test_parse_names_line_and_column_when_the_text_is_invalid(text: str, position: str) -> None:
    with pytest.raises(ValueError, match=position):
        parse_json(text)


def test_rewritten_indents_a_new_member_like_its_neighbours() -> None:
    text = '{\n\t// mine\n\t"servers": {\n\t\t"x": {"command": "y"} // keep\n\t},\n}\n'
    value = parse_json(text)
    value["servers"]["new"] = {"command": "z"}
    assert rewrite_json(text, value) == (
        '{\n\t// mine\n\t"servers": {\n\t\t"new": {\n\t\t\t"command": "z"\n\t\t},\n'
        '\t\t"x": {"command": "y"} // keep\n\t},\n}\n'
    )
