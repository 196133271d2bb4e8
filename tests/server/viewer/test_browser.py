"""The pages in a real browser: reading, links, search, keys, plans, export, accessibility."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from context_compaction import formats
from context_compaction.archive.opening import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from hypothesis import settings
from mcp_server_compaction.config import Config

from tests.server.viewer.browser import (
    WAIT_MS,
    PageMonitor,
    run_in_thread,
    viewer_process,
    visit,
)
from tests.server.viewer.site import fill_archive
from tests.server.viewer.test_attacks import fill_attacked, pages_of
from tests.support.markup_attacks import PAYLOADS
from tests.support.story import story

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGES = (
    "/", "/sessions/main", "/sessions/main/compactions", "/sessions/main/compactions/last",
    "/sessions/main/context", "/sessions/main/files", "/sessions/main/files/billing/module_7.py",
    "/sessions/main/undone", "/sessions/main/export", "/sessions/main/delete",
    "/search?query=rounded", "/storage", "/storage/prune?days=0", "/sessions/main/messages/2/0",
    "/sessions/none",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("viewer")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A viewer of a session with two compactions, and of a session with cleared results."""
    run_in_thread(_fill, Config(archive_folder=folder / "archive"))
    with viewer_process(folder / "archive", folder / "cache") as entry:
        yield entry


async def _fill(config: Config) -> None:
    await fill_archive(config)
    async with open_archive(config.archive) as archive:
        small = {"min_result_tokens": 1, "min_savings_tokens": 1, "keep_recent_results": 1}
        request = CompactRequest(session_id="cleared", mode="micro", settings=small)
        assert (await compact(story(turns=5), request, archive=archive)).changed


@pytest.fixture(scope="module")
def entered(chromium: Any, address: str) -> Iterator[Any]:
    """A browser context with the cookie of the viewer."""
    context = chromium.new_context(accept_downloads=True)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    visit(page, address)
    yield context
    context.close()


@pytest.fixture
def monitor() -> PageMonitor:
    return PageMonitor()


@pytest.fixture
def page(entered: Any, address: str, monitor: PageMonitor) -> Iterator[Any]:
    opened = entered.new_page()
    monitor.attach(opened, address.split("/")[2])
    visit(opened, _base(address))
    yield opened
    opened.close()


def _base(address: str) -> str:
    return "/".join(address.split("/")[:3])


def test_original_of_a_removed_message_is_four_clicks_away(page: Any, monitor: PageMonitor) -> None:
    page.click("text=Find out why the invoices >> nth=0")
    page.click("nav.tabs >> text=Compactions")
    page.click(".session .title >> nth=0")
    page.click(".row .mark a:not(.kind) >> nth=0")
    page.wait_for_selector(".message[data-seq]")
    assert "#m" in page.url
    assert monitor.is_clean(), monitor


def test_placeholder_links_to_its_original(page: Any, address: str, monitor: PageMonitor) -> None:
    visit(page, f"{_base(address)}/sessions/cleared/compactions/last")
    placeholder = page.locator(".cleared .after a.pointer[href^='/outputs/']").first
    cell = placeholder.locator("xpath=ancestor::div[contains(@class, 'after')]")
    assert "round_half_even" not in cell.inner_text()
    placeholder.click()
    page.wait_for_selector(".lines tr")
    assert "round_half_even" in page.inner_text(".lines")
    assert monitor.is_clean(), monitor


def test_keys_jump_from_change_to_change(page: Any, address: str, monitor: PageMonitor) -> None:
    visit(page, f"{_base(address)}/sessions/cleared/compactions/last?show=all")
    kinds: list[str] = []
    for _ in range(3):
        page.keyboard.press("n")
        kinds.append(page.inner_text(".row.current .kind"))
    assert "kept" not in kinds
    page.click("text=Previous change")
    assert page.inner_text(".row.current .kind") == kinds[1]
    assert monitor.is_clean(), monitor


def test_search_works_with_the_keyboard_alone(page: Any, monitor: PageMonitor) -> None:
    page.keyboard.press("/")
    page.wait_for_selector("#search-words:focus")
    page.keyboard.type("rounded wrongly")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit-link")
    page.wait_for_load_state("load")  # the keys work when the scripts have run
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.className").startswith("hit-link")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message[data-seq]")
    page.wait_for_load_state("load")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.wait_for_selector(".message.current")
    assert monitor.is_clean(), monitor


def test_plans_of_compaction_and_pruning_change_nothing(
    page: Any, address: str, monitor: PageMonitor
) -> None:
    visit(page, f"{_base(address)}/sessions/main/context")
    page.wait_for_selector("svg.bar")
    page.click("text=Try another policy")
    page.select_option("select[name=policy]", "economy")
    page.click("button:text-is('Plan')")
    page.wait_for_selector("text=What the next compaction would do")
    visit(page, f"{_base(address)}/storage")
    page.fill("input[name=days]", "0")
    page.click("text=Preview")
    page.wait_for_selector("text=Nothing is deleted yet")
    visit(page, _base(address))
    assert page.locator(".session .title").count() == 3
    assert monitor.is_clean(), monitor


def test_html_export_requests_no_other_file(
    page: Any, entered: Any, address: str, folder: Path
) -> None:
    visit(page, f"{_base(address)}/sessions/main/export")
    with page.expect_download() as download:
        page.click("button:text-is('Download')")
    path = folder / "main.html"
    download.value.save_as(path)
    alone = entered.new_page()
    requested: list[str] = []

    def record(request: Any) -> None:
        requested.append(request.url)

    alone.on("request", record)
    alone.goto(path.as_uri())
    assert "Find out why the invoices" in alone.inner_text("main")
    assert requested == [path.as_uri()]
    alone.close()


