"""Make the pictures of docs/how-to/viewer.md: `python docs/images/viewer/make.py [NAME…]`.

They show a real session (`examples/pi-session.jsonl`), compacted in a small window, and the
compaction of a made-up session. Without names, every picture is made.
"""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from context_compaction.archive.opening import open_archive
from context_compaction.formats.session_files.read import read_conversation
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[2]
SESSION = "pi-themes"
STORY = "invoices"
PAGES = {
    "sessions": "/",
    "session": f"/sessions/{SESSION}",
    "compaction": f"/sessions/{STORY}/compactions/last#lists",
    "context": f"/sessions/{SESSION}/context?window=100000",
    "search": "/search?query=theme+colors",
}
# Page, width in pixels and color scheme of each picture that the documentation shows.
PICTURES = (
    ("compaction", 360, "light"),
    ("compaction", 1280, "light"),
    ("compaction", 1920, "dark"),
    ("context", 1280, "dark"),
    ("search", 1280, "light"),
    ("session", 360, "dark"),
    ("session", 1280, "light"),
    ("sessions", 1920, "light"),
)


async def fill_archive(folder: Path) -> None:
    """Archive a session in three parts with two compactions, and a second session with one."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.support.story import story

    data = (REPOSITORY / "examples" / "pi-session.jsonl").read_bytes()
    conversation = read_conversation(data, name="pi-session.jsonl")
    third = len(conversation.payload) // 3
    request = CompactRequest(
        session_id=SESSION,
        format=conversation.format,
        model="claude-sonnet-4-5",
        context_window=60_000,
        pinned=("Never commit without being asked.",),
    )
    record = CompactRequest(
        session_id=SESSION, format=conversation.format, model=request.model, mode="record"
    )
    async with open_archive(folder) as archive:
        messages: list[Any] = []
        for start, step in ((0, request), (third, request), (2 * third, record)):
            part = conversation.payload[start : start + third]
            messages = list((await compact([*messages, *part], step, archive=archive)).messages)
        invoices = CompactRequest(session_id=STORY, mode="full", pinned=("Tests stay green.",))
        await compact(story(turns=7), invoices, archive=archive)


@contextmanager
def viewer(folder: Path) -> Generator[str]:
    """Run the viewer and yield its entry address, which admits one browser."""
    environment = {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(folder / "archive"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MCP_COMPACTION_IMPORT": "off",
    }
    command = [sys.executable, "-m", "mcp_server_compaction", "view", "--no-browser"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)  # noqa: S603
    if process.stderr is None:
        raise SystemExit("The viewer has no standard error to read its address from.")
    try:
        yield process.stderr.readline().split()[2]
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    """Make the pictures whose names are arguments, or every picture."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as name:
        folder = Path(name)
        anyio.run(fill_archive, folder / "archive")
        with viewer(folder) as entry, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=os.environ.get("MCP_TEST_CHROMIUM", "/usr/bin/chromium"),
                args=["--no-sandbox"],
            )
            take_pictures(browser.new_page(), entry)
            browser.close()


def take_pictures(page: Any, entry: str) -> None:
    """Enter the viewer with a browser page, and save the pictures."""
    page.goto(entry)
    page.wait_for_selector("h1")
    base = "/".join(entry.split("/")[:3])
    for page_name, width, scheme in PICTURES:
        picture = f"{page_name}-{width}-{scheme}.jpg"
        if sys.argv[1:] and picture not in sys.argv[1:]:
            continue
        page.set_viewport_size({"width": width, "height": 780 if width < 500 else 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{base}{PAGES[page_name]}")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=FOLDER / picture, type="jpeg", quality=72)


if __name__ == "__main__":
    main()
