"""Tool calls are classified by names that hosts and MCP servers really use, and by arguments."""

from typing import Any

import pytest
from context_compaction.activity.calls import (
    Writes,
    changes_of,
    classify,
    is_steering,
    plain_path,
)
from context_compaction.messages.model import ToolCall
from context_compaction.request import ToolKind

FILE = {"file_path": "src/x.py"}
PATH = {"path": "src/x.py"}

KINDS: list[tuple[str, dict[str, Any], ToolKind]] = [
    # Claude Code
    ("Read", FILE, "read"),
    ("Write", {**FILE, "content": "x"}, "write"),
    ("Edit", {**FILE, "old_string": "a", "new_string": "b"}, "edit"),
    ("MultiEdit", {**FILE, "edits": []}, "edit"),
    ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "x"}, "notebook"),
    ("NotebookRead", {"notebook_path": "a.ipynb"}, "notebook"),
    ("Bash", {"command": "ls"}, "execute"),
    ("BashOutput", {"bash_id": "1"}, "execute"),
    ("Grep", {"pattern": "x", "path": "src"}, "search"),
    ("Glob", {"pattern": "**/*.py"}, "list"),
    ("LS", {"path": "/src"}, "list"),
    ("WebFetch", {"url": "https://a.example", "prompt": "x"}, "web"),
    ("WebSearch", {"query": "x"}, "web"),
    ("Task", {"prompt": "x", "description": "y"}, "other"),
    # Anthropic's own tools
    ("str_replace_based_edit_tool", {"command": "view", **PATH}, "read"),
    ("str_replace_based_edit_tool", {"command": "create", **PATH, "file_text": "x"}, "write"),
    ("str_replace_based_edit_tool", {"command": "str_replace", **PATH}, "edit"),
    ("str_replace_editor", {"command": "insert", **PATH}, "edit"),
    ("web_search", {"query": "x"}, "web"),
    ("bash", {"command": "ls"}, "execute"),
    # Codex
    ("shell", {"command": ["bash", "-lc", "ls"]}, "execute"),
    ("functions.exec_command", {"cmd": "ls"}, "execute"),
    ("write_stdin", {"session_id": 1, "chars": "y"}, "execute"),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n"}, "edit"),
    ("local_shell", {"command": ["ls"]}, "execute"),
    # Gemini CLI
    ("read_file", {"absolute_path": "/src/x.py"}, "read"),
    ("read_many_files", {"paths": ["a", "b"]}, "other"),
    ("write_file", {**FILE, "content": "x"}, "write"),
    ("replace", {**FILE, "old_string": "a", "new_string": "b"}, "edit"),
    ("search_file_content", {"pattern": "x"}, "search"),
    ("list_directory", {"path": "/src"}, "list"),
    ("run_shell_command", {"command": "ls"}, "execute"),
    ("google_web_search", {"query": "x"}, "web"),
    # Cursor, Cline, Windsurf, VS Code
    ("edit_file", {"target_file": "x.py", "code_edit": "y"}, "edit"),
    ("run_terminal_cmd", {"command": "ls"}, "execute"),
    ("codebase_search", {"query": "x"}, "search"),
    ("file_search", {"query": "x"}, "search"),
    ("list_dir", {"relative_workspace_path": "."}, "list"),
    ("execute_command", {"command": "ls"}, "execute"),
    ("replace_in_file", {**PATH, "diff": "x"}, "edit"),
    ("write_to_file", {**PATH, "content": "x"}, "write"),
    ("view_file", {"AbsolutePath": "/x", "path": "/x"}, "read"),
    ("run_in_terminal", {"command": "ls"}, "execute"),
    ("insert_edit_into_file", {"filePath": "x"}, "edit"),
    ("read_file", {"filePath": "/x.py", "startLine": 1, "endLine": 9}, "read"),
    ("view_line_range", {"AbsolutePath": "/x", "StartLine": 1}, "read"),
    ("create_file", {"filePath": "/x.py", "content": "y"}, "write"),
    # OpenHands, SWE-agent, aider, pi, opencode
    ("execute_bash", {"command": "ls"}, "execute"),
    ("execute_ipython_cell", {"code": "1+1"}, "notebook"),
    ("open_file", PATH, "read"),
    ("create_file", {"filename": "a.py"}, "write"),
    ("read", PATH, "read"),
    ("multiedit", {"filePath": "x", "edits": []}, "edit"),
    ("browser_navigate", {"url": "x"}, "web"),
    # MCP servers, with the prefixes that hosts put before their names
    ("mcp__filesystem__read_text_file", PATH, "read"),
    ("mcp__fs__write_file", {**PATH, "content": "x"}, "write"),
    ("mcp__filesystem__list_directory", PATH, "list"),
    ("mcp__filesystem__directory_tree", PATH, "list"),
    ("mcp__filesystem__search_files", {"pattern": "x", **PATH}, "search"),
    ("filesystem.edit_file", {**PATH, "edits": []}, "edit"),
    ("mcp__git__git_diff", {"repo_path": "."}, "other"),
    ("mcp__github__get_file_contents", {**PATH, "owner": "a", "repo": "b"}, "read"),
    ("mcp__github__create_issue", {"title": "x"}, "other"),
    ("mcp__github__search_code", {"q": "x"}, "search"),
    ("mcp__playwright__browser_click", {"ref": "e1"}, "web"),
    ("mcp__fetch__fetch", {"url": "x"}, "web"),
    ("mcp__postgres__query", {"sql": "select 1"}, "search"),
    ("mcp__jupyter__execute_cell", {"code": "1"}, "notebook"),
    ("mcp__slack__post_message", {"text": "x"}, "other"),
    ("mcp__linear__open_issue", {"id": "1"}, "other"),
    ("server/read_resource", {"path": "a"}, "read"),
    ("", {}, "other"),
    ("🙂", {"x": 1}, "other"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "kind"), KINDS)
