"""The library's public door: which names it has, and that opening it loads nothing heavy."""

import json
import subprocess
import sys

import context_compaction
import pytest

from tests.support.environment import unmeasured

HEAVY = ["aiofiles", "anthropic", "anyio", "mcp", "pydantic", "sqlite3", "tiktoken", "zstandard"]

IMPORT = """
import json, sys
import context_compaction
print(json.dumps({"modules": sorted(sys.modules)}))
"""


def test_the_public_names_are_these() -> None:
    assert context_compaction.__all__ == [
        "AccessToken",
        "AnthropicModel",
        "Archive",
        "ArchiveBusyError",
        "ArchiveDamagedError",
        "ArchiveError",
        "ArchiveFullError",
        "ArchivedMessage",
        "Blob",
        "Block",
        "Boundary",
        "Budget",
        "CompactRequest",
        "CompactResult",
        "CompactedLists",
        "CompactionError",
        "CompactionStats",
        "ContextEntry",
        "Conversation",
        "Copied",
        "CurrentContext",
        "DEFAULT_TENANT",
        "DiskFile",
        "Document",
        "Edit",
        "FORMATS",
        "Health",
        "History",
        "Hit",
        "HookError",
        "Image",
        "InvalidMessageError",
        "JsonObject",
        "LayerReport",
        "LocalArchive",
        "MAX_HITS_PER_OUTPUT",
        "Message",
        "MessageCounter",
        "Messages",
        "Mode",
        "ModelAnswer",
        "ModelPrompt",
        "ModelUsage",
        "NewSession",
        "NotFoundError",
        "Opaque",
        "OutputInfo",
        "PASSAGE_CHARS",
        "POLICIES",
        "PathNotAllowedError",
        "Piece",
        "Policy",
        "Prepared",
        "PromptTooLongError",
        "PrunePlan",
        "PruneRules",
        "Query",
        "QueryError",
        "REDACTION_MODES",
        "Recognised",
        "RedactionMode",
        "ReportProgress",
        "Roots",
        "SETTING_NAMES",
        "SNIPPET_CHARS",
        "STRATEGY_NAMES",
        "SearchPage",
        "SessionInfo",
        "SessionUsage",
        "Settings",
        "SettingsError",
        "Splice",
        "Status",
        "StoredReceipt",
        "SummarizerName",
        "SummaryError",
        "SummaryModel",
        "SummaryPrompt",
        "TERMINAL_CODE",
        "TellChars",
        "Text",
        "Thinking",
        "TokenReport",
        "ToolCall",
        "ToolResult",
        "UnknownFormatError",
        "Usage",
        "VocabularyError",
        "WRITERS",
        "answer_tokens",
        "append_to_session",
        "apply_splices",
        "asked_times",
        "check_tenant",
        "claimed_span",
        "classify",
        "compact",
        "compact_json",
        "convert",
        "copy_archive",
        "counter_for",
        "current_context",
        "default_folders",
        "detect",
        "goes_on",
        "history_hash",
        "host_folders",
        "ids_in_placeholder",
        "is_encoded",
        "is_list",
        "is_object",
        "is_request",
        "make_blob",
        "make_budget",
        "make_folder",
        "make_splices",
        "name_if_current",
        "named_arguments",
        "open_archive",
        "open_matcher",
        "output_id_of",
        "parse",
        "passage_span",
        "persisted",
        "plan_of",
        "policy_named",
        "preview",
        "profile_for",
        "put_file",
        "read_conversation",
        "read_losses",
        "redact",
        "redact_json",
        "render",
        "result_text",
        "role_of",
        "roots_of",
        "seems_synthetic",
        "session_notes",
        "shown_address",
        "split_system",
        "text_of",
        "tool_calls",
        "tool_results",
        "with_losses",
    ]


@pytest.mark.parametrize("name", context_compaction.__all__)
def test_each_public_name_loads(name: str) -> None:
    assert getattr(context_compaction, name) is not None
    assert name in dir(context_compaction)


def test_every_public_error_is_a_compaction_error() -> None:
    errors = [name for name in context_compaction.__all__ if name.endswith("Error")]
    assert len(errors) > 10
    for name in errors:
        assert issubclass(getattr(context_compaction, name), context_compaction.CompactionError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compakt'"):
        getattr(context_compaction, "compakt")  # noqa: B009  # pyright sees that it is missing


def test_importing_the_library_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env=unmeasured(),
        capture_output=True,
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    report = json.loads(done.stdout)
    assert set(report["modules"]).isdisjoint(HEAVY)
