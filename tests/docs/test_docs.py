"""The documentation tells of what is there: all of it, and nothing else."""

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from dataclasses import make_dataclass
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from mcp_server_compaction.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
LIMIT_SECONDS = 120

# What the programs of a page print, last.
PRINTED = {
    "how-to/archive.md": ["1"],
    "how-to/summarizer.md": ["compacted mine", "True"],
    "tutorial/library.md": ["True"],
}


@pytest.fixture(scope="module")
def reference() -> Generator[ModuleType]:
    sys.path.insert(0, str(DOCS / "hooks"))
    try:
        yield importlib.import_module("reference")
    finally:
        sys.path.remove(str(DOCS / "hooks"))


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks_of(text: str, language: str) -> list[str]:
    """The code blocks of a page that are marked with exactly `language`, "" for none."""
    fences = re.findall(r"^( *)```([^\n]*)\n(.*?)^\1```$", text, re.M | re.S)
    return [block for _, marked, block in fences if marked == language]


def test_everything_that_can_be_generated_stands_on_a_page_and_is_described(
    reference: ModuleType,
) -> None:
    asked = [name for page in PAGES for name in re.findall(r"generated: (\w+)", text_of(page))]
    assert set(asked) == set(reference.FRAGMENTS)
    for name in asked:
        assert len(reference.fragment(name)) > 100


def test_a_page_that_asks_for_what_is_not_generated_does_not_build(reference: ModuleType) -> None:
    with pytest.raises(reference.UndescribedError, match="'sttings'"):
        reference.filled("<!-- generated: sttings -->")


def test_a_setting_without_a_description_or_a_unit_does_not_build(reference: ModuleType) -> None:
    mute = make_dataclass("mute", [("keep_turns", int, 1)])
    with pytest.raises(reference.UndescribedError, match=r"mute\.keep_turns has no description"):
        reference.field_rows(mute)
    bare = make_dataclass("bare", [("depth", int, 1)])
    bare.__doc__ = "One.\n\nAttributes:\n    depth: How deep.\n"
    with pytest.raises(reference.UndescribedError, match="depth is a number"):
        reference.field_rows(bare, with_unit=True)


@pytest.mark.parametrize(
    "section", ["statuses", "modes", "formats", "errors", "receipt", "records", "environment"]
)
def test_an_error_or_status_without_a_text_does_not_build(
    reference: ModuleType, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = dict(reference.texts())
    known = list(texts[section])
    texts[section] = {name: texts[section][name] for name in known[1:]}
    monkeypatch.setattr(reference, "texts", lambda: texts)
    with pytest.raises(reference.UndescribedError, match=known[0]):
        reference.FRAGMENTS[section]()


def test_a_text_that_describes_nothing_does_not_build(reference: ModuleType) -> None:
    with pytest.raises(reference.UndescribedError, match="gone"):
        reference.check_names({"gone": ""}, [], "errors")


def test_an_answer_with_an_undescribed_field_does_not_build(reference: ModuleType) -> None:
    schema = {"properties": {"size": {"type": "integer"}}}
    with pytest.raises(reference.UndescribedError, match=r"answer\.size"):
        reference.schema_rows(schema, {}, "answer")
    with pytest.raises(reference.UndescribedError, match="length"):
        reference.schema_rows(schema, {"size": "How large.", "length": "?"}, "answer")


@pytest.mark.slow
@pytest.mark.parametrize("page", PRINTED)
def test_the_programs_of_a_page_run_as_they_stand_there(page: str, tmp_path: Path) -> None:
    program = "\n".join(blocks_of(text_of(page), "python"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        cwd=tmp_path,
        encoding="utf-8",
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.stderr == ""
    printed = PRINTED[page]
    assert done.stdout.splitlines()[-len(printed) :] == printed


def test_every_page_with_a_program_is_run() -> None:
    assert [page for page in PAGES if blocks_of(text_of(page), "python")] == list(PRINTED)


def commands() -> list[str]:
    """Every command line of the pages, README and CONTRIBUTING that calls our program."""
    files = [*(DOCS / page for page in PAGES), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    texts = [path.read_text(encoding="utf-8") for path in files]
    blocks = [block for text in texts for block in blocks_of(text, "")]
    inline = [line for text in texts for line in re.findall(r"`([^`\n]+)`", text)]
    lines = [line for block in blocks for line in block.splitlines()] + inline
    found = [re.search(r"(?:^|[ /])(mcp-server-compaction(?: [^|&#`]+)?)$", line) for line in lines]
    return sorted({match[1].strip() for match in found if match})


@pytest.mark.parametrize("line", commands())
def test_every_command_that_is_printed_is_one_that_the_command_line_takes(line: str) -> None:
    # --help ends a call before it does anything, and after its options were read.
    arguments = [*shlex.split(line.replace("…", "X"))[1:], "--help"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output


def test_the_command_line_is_told_of_in_many_places() -> None:
    assert len(commands()) > 10


def test_the_page_on_architecture_names_every_folder_of_the_packages() -> None:
    named = set(re.findall(r"^\| `([a-z]+)` \|", text_of("architecture.md"), re.MULTILINE))
    packages = [ROOT / "compaction" / "context_compaction", ROOT / "server/mcp_server_compaction"]
    folders = {file.parent.name for package in packages for file in package.glob("*/__init__.py")}
    assert named == folders


def test_every_link_of_the_pages_outside_the_docs_leads_to_a_file() -> None:
    """The links within the docs are looked up where these are built."""
    places = [*ROOT.glob("*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("examples/*/*.md")]
    links = [
        (page, link)
        for page in places
        for link in re.findall(r"\]\(([^)#\s:]+)[^)]*\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 40
    assert [link for page, link in links if not (page.parent / link).exists()] == []


def test_every_file_and_folder_that_the_pages_name_is_there() -> None:
    library, server = ROOT / "compaction/context_compaction", ROOT / "server/mcp_server_compaction"
    places = [ROOT, library, server, library / "summarizers/llm"]
    text = "\n".join(text_of(page) for page in PAGES if not page.startswith("tutorial/hosts"))
    named = set(re.findall(r"`([\w./-]+\.(?:py|md|toml|jsonl?)|\w+/[\w./-]+|\w+)`", text))
    named = {name for name in named if "/" in name or name.endswith(".py")}
    table = re.findall(r"^\| `(\w+)` \|", text_of("architecture.md"), re.MULTILINE)
    gone = [
        name
        for name in {*named, *table} - {"layers/drop_images.py", "archive_contract.py"}
        if not any((place / name).exists() for place in places)
    ]
    assert gone == []


def test_every_generated_page_says_in_its_file_where_the_content_is() -> None:
    pages = [*(DOCS / "reference").glob("*.md")]
    generated = [page for page in pages if "<!-- generated:" in page.read_text(encoding="utf-8")]
    assert len(generated) > 8
    for page in generated:
        text = page.read_text(encoding="utf-8")
        [block] = re.findall(r"<!-- unbuilt -->(.*?)<!-- /unbuilt -->", text, re.DOTALL)
        for link in re.findall(r"\]\(([^)]+)\)", block):
            assert (page.parent / link).exists(), link
