"""Makes the pictures of docs/how-to/viewer.md: `python docs/images/viewer/make.py [PAGE…]`.

They show a real session (`examples/pi-session.jsonl`), compacted through a small window, and a
made-up one for the compaction, at the widths of a telephone, a laptop and a large screen, in light
and dark.
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

HERE = Path(__file__).parent
TOP = HERE.parents[2]
SESSION = "pi-themes"
STORY = "invoices"
WIDTHS = (360, 1280, 1920)
PAGES = {
    "sessions": "/",
    "session": f"/sessions/{SESSION}",
    "compaction": f"/sessions/{STORY}/compactions/last#lists",
    "context": f"/sessions/{SESSION}/context?window=100000",
    "search": "/search?q=theme+colors",
}


async def fill(folder: Path) -> None:
    """The archive: one session in three parts, compacted after the first two, and another."""
    data = (TOP / "examples" / "pi-session.jsonl").read_bytes()
    given = read_conversation(data, name="pi-session.jsonl")
    third = len(given.payload) // 3
    wish = CompactRequest(
        session_id=SESSION,
        format=given.format,
        model="claude-sonnet-4-5",
        context_window=60_000,
        pinned=("Never commit without being asked.",),
    )
    async with open_archive(folder) as archive:
        result = await compact(given.payload[:third], wish, archive=archive)
        for start in (third, 2 * third):
            part = given.payload[start : start + third]
            mode = wish if start == third else CompactRequest(
                session_id=SESSION, format=given.format, model=wish.model, mode="record"
            )  # fmt: skip
            result = await compact([*result.messages, *part], mode, archive=archive)
        from tests.support.story import story

        invoices = CompactRequest(session_id=STORY, mode="full", pinned=("Tests stay green.",))
        await compact(story(turns=7), invoices, archive=archive)


@contextmanager
def serving(folder: Path) -> Generator[str]:
    """The viewer; the address that lets the browser in."""
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


def shoot(browser: Any, address: str, width: int, scheme: str) -> None:
    """All pages at one width in one scheme."""
    context = browser.new_context(
        viewport={"width": width, "height": 780 if width < 500 else 900}, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("h1")
    base = "/".join(address.split("/")[:3])
    for name, path in PAGES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        page.goto(f"{base}{path}")
        page.wait_for_load_state("networkidle")
        picture = HERE / f"{name}-{width}-{scheme}.jpg"
        page.screenshot(path=picture, type="jpeg", quality=72)
    context.close()


def main() -> None:
    """Make them all."""
    sys.path.insert(0, str(TOP))  # for the made-up session
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as name:
        folder = Path(name)
        anyio.run(fill, folder / "archive")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=os.environ.get("MCP_TEST_CHROMIUM", "/usr/bin/chromium"),
                args=["--no-sandbox"],
            )
            for width in WIDTHS:
                for scheme in ("light", "dark"):
                    with serving(folder) as address:
                        shoot(browser, address, width, scheme)
            browser.close()


if __name__ == "__main__":
    main()
