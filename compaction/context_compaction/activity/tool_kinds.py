"""The earlier name of `calls`; goes when nothing imports it."""

from context_compaction.activity.calls import (
    LINES_NAMED,
    TOOL_KINDS,
    ToolUse,
    arguments_by_name,
    brings_report,
    classify,
    gist_of,
    is_bookkeeping,
    is_question,
    is_recalling,
    is_steering,
    words_in_name,
)

__all__ = [
    "LINES_NAMED",
    "TOOL_KINDS",
    "ToolUse",
    "arguments_by_name",
    "brings_report",
    "classify",
    "gist_of",
    "is_bookkeeping",
    "is_question",
    "is_recalling",
    "is_steering",
    "words_in_name",
]