def test_pages_are_accessible_in_light_and_dark_and_fit_a_window_of_360_pixels(
    chromium: Any, address: str, page: Any
) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    context = chromium.new_context(storage_state=page.context.storage_state(), bypass_csp=True)
    context.set_default_timeout(WAIT_MS)
    checked = context.new_page()
    for path in PAGES:
        checked.emulate_media(color_scheme="light")
        checked.set_viewport_size({"width": 1280, "height": 720})
        visit(checked, f"{_base(address)}{path}")
        checked.evaluate(axe)
        assert _violations(checked) == [], path
        # The dark colours differ from the light ones only in the style sheet.
        checked.emulate_media(color_scheme="dark")
        assert _violations(checked, ", runOnly: ['color-contrast']") == [], path
        checked.set_viewport_size({"width": 360, "height": 740})
        assert checked.evaluate("document.documentElement.scrollWidth") <= 360, path
    context.close()


def _violations(page: Any, rules: str = "") -> list[tuple[str, list[str]]]:
    """Return the problems that axe finds: the name of a rule, and the elements that break it."""
    result = page.evaluate(f"axe.run(document, {{resultTypes: ['violations']{rules}}})")
    return [(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in result["violations"]]


def test_attacks_in_a_transcript_run_nothing_and_send_nothing(
    chromium: Any, tmp_path: Path, monitor: PageMonitor
) -> None:
    config = Config(archive_folder=tmp_path / "archive")
    # A third of the attacks, because test_attacks checks the markup of all.
    run_in_thread(fill_attacked, config, PAYLOADS[::3])
    with viewer_process(tmp_path / "archive", tmp_path / "cache") as entry:
        context = chromium.new_context()
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        visit(page, entry)
        monitor.attach(page, entry.split("/")[2])
        for path in run_in_thread(_addresses, config):
            visit(page, f"{_base(entry)}{path}")
            page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
            assert page.evaluate("window.ran") is None, path
            assert page.url.startswith(_base(entry)), path
            errors = [text for text in monitor.errors if "the server responded with" not in text]
            assert (monitor.foreign_requests, monitor.dialogs, errors) == ([], [], []), path
        context.close()


async def _addresses(config: Config) -> list[str]:
    from tests.server.viewer.site import running_site

    async with running_site(config) as site:
        addresses = await pages_of(site, "attacked")
    # Parts belong to the pages of their messages, and a few blocks represent all.
    return [path for path in addresses if "/messages/" not in path and "part=" not in path] + [
        path for path in addresses if "/messages/2/" in path and "part=" not in path
    ][:3]


async def _long_session(folder: Path, count: int) -> None:
    raws = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n}: " + "word " * 40}
        for n in range(count)
    ]
    async with open_archive(folder / "archive") as archive:
        messages = formats.parse(raws, format="anthropic")
        await archive.append("long", messages, format="anthropic")


JUMP = """async () => {
  document.querySelector("#go input").value = "AT";
  document.querySelector("#go").requestSubmit();
  while (!document.getElementById("mAT")) await new Promise((r) => requestAnimationFrame(r));
}"""


# The nightly run uses 100,000 messages.
MESSAGE_COUNT = 100_000 if settings().max_examples > 1_000 else 5_000


def test_very_long_session_loads_only_parts_near_the_window(chromium: Any, tmp_path: Path) -> None:
    requested: list[str] = []

    def record(request: Any) -> None:
        requested.append(request.url)

    run_in_thread(_long_session, tmp_path, MESSAGE_COUNT)
    with viewer_process(tmp_path / "archive", tmp_path / "cache") as entry:
        context = chromium.new_context()
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        visit(page, entry)
        visit(page, f"{_base(entry)}/sessions/long")
        page.wait_for_selector("#transcript[data-ready]")
        page.on("request", record)
        page.evaluate(JUMP.replace("AT", str(MESSAGE_COUNT * 9 // 10)))
        assert len(requested) <= 4
        for at in (MESSAGE_COUNT // 2, 10, MESSAGE_COUNT - 1, MESSAGE_COUNT // 3):
            page.evaluate(JUMP.replace("AT", str(at)))
        assert page.evaluate("document.querySelectorAll('.message').length") <= 400
        context.close()


TITLE = "text=Find out why the invoices >> nth=0"
FIRST = ".session .title >> nth=0"
# Each question of docs/how-to/viewer.md: the words to type into the search, and the clicks.
QUESTIONS = {
    "why was it forgotten": ("rounded wrongly", [".hits a.removed >> nth=0"], ".row.change"),
    "what fills the context": ("", [TITLE, "text=Context now"], "text=The ten largest pieces"),
    "what was removed": ("", [TITLE, "nav.tabs >> text=Compactions", FIRST], ".row.change"),
    "what did the model see": ("", [TITLE, "nav.tabs >> text=Compactions", FIRST], ".cell.after"),
    "where is that error": ("INV-4711", [".hit-link >> nth=0"], ".message[data-seq]"),
    "how to get a file back": ("", [TITLE, "text=Files", "text=Save as file >> nth=0"], "download"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_answered_in_three_clicks(
    page: Any, address: str, monitor: PageMonitor, question: str
) -> None:
    words, clicks, answer = QUESTIONS[question]
    assert len(clicks) <= 3
    if words:
        visit(page, f"{_base(address)}/search?session_id=main")
        page.fill("#search-words", words)
        page.keyboard.press("Enter")
    if answer == "download":
        with page.expect_download() as download:
            for selector in clicks:
                page.click(selector)
        assert download.value.suggested_filename.startswith("module_")
        return
    for selector in clicks:
        page.click(selector)
    page.wait_for_selector(answer)
    assert monitor.is_clean(), monitor
