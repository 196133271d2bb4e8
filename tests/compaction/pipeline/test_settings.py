"""Constants of a policy: changed by name, checked, and scaled to a smaller budget."""

from dataclasses import asdict, fields
from typing import Any

import pytest
from context_compaction.errors import SettingsError
from context_compaction.request import (
    REFERENCE_TARGET_TOKENS,
    REFERENCE_TRIGGER_TOKENS,
    Settings,
    override,
)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("keep_recent_result", 3, "Unknown setting 'keep_recent_result'. Similar settings: keep"),
        ("preview_chars", "many", "preview_chars is 'many'. Pass a whole number of at least 0."),
        ("preview_chars", True, "preview_chars is True. Pass a whole number of at least 0."),
        ("preview_chars", -1, "preview_chars is -1. Pass a whole number of at least 0."),
        ("target_fraction", 0, "target_fraction is 0. Pass a number above 0 and at most 1."),
        ("target_fraction", float("nan"), "target_fraction is nan. Pass a number above 0"),
        ("target_fraction", "a", "target_fraction is 'a'. Pass a number above 0 and at most 1."),
        ("thinking", "drop", "thinking is 'drop'. Pass one of: auto, enabled, strip, keep, error."),
        ("scale_to_budget", 1, "scale_to_budget is 1. Pass true or false."),
        ("protected_tools", "Bash", "protected_tools is 'Bash'. Pass a list of names."),
        ("protected_tools", [1], "protected_tools is [1]. Pass a list of names."),
        ("split_turn", "summary", "The policy fixes the setting 'split_turn'. "),
        ("zzzz", 1, "Unknown setting 'zzzz'. Known settings: estimator, "),
        ("tool_kinds", ["Bash"], "tool_kinds is ['Bash']. Pass an object of tool name to kind"),
        (
            "tool_kinds",
            {"Frob": "reads"},
            "tool_kinds is {'Frob': 'reads'}. Pass an object of tool name to kind (one of: read",
        ),
    ],
)  # fmt: skip
def test_invalid_constant_is_refused_with_valid_values(name: str, value: Any, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        override(Settings(), {name: value})
    assert str(caught.value).startswith(message)


def test_override_changes_only_named_constants() -> None:
    changed = override(
        Settings(),
        {
            "preview_chars": 9,
            "target_fraction": 1,
            "protected_tools": ["Bash"],
            "tool_kinds": {"Frob": "edit"},
            "thinking": "keep",
            "scale_to_budget": False,
        },
    )
    assert changed.preview_chars == 9
    assert changed.target_fraction == 1.0
    assert changed.protected_tools == ("Bash",)
    assert changed.tool_kinds == {"Frob": "edit"}
    differing = [
        item.name
        for item in fields(Settings)
        if getattr(changed, item.name) != getattr(Settings(), item.name)
    ]
    assert len(differing) == 6


def test_thresholds_shrink_with_the_target_and_never_grow() -> None:
    default = Settings()
    assert default.scaled(REFERENCE_TARGET_TOKENS) == default
    assert default.scaled(10 * REFERENCE_TARGET_TOKENS) == default
    half, tiny = default.scaled(REFERENCE_TARGET_TOKENS // 2), default.scaled(1)
    assert half.persist_result_tokens == 19_999
    assert half.min_savings_tokens == 9_999
    for name, value in asdict(tiny).items():
        assert value == getattr(default, name) or value < getattr(default, name), name
    assert tiny.preview_chars == 400
    assert tiny.keep_recent_results == default.keep_recent_results


def test_result_threshold_scales_with_the_trigger() -> None:
    default = Settings()
    half = default.scaled(REFERENCE_TARGET_TOKENS // 10, REFERENCE_TRIGGER_TOKENS // 2)
    assert (half.persist_result_tokens, half.persist_newest_chars) == (20_000, 100_000)
    assert half.preview_chars == 1_000
    assert half.min_savings_tokens == 1_999