def test_classify_finds_the_kind_of_tools_of_real_hosts(
    name: str, arguments: dict[str, Any], kind: ToolKind
) -> None:
    assert classify(ToolCall("a", name, arguments)).kind == kind


@pytest.mark.parametrize("key", ["filePath", "FilePath", "TargetFile", "AbsolutePath"])
def test_classify_ignores_case_and_underscores_of_argument_names(key: str) -> None:
    use = classify(ToolCall("a", "read_file", {key: "x.py", "startLine": 3}))
    assert (use.kind, use.path, bool(use.range)) == ("read", "x.py", True)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"command": "ls -l"}, "ls -l"),
        ({"command": ["bash", "-lc", "ls -l"]}, "ls -l"),
        ({"command": ["ls", "my notes"]}, "ls 'my notes'"),
        ({"cmd": "ls"}, "ls"),
        ("ls -l", "ls -l"),
        ({"timeout": 3}, None),
    ],
)
def test_classify_finds_the_command_line(arguments: Any, command: str | None) -> None:
    assert classify(ToolCall("a", "shell", arguments)).command == command


def test_classify_finds_the_first_file_of_a_patch() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n*** Add File: b.py\n*** End Patch"
    for arguments in (patch, {"input": patch}):
        use = classify(ToolCall("a", "apply_patch", arguments))
        assert (use.kind, use.path, use.command) == ("edit", "src/a.py", None)


def test_kind_given_by_the_caller_takes_precedence() -> None:
    use = classify(ToolCall("a", "Frobnicate", PATH), {"frobnicate": "edit"})
    assert use.kind == "edit"
    assert classify(ToolCall("a", "Read", FILE), {"Read": "web"}).kind == "web"


@pytest.mark.parametrize(
    ("name", "steers"),
    [
        ("TodoWrite", True), ("update_plan", True), ("AskUserQuestion", True), ("Skill", True),
        ("ExitPlanMode", True), ("ask_followup_question", True), ("mcp__todo__todo_write", True),
        ("request_user_input", True),
        ("Read", False), ("Bash", False), ("task", False), ("explain", False), ("planet", False),
    ],
)  # fmt: skip
def test_is_steering_recognizes_plan_question_and_skill_tools(name: str, steers: bool) -> None:
    assert is_steering(name) is steers


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("./src//a.py", "src/a.py"), ("/d/x/../y.py", "/d/y.py"), ("D:\\w\\a.py", "D:/w/a.py"),
        ("d:/w/./a.py", "D:/w/a.py"), ("src\\My Docs\\a.py", "src/My Docs/a.py"),
        ("a\\ b.py", "a\\ b.py"), ("https://a/b//c", "https://a/b//c"), ("c:", "C:/"),
    ],
)  # fmt: skip
def test_plain_path_returns_one_spelling_for_each_path(path: str, plain: str) -> None:
    assert plain_path(path) == plain_path(plain_path(path)) == plain


def test_text_about_patches_is_no_patch() -> None:
    text = "Answer with:\n*** Begin Patch\n[your patch]\n*** End Patch\n"
    call = ToolCall("t", "Write", {"file_path": "prompt.md", "content": text})
    assert changes_of(call, classify(call)) == [Writes("prompt.md", text, False)]
    call = ToolCall("t", "apply_patch", {"input": text})
    assert changes_of(call, classify(call)) == [Writes("", None)]
