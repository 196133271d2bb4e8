"""Make the pictures of the viewer: `python docs/images/viewer/make.py [PAGE…]`.

Each page is shown in three widths, light and dark, as `PAGE-WIDTH-SCHEME.webp`. The archive has a
real session (`examples/pi-session.jsonl`), which was compacted several times in a small window, and
two made-up ones. Chromium also converts the pictures, so no other program is needed.
"""

import base64
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from context_compaction.archive.documents import HOST_TOOL
from context_compaction.archive.opening import open_archive
from context_compaction.formats.session_files.read import read_conversation
from context_compaction.messages.model import make_blob
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[2]
SESSION = "pi-themes"
STORY = "invoices"
RIGHT_TO_LEFT = "arabic"
WIDTHS = {360: 780, 1280: 900, 1920: 1080}
QUALITY = 0.5  # of a WebP file, from 0 to 1
PAGES = {
    "sessions": "/",
    "session": f"/sessions/{SESSION}?at=2#m2",
    "compactions": f"/sessions/{SESSION}/compactions",
    "compaction": f"/sessions/{SESSION}/compactions/last",
    "changes": f"/sessions/{STORY}/compactions/last#lists",
    "context": f"/sessions/{SESSION}/context",
    "files": f"/sessions/{SESSION}/files",
    "search": "/search?query=theme+colors",
    "storage": "/storage",
    "undone": f"/sessions/{STORY}/undone",
    "right-to-left": f"/sessions/{RIGHT_TO_LEFT}",
    "output": "/outputs/OUTPUT",
    "export": f"/sessions/{STORY}/export",
    "delete": f"/sessions/{STORY}/delete",
    "prune": "/storage/prune?days=0",
    "login": "/",  # the last one, because it needs a browser without a cookie
}
ARABIC = (
    {"role": "user", "content": "مرحبا، أريد إصلاح الخطأ في الملف config.py من فضلك."},
    {
        "role": "assistant",
        "content": "بالتأكيد.\n\n| الاسم | القيمة |\n|---|--:|\n| timeout | 30 |",
    },
)
TO_WEBP = """async ([data, quality]) => {
  const image = new Image();
  image.src = `data:image/png;base64,${data}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", quality).split(",")[1];
}"""


async def fill_archive(folder: Path) -> str:
    """Archive a session that grows and is compacted several times, and two short sessions.

    Returns the ID of the output with the most lines.
    """
    sys.path.insert(0, str(REPOSITORY))
    from tests.support.story import story

    data = (REPOSITORY / "examples" / "pi-session.jsonl").read_bytes()
    conversation = read_conversation(data, name="pi-session.jsonl")
    step = len(conversation.payload) // 8
    request = CompactRequest(
        session_id=SESSION,
        format=conversation.format,
        model="claude-sonnet-4-5",
        context_window=60_000,
        pinned=("Never commit without being asked.",),
    )
    async with open_archive(folder) as archive:
        messages: list[Any] = []
        for start in range(0, len(conversation.payload), step):
            grown = [*messages, *conversation.payload[start : start + step]]
            messages = list((await compact(grown, request, archive=archive)).messages)
        invoices = CompactRequest(session_id=STORY, mode="full", pinned=("Tests stay green.",))
        await compact(story(turns=7), invoices, archive=archive)
        arabic = CompactRequest(session_id=RIGHT_TO_LEFT, mode="record")
        await compact(ARABIC, arabic, archive=archive)
        for session_id, host in (
            (SESSION, "pi /home/robin/pi-mono"),
            (STORY, "codex /srv/billing"),
        ):
            await archive.commit(session_id, blobs=[make_blob(host, tool_name=HOST_TOOL)])
        outputs = await archive.outputs(SESSION)
        return max(outputs, key=lambda output: output.line_count).output_id


@contextmanager
def viewer(folder: Path) -> Generator[str]:
    """Run the viewer and yield its entry address, which admits one browser."""
    environment = {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(folder / "archive"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MCP_COMPACTION_IMPORT_SESSIONS": "off",
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
    """Make the pictures of the pages whose names are arguments, or of every page."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as name:
        folder = Path(name)
        output_id = anyio.run(fill_archive, folder / "archive")
        with viewer(folder) as entry, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=os.environ.get("MCP_TEST_CHROMIUM", "/usr/bin/chromium"),
                args=["--no-sandbox"],
            )
            take_pictures(browser.new_page(), browser.new_page(), entry, output_id)
            browser.close()


def take_pictures(page: Any, converter: Any, entry: str, output_id: str) -> None:
    """Enter the viewer with a browser page, and save the pictures with the other page."""
    page.set_default_timeout(150_000)
    page.goto(entry)
    page.wait_for_selector("h1")
    base = "/".join(entry.split("/")[:3])
    for name, address in PAGES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        if name == "undone":
            page.goto(f"{base}/sessions/{STORY}/compactions/last")
            page.click("text=Undo this compaction")
        if name == "login":
            page.context.clear_cookies()
        for width, height in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": height})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.goto("about:blank")
                page.goto(f"{base}{address.replace('OUTPUT', output_id)}")
                page.wait_for_selector("[data-reload]", state="detached")
                page.wait_for_load_state("networkidle")
                page.wait_for_selector("progress", state="detached")
                data = base64.b64encode(page.screenshot()).decode()
                webp = converter.evaluate(TO_WEBP, [data, QUALITY])
                picture = FOLDER / f"{name}-{width}-{scheme}.webp"
                picture.write_bytes(base64.b64decode(webp))


if __name__ == "__main__":
    main()
