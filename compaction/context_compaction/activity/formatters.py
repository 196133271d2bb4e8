"""What formatters and linters change: files of their own language, and what they say of it."""

import re

_WEB = (
    ".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte", ".astro",
    ".html", ".css", ".scss", ".less", ".json", ".jsonc",
)  # fmt: skip
# What formatters and linters change is the layout of files of their own language.
_LANGUAGES = (
    (re.compile(r"\brustfmt\b|\bcargo (?:\+\S+ )?(?:fmt|clippy|fix)\b"), (".rs",)),
    (re.compile(r"\b(?:go fmt|gofmt|gofumpt|goimports|golangci-lint)\b"), (".go",)),
    (re.compile(r"\b(?:black|isort|autopep8|yapf|ruff)\b"), (".py", ".pyi", ".ipynb")),
    (re.compile(r"\bclang-format\b"), (".c", ".h", ".cc", ".cpp", ".hpp", ".m", ".proto")),
    (re.compile(r"\brubocop\b"), (".rb", ".rake")),
    (
        re.compile(r"\b(?:prettier|dprint|oxfmt)\b"),
        (*_WEB, ".md", ".mdx", ".yaml", ".yml", ".toml"),
    ),
    (re.compile(r"\b(?:biome|eslint|standard)\b"), _WEB),
)
_REWROTE = re.compile(
    r"\bFixed [1-9]\d{0,6} files?\b|\b[1-9]\d{0,6} files? (?:were |was )?"
    r"(?:reformatted|fixed|changed by)|\breformatted \S|files were modified by this hook"
    r"|\bFormatted [1-9]\d{0,6} files?"
)
# Looking for these first is ten times faster than the pattern, which one of them stands in.
_REWROTE_SIGNS = (
    "Fixed ", "reformatted", "fixed", "changed by", "modified by this hook", "Formatted ",
)  # fmt: skip


def formatted_endings(called: str) -> tuple[str, ...]:
    """How the files end that the command named `called` lays out anew; () where it may be any."""
    return next((endings for names, endings in _LANGUAGES if names.search(called)), ())


def rewrote_files(output: str) -> bool:
    """Whether `output` reports that the command changed files by itself, as formatters do."""
    return any(map(output.__contains__, _REWROTE_SIGNS)) and _REWROTE.search(output) is not None
