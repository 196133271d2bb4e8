"""The documentation describes everything that exists, and nothing else."""

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from mcp_server_compaction.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
LIMIT_SECONDS = 120

# The last lines that the programs of a page print.
PRINTED = {
    "how-to/archive.md": ["1"],
    "how-to/summarizer.md": ["compacted mine", "True"],
    "tutorial/agent-loop.md": [
        "unchanged I received 1 messages.",
        "unchanged I received 3 messages.",
    ],
    "tutorial/library.md": ["True"],
}


@pytest.fixture(scope="module")
def fragments() -> Generator[ModuleType]:
    sys.path.insert(0, str(DOCS / "generator"))
    try:
        yield importlib.import_module("fragments")
    finally:
        sys.path.remove(str(DOCS / "generator"))


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks_of(text: str, language: str) -> list[str]:
    """Return the code blocks of a page with exactly this `language`; "" means none."""
    fences = re.findall(r"^( *)```([^\n]*)\n(.*?)^\1```$", text, re.M | re.S)
    return [block for _, block_language, block in fences if block_language == language]


@pytest.mark.slow
def test_generated_pages_are_current() -> None:
    command = [sys.executable, str(DOCS / "generator/generate.py"), "--check"]
    check = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=LIMIT_SECONDS, check=False
    )
    assert (check.stdout, check.stderr, check.returncode) == ("", "", 0)


def test_generated_parts_are_all_on_a_page(fragments: ModuleType) -> None:
    names = {name for page in PAGES for name in re.findall(r"generated: (\w+)", text_of(page))}
    assert names == set(fragments.FRAGMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("page", PRINTED)
def test_programs_of_a_page_run_and_print_the_expected_lines(page: str, tmp_path: Path) -> None:
    program = "\n".join(blocks_of(text_of(page), "python"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        cwd=tmp_path,
        encoding="utf-8",
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert run.stderr == ""
    printed = PRINTED[page]
    assert run.stdout.splitlines()[-len(printed) :] == printed


def test_pages_with_a_program_are_tested() -> None:
    assert [page for page in PAGES if blocks_of(text_of(page), "python")] == list(PRINTED)


def commands() -> list[str]:
    """Return all command lines in the pages, README and CONTRIBUTING that call our program."""
    files = [*(DOCS / page for page in PAGES), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    texts = [path.read_text(encoding="utf-8") for path in files]
    blocks = [block for text in texts for block in blocks_of(text, "")]
    inline = [line for text in texts for line in re.findall(r"`([^`\n]+)`", text)]
    lines = [line for block in blocks for line in block.splitlines()] + inline
    matches = [
        re.search(r"(?:^|[ /])(mcp-server-compaction(?: [^|&#`]+)?)$", line) for line in lines
    ]
    return sorted({match[1].strip() for match in matches if match})


@pytest.mark.parametrize("line", commands())
def test_documented_command_is_accepted(line: str) -> None:
    # --help stops a command after its options are parsed and before it does anything.
    words = shlex.split(line.replace("…", "X"))[1:]
    own = words[: words.index("--")] if "--" in words else words
    result = CliRunner().invoke(main, [*own, "--help"])
    assert result.exit_code == 0, result.output


def test_the_pages_contain_commands() -> None:
    assert len(commands()) > 10


def test_the_architecture_page_names_every_folder_of_the_packages() -> None:
    named = set(re.findall(r"^\| `([a-z]+)` \|", text_of("architecture.md"), re.MULTILINE))
    packages = [ROOT / "compaction" / "context_compaction", ROOT / "server/mcp_server_compaction"]
    folders = {file.parent.name for package in packages for file in package.glob("*/__init__.py")}
    assert named == folders


def test_links_outside_the_docs_lead_to_files() -> None:
    """`mkdocs build --strict` checks the links inside `docs`."""
    places = [*ROOT.glob("*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("examples/*/*.md")]
    links = [
        (page, link)
        for page in places
        for link in re.findall(r"\]\(([^)#\s:]+)[^)]*\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 40
    assert [link for page, link in links if not (page.parent / link).exists()] == []


# These pages name files of hosts, or files without their folder.
_OTHER_PROJECTS = {"tutorial/hosts.md", "reference/map.md", "reference/library.md"}


def test_files_and_folders_named_in_the_pages_exist() -> None:
    library, server = ROOT / "compaction/context_compaction", ROOT / "server/mcp_server_compaction"
    places = [ROOT, library, server, library / "summarizers/llm"]
    text = "\n".join(text_of(page) for page in PAGES if page not in _OTHER_PROJECTS)
    named = set(re.findall(r"`([\w./-]+\.(?:py|md|toml|jsonl?)|\w+/[\w./-]+|\w+)`", text))
    named = {name for name in named if "/" in name or name.endswith(".py")}
    named -= {name for name in named if name.startswith(("application/", "text/"))}
    table = re.findall(r"^\| `(\w+)` \|", text_of("architecture.md"), re.MULTILINE)
    missing = [
        name
        for name in {*named, *table} - {"layers/drop_images.py", "archive_contract.py"}
        if not any((place / name).exists() for place in places)
    ]
    assert missing == []
